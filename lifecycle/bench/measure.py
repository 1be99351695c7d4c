"""Runs cases in fresh processes, their repetitions interleaved, and puts the samples of each event together."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from lifecycle.bench.options import Case
from lifecycle.bench.ranks import Rank, ranks_of
from lifecycle.bench.trainer import BEFORE, CYCLE
from lifecycle.errors import ConfigError
from lifecycle.memory import host

Say = Callable[[str], None]
_SUMMED: Final = ("held_bytes", "books_bytes", "backup_file_bytes")
_ROOM: Final = 0.9


@dataclass
class EventRow:
    """One event of one case over all cycles and repetitions. Bytes are of all ranks together.

    Attributes:
        held: anonymous and shared memory held after the event beyond what the attach left, one entry a cycle.
        files: bytes of base file (once a node) and disk backups after it.
        books: what the trainers' own books say of the host memory held.
        moved: bytes that the trainers copied.
        sent: bytes that engines took.
        kinds: bytes moved by kind, of the last cycle.
        seconds: inside the controller, one entry a rank and cycle.
    """

    held: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    books: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)


@dataclass
class Measured:
    """What was found for one case.

    Attributes:
        case: the case.
        base_bytes: of one rank.
        trainable_bytes: adapters of one rank.
        events: rows by event, in the order in which they happen.
    """

    case: Case
    base_bytes: int = 0
    trainable_bytes: int = 0
    events: dict[str, EventRow] = field(default_factory=lambda: defaultdict(EventRow))

    @property
    def optimizer_bytes(self) -> int:
        """Adam's moments of one rank."""
        return 2 * self.trainable_bytes

    @property
    def gradient_bytes(self) -> int:
        """Gradients of one rank."""
        return self.trainable_bytes

    def rows(self) -> list[dict[str, Any]]:
        """As ``--json`` prints them."""
        return [self._row(event, found) for event, found in self.events.items()]

    def _row(self, event: str, found: EventRow) -> dict[str, Any]:
        case = self.case
        return {
            "strategy": case.strategy,
            "frozen_base": "file" if case.offload_target == "disk" else case.frozen_base,
            "base_bytes": self.base_bytes,
            "trainable_bytes": self.trainable_bytes,
            "ranks": case.ranks,
            "kept_models": case.kept_models,
            "event": event,
            "held_bytes": round(median(found.held)),
            "file_bytes": round(median(found.files)),
            "moved_bytes": round(median(found.moved)),
            "seconds": {"median": median(found.seconds), "min": min(found.seconds), "max": max(found.seconds)},
            "offload_target": case.offload_target,
            "verify": case.verify,
            "adapters": case.adapters,
            "optimizer_bytes": self.optimizer_bytes,
            "held_bytes_max": max(found.held),
            "books_bytes": round(median(found.books)),
            "sent_bytes": round(median(found.sent)),
            "moved": found.kinds,
        }


def measure(
    cases: Sequence[Case], *, cycles: int, repetitions: int, work_dir: Path | None = None, say: Say = lambda _: None
) -> list[Measured]:
    """Measure every case, one repetition of each after the other, so that what disturbs the machine hits all alike.

    Args:
        cases: what is measured.
        cycles: turns in each process.
        repetitions: fresh processes of each case.
        work_dir: where temporary folders are made.
        say: told what goes on.

    Raises:
        ConfigError: the machine has too little memory for a case.
        LifecycleError: a measuring process failed.
    """
    for case in cases:
        check_room(case.peak_bytes(), case.name)
    found = [Measured(case) for case in cases]
    for repetition in range(repetitions):
        for one in found:
            say(f"{one.case.name}, repetition {repetition + 1} of {repetitions}")
            with ranks_of(one.case, work_dir) as ranks:
                _run(one, ranks, cycles)
    return found


def check_room(need_bytes: int, what: str) -> None:
    """Refuse what the machine has no memory for: a measurement that swaps, or is killed, says nothing.

    Raises:
        ConfigError: it has not.
    """
    free = host.host_free_bytes()
    if need_bytes > _ROOM * free:
        gib = 1 << 30
        needs = f"{what} takes about {need_bytes / gib:.1f} GiB of memory and {free / gib:.1f} GiB are free"
        raise ConfigError(f"{needs}; use a smaller --base-mib, fewer --ranks or --kept-models")


def _run(measured: Measured, ranks: list[Rank], cycles: int) -> None:
    sizes = ranks[0].first
    measured.base_bytes, measured.trainable_bytes = sizes["base_bytes"], sizes["trainable_bytes"]
    for event in (*BEFORE, *(event for _ in range(cycles) for event in CYCLE)):
        answers = [rank.do(event) for rank in ranks]
        memory = [rank.do("memory") for rank in ranks]
        for name in answers[0]:
            _add(measured.events[name], [one[name] for one in answers], memory)


def _add(row: EventRow, samples: list[dict[str, Any]], memory: list[dict[str, int]]) -> None:
    held, books, backups = (sum(one[key] for one in memory) for key in _SUMMED)
    row.held.append(held)
    row.books.append(books)
    row.files.append(max(one["file_bytes"] for one in memory) + backups)
    row.moved.append(sum(one["moved_bytes"] for one in samples))
    row.sent.append(sum(one["sent_bytes"] for one in samples))
    row.kinds = {
        kind: sum(one["kinds"].get(kind, 0) for one in samples)
        for kind in sorted({kind for one in samples for kind, count_bytes in one["kinds"].items() if count_bytes})
    }
    row.seconds += [one["seconds"] for one in samples]


def machine() -> dict[str, Any]:
    """What it runs on."""
    import psutil  # noqa: PLC0415 - only needed here
    import torch  # noqa: PLC0415 - heavy, and only its version

    return {
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": int(psutil.virtual_memory().total),
        "system": platform.platform(terse=True),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_threads": 1,
        "gpu": "none: the device is emulated on host pages (HostArena)",
    }
