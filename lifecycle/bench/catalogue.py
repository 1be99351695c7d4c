"""The figures by name, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from lifecycle.bench import figures_adapters, figures_audit, figures_handover, figures_memory, figures_time
from lifecycle.bench.findings import Finding, Session
from lifecycle.errors import ConfigError, LifecycleError

FIGURES: Final[dict[str, Callable[[Session], list[Finding]]]] = {
    "held-offloaded": figures_memory.held_offloaded,
    "held-kept-models": figures_memory.held_kept_models,
    "shared-file": figures_memory.shared_file,
    "moved-trained-sync": figures_memory.moved_trained_sync,
    "moved-sleep-file": figures_memory.moved_sleep_file,
    "handover": figures_handover.handover,
    "base-size": figures_time.base_size,
    "weights-2000": figures_time.weights_2000,
    "arena": figures_time.arena,
    "overhead": figures_time.overhead,
    "reconcile-one": figures_adapters.reconcile_one,
    "registry": figures_adapters.registry,
    "audit": figures_audit.audit,
}
"""What ``--figure`` takes; ``--check`` takes them all."""


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The names, if all of them are figures.

    Raises:
        ConfigError: one of them is none.
    """
    found = tuple(dict.fromkeys(names))
    unknown = [name for name in found if name not in FIGURES]
    if unknown:
        raise ConfigError(f"--figure is {', '.join(unknown)}; the figures are {', '.join(FIGURES)}")
    return found


def find(session: Session, names: Iterable[str]) -> list[Finding]:
    """Measure these figures. One that cannot be measured here counts as failed, and the others go on."""
    findings: list[Finding] = []
    for name in names:
        try:
            findings += FIGURES[name](session)
        except LifecycleError as error:
            findings.append(Finding(name, "could not be measured", "a measurement", str(error), ok=False))
    return findings
