"""``python -m tests.soak [CYCLES]``, and ``python -m tests.soak faults [FOLDER]``."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import torch

from tests.lifecycle.campaign import Campaign
from tests.lifecycle.faulted_events import CONFIGURATIONS, EVENTS
from tests.soak.cycles import soak


def faults() -> None:
    """Every fault of every event in every configuration, once and lasting."""
    total: Counter[str] = Counter()
    for configuration in CONFIGURATIONS:
        counts: Counter[str] = Counter()
        for event in EVENTS:
            for sticky in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    counts += Campaign(event, configuration, Path(folder), sticky=sticky).run()
        total += counts
        print(f"{configuration:36} {counts.total():6} faults: {dict(counts)}", flush=True)
    print(f"{'all':36} {total.total():6} faults: {dict(total)}")


def main(arguments: list[str]) -> int:
    """Run what is asked for. 0 when nothing was found."""
    torch.set_num_threads(1)
    if arguments[:1] == ["faults"]:
        faults()
        return 0
    found = soak(int(arguments[0]) if arguments else 5000, show=lambda line: print(line, flush=True))
    print("nothing has grown" if not found else "\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
