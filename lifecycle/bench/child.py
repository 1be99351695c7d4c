"""The measuring process: one JSON object a line comes in, one goes out. Run as ``python -m lifecycle.bench.child``.

The first line says what to be: ``{"be": "trainer", ...}`` stays and takes events, ``{"be": "probe", ...}``
measures one thing. Every answer is ``{"ok": ...}`` or ``{"error": "..."}``.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lifecycle.bench.options import Case
from lifecycle.bench.probes import PROBES
from lifecycle.bench.trainer import BenchTrainer


def main() -> None:
    """Answer until the input ends."""
    torch.set_num_threads(1)
    ask: Callable[[dict[str, Any]], Any] = _begin
    for text in sys.stdin:
        try:
            found = ask(json.loads(text))
        except Exception as error:  # noqa: BLE001 - the process that asked reports it
            answer: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
        else:
            if isinstance(found, BenchTrainer):
                gc.freeze()  # what was imported is not looked through again each time that memory is measured
                ask, found = _asking(found), found.sizes()
            answer = {"ok": found}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _begin(said: dict[str, Any]) -> Any:
    case, folder = Case(**said["case"]), Path(said["folder"])
    if said["be"] == "trainer":
        return BenchTrainer(case, folder, folder / f"audit-{said['rank']}.jsonl")
    return PROBES[said["be"]](case, folder, said["repetitions"])


def _asking(trainer: BenchTrainer) -> Callable[[dict[str, Any]], Any]:
    def ask(said: dict[str, Any]) -> Any:
        return trainer.memory() if said["do"] == "memory" else trainer.do(said["do"])

    return ask


if __name__ == "__main__":
    main()
