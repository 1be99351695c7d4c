"""What a figure must be, and what it was found to be. Every limit is a number in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from lifecycle.bench.measure import Measured, Say, measure
from lifecycle.bench.options import MIB, BenchOptions, Case

LIMITS: Final[dict[str, float]] = {
    "held-offloaded": 1.02,
    "held-kept-models": 1.05,
    "held-kept-models-duplicate": 4.0,
    "shared-file": 0.05,
    "moved-trained-sync": 0.0,
    "moved-sleep-file": 1.0,
    "handover": 0.05,
    "base-size": 1.2,
    "weights-open-ms": 2.0,
    "weights-views": 2.0,
    "arena": 0.8,
    "overhead": 6.0,
    "reconcile-one": 2.0,
    "registry-ms": 50.0,
    "audit-records-per-s": 20_000.0,
}
"""The limits, as ratios unless the name ends with its unit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure against its limit.

    Attributes:
        figure: its name, as ``--figure`` takes it.
        what: what was measured.
        limit: what it must be.
        measured: what it was.
        ok: whether it is so.
    """

    figure: str
    what: str
    limit: str
    measured: str
    ok: bool

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)


class Session:
    """One run of the bench: measures each case once, however many figures look at it.

    Args:
        options: sizes and repetitions.
        say: told what goes on.
    """

    def __init__(self, options: BenchOptions, say: Say = lambda _: None) -> None:
        self.options = options
        self.say = say
        self._found: dict[Case, Measured] = {}

    def measured(self, cases: Sequence[Case]) -> list[Measured]:
        """The measurements of these cases; those that are missing are made now, interleaved.

        Raises:
            ConfigError: the machine has too little memory.
            LifecycleError: a measuring process failed.
        """
        options = self.options
        missing = [case for case in cases if case not in self._found]
        for one in measure(
            missing,
            cycles=options.cycles,
            repetitions=options.repetitions,
            work_dir=options.work_dir,
            say=self.say,
        ):
            self._found[one.case] = one
        return [self._found[case] for case in cases]

    def on_cpu(self, *names: str, kept_models: int = 0, ranks: int = 1) -> list[Measured]:
        """The same for strategies that offload to cpu, with these numbers of models and ranks."""
        cases = (self.options.case(name, kept_models=kept_models, ranks=ranks) for name in names)
        return self.measured([replace(case, offload_target="cpu") for case in cases])


def mib(size_bytes: float) -> str:
    """Bytes in MiB, as text."""
    return f"{size_bytes / MIB:,.1f} MiB"


def most(figure: str, what: str, measured_bytes: int, limit_bytes: float, *, note: str = "") -> Finding:
    """A finding on bytes that may not be more than a limit."""
    ok = measured_bytes <= limit_bytes
    return Finding(figure, what, f"≤ {mib(limit_bytes)}", mib(measured_bytes) + (f" ({note})" if note else ""), ok)
