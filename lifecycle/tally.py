"""How the events of a run ended, counted. The recorder counts what it records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Self


@dataclass(slots=True)
class Tally:
    """Counts since the trainer was attached. The keys are the project's own names: there are few, and always as many.

    Attributes:
        moved: by (event, edge): it took the edge and is committed.
        unchanged: by event: what was asked for already held.
        refused: by (event or call, guard): one for each guard that did not hold.
        failed: by (event, effect): an effect failed, whether it was undone or the trainer is faulted.
    """

    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    unchanged: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def copy(self) -> Self:
        """The counts of now, which no later event changes."""
        return type(self)(self.moved.copy(), self.unchanged.copy(), self.refused.copy(), self.failed.copy())
