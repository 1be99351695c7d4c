"""Counts what the records of a run say, of one log or of one a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, TypeVar

from lifecycle.report.model import Outcome, Transition
from states import TrainerState
from states.run_counts import Asked, RunCounts, Told, Tried

KEYS_MAX: Final = 1000
"""So many different things are counted apart, and the rest together: a log may hold any names."""
GUARDS_MAX: Final = 100
"""So many guards of each thing that was refused: more than there are."""
OTHER: Final = "other"

_Key = TypeVar("_Key", bound=Hashable)


class RunCounter:
    """Counts transitions, those of every rank together.

    Attributes:
        seen: how many there were.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._taken: Counter[Told] = Counter()
        self._tried: dict[Outcome, Counter[Tried]] = {}
        self._faulted: Counter[Tried] = Counter()
        self._asked: dict[Outcome, Counter[Asked]] = {}
        self._guards: dict[Asked, Counter[str]] = {}

    def see(self, one: Transition) -> None:
        """Count one more."""
        self.seen += 1
        tried = (str(one.source), one.trigger, one.edge)
        if one.outcome is Outcome.MOVED:
            _count(self._taken, (*tried, str(one.target)), (OTHER, OTHER, OTHER, OTHER))
        elif one.outcome is Outcome.FAILED and one.target is TrainerState.FAULTED:
            _count(self._faulted, tried, (OTHER, OTHER, OTHER))
        elif one.outcome in {Outcome.FAILED, Outcome.UNFINISHED}:
            _count(self._tried.setdefault(one.outcome, Counter()), tried, (OTHER, OTHER, OTHER))
        else:
            asked = _count(self._asked.setdefault(one.outcome, Counter()), tried[:2], (OTHER, OTHER))
            if one.outcome is Outcome.REFUSED:
                guards = self._guards.setdefault(asked, Counter())
                for verdict in one.failed:
                    _count(guards, verdict.guard, OTHER, GUARDS_MAX)

    def counts(self) -> RunCounts:
        """What was counted so far."""
        return RunCounts(
            taken=self._taken,
            undone=self._tried.get(Outcome.FAILED, Counter()),
            faulted=self._faulted,
            unfinished=self._tried.get(Outcome.UNFINISHED, Counter()),
            refused=self._asked.get(Outcome.REFUSED, Counter()),
            guards=self._guards,
            unchanged=self._asked.get(Outcome.UNCHANGED, Counter()),
        )


def _count(counter: Counter[_Key], key: _Key, other: _Key, most: int = KEYS_MAX) -> _Key:
    """Count a key, or among the others where there are too many; the key that was counted."""
    if key not in counter and len(counter) >= most:
        key = other
    counter[key] += 1
    return key
