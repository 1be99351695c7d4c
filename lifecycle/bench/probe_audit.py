"""How many records an audit replays in a second of one core, by the shape of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, Final

from lifecycle.audit.chain import chain_hash
from lifecycle.audit.plain import compact_json
from lifecycle.audit.read import read_log
from lifecycle.auditing import Audited, audit_logs
from lifecycle.bench.model import BenchModel
from lifecycle.bench.options import Case
from lifecycle.bench.trainer import BenchTrainer
from lifecycle.errors import LifecycleError

TURN: Final = (
    "step", "sleep", "offload", "update_weights", "update_weights", "reconcile_adapters", "update_weights", "wake_up",
    "nothing_to_reconcile",
)  # fmt: skip
"""One turn of a run: fourteen records or so."""
FEW: Final = 4
MANY: Final = 1_000
RANKS: Final = 8
_TURNS: Final = 200
_TURNS_OF_MANY: Final = 5


def probe_audit(case: Case, folder: Path, repetitions: int) -> dict[str, Any]:
    """Audit logs of a real trainer, of each shape, in turn and again.

    Returns:
        By shape: ``records``, ``record_bytes`` on average, ``records_per_s`` of CPU time at best, and ``ratio``, the
        median of its CPU time to that of reading the lines as JSON and hashing them.
    """
    turns, many = folder / "turns.jsonl", folder / "many.jsonl"
    _run(replace(case, adapters=FEW), turns, _TURNS)
    _run(replace(case, adapters=MANY), many, _TURNS_OF_MANY)
    whole = _rewritten(turns, folder / "whole.jsonl")
    ranks = [_rewritten(turns, folder / f"rank-{rank}.jsonl", rank=rank) for rank in range(RANKS)]
    shapes = {"turns": [turns], "whole": [whole], "many": [many], "ranks": ranks}
    return {name: _measured(paths, repetitions if name != "ranks" else 3) for name, paths in shapes.items()}


def _run(case: Case, log: Path, turns: int) -> None:
    """A trainer of next to no bytes that takes so many turns."""
    trainer = BenchTrainer(case, log.parent, log, model=BenchModel(case, width=1, modules=1))
    for event in ("attach", "first_reconcile"):
        trainer.do(event)
    for _ in range(turns):
        for event in TURN:
            trainer.do(event)
    trainer.log.close()


def _rewritten(log: Path, path: Path, **changes: object) -> Path:
    """The same records with all facts in each, or with other keys and the facts as they are written."""
    previous, lines = "", []
    records: Iterable[dict[str, Any]] = map(json.loads, log.read_bytes().splitlines()) if changes else read_log(log)
    for record in records:
        told = {key: one for key, one in record.items() if key != "hash"} | changes
        if "facts" in told:
            told["facts"] = dict(told["facts"])  # as they are, and not as what they were written as
        previous = chain_hash(previous, told)
        lines.append(compact_json({**told, "hash": previous}) + "\n")
    path.write_text("".join(lines))
    return path


def _measured(paths: Sequence[Path], repetitions: int) -> dict[str, Any]:
    lines = [line for path in paths for line in path.read_bytes().splitlines()]

    def bare() -> None:
        for line in lines:
            json.loads(line)
            sha256(line).hexdigest()

    def audit() -> None:
        audited = Audited()
        found = next(audit_logs(paths, audited), None)
        if found is not None or audited.records != len(lines):
            raise LifecycleError(f"a good log was audited, and {found} was found in {audited.records} records")

    pairs = [(_cpu_seconds(audit), _cpu_seconds(bare)) for _ in range(repetitions)]
    return {
        "records": len(lines),
        "record_bytes": sum(map(len, lines)) // len(lines),
        "records_per_s": len(lines) / min(audited for audited, _ in pairs),
        "ratio": median(audited / read for audited, read in pairs),
    }


def _cpu_seconds(call: Callable[[], object]) -> float:
    """Of this process alone: what others do on the machine is not counted, though it slows a shared core down."""
    started = time.process_time()
    call()
    return time.process_time() - started
