"""Refusals, those that are alike together: a loop that asks again and again is one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lifecycle.report.model import FailedVerdict, Lane, Transition

GROUPS_MOST: Final = 300
"""Kinds of refusals that are told apart; a log may hold any texts."""


@dataclass(slots=True)
class Refused:
    """Events that were refused for the same reasons in the same state.

    Attributes:
        trigger: the event.
        state: in which it was asked for.
        failed: the guards that did not hold.
        problem: what else was told.
        lane: whose the first one was.
        first_s: when that was, seconds since 1970.
        last_s: when the last one was.
        times: how many.
        lanes: on how many ranks.
    """

    trigger: str
    state: str
    failed: tuple[FailedVerdict, ...]
    problem: str
    lane: Lane
    first_s: float
    last_s: float
    times: int = 0
    lanes: set[Lane] = field(default_factory=set)


class Refusals:
    """Gathers them.

    Attributes:
        times: how many there were.
        apart: how many of them were of kinds that came too late to be told apart.
    """

    def __init__(self) -> None:
        self.times = 0
        self.apart = 0
        self._groups: dict[tuple[object, ...], Refused] = {}

    def take(self, lane: Lane, one: Transition) -> None:
        """Add a refused event."""
        self.times += 1
        key = (one.trigger, one.source, one.failed, one.problem)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= GROUPS_MOST:
                self.apart += 1
                return
            now_s = one.ended_s
            group = Refused(one.trigger, str(one.source), one.failed, one.problem, lane, now_s, now_s)
            self._groups[key] = group
        if one.ended_s < group.first_s:
            group.first_s, group.lane = one.ended_s, lane
        group.last_s = max(group.last_s, one.ended_s)
        group.times += 1
        group.lanes.add(lane)

    def groups(self) -> tuple[Refused, ...]:
        """The most frequent first."""
        return tuple(sorted(self._groups.values(), key=lambda one: (-one.times, one.first_s)))
