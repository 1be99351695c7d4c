"""What became of one rank: how often what happened, in which state it ended, and by which clock it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from lifecycle.report.model import Happening, Lane, Noted, Opened, Outcome, Transition
from states import TrainerEvent, TrainerState

COMPARED: Final = 32
"""Transitions at the beginning of a log whose times are compared with those of other ranks."""
COMPARED_LEAST: Final = 3
CLOCK_S: Final = 5.0
"""Ranks that act together begin within less."""


@dataclass(slots=True)
class Turns:
    """Turns of the trainer and the engine: from one time that the trainer went to sleep to the next.

    Attributes:
        times: how many.
        total_s: how long all of them took.
        longest_s: how long the longest took.
        longest_at_s: when that began, seconds since 1970.
        slept_s: when the trainer last went to sleep, in this session.
    """

    times: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    longest_at_s: float = 0.0
    slept_s: float | None = None

    def sleeps(self, time_s: float) -> None:
        """A turn begins, and ends the one before."""
        if self.slept_s is not None:
            lasted_s = time_s - self.slept_s
            self.times += 1
            self.total_s += lasted_s
            if lasted_s > self.longest_s:
                self.longest_s, self.longest_at_s = lasted_s, self.slept_s
        self.slept_s = time_s


@dataclass(slots=True)
class Tally:
    """Counted while a log is read. Times are seconds since 1970, by the rank's own clock.

    Attributes:
        outcomes: how many transitions came to what.
        restarts: sessions after the first.
        state: that the last transition left; None where the log tells of none.
        began_s: the first time; None before any.
        ended_s: the last time.
        last: the last transition, if it has no end.
        turns: how often it took turns with the engine, and how long they took.
        first_s: of the first transitions, (number, event) to when it began.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    restarts: int = 0
    state: TrainerState | None = None
    began_s: float | None = None
    ended_s: float = 0.0
    last: Transition | None = None
    turns: Turns = field(default_factory=Turns)
    first_s: dict[tuple[int, str], float] = field(default_factory=dict)

    def take(self, happening: Happening) -> None:
        """Count what happened."""
        if isinstance(happening, Transition):
            self._transition(happening)
            self._seen(happening.ended_s)
        elif isinstance(happening, Opened):
            if happening.restarted:
                self.restarts += 1
                self.turns.slept_s = None
            self._seen(happening.time_s)
        elif isinstance(happening, Noted):
            self._seen(happening.time_s)

    def _seen(self, time_s: float) -> None:
        self.began_s = time_s if self.began_s is None else self.began_s
        self.ended_s = time_s

    def _transition(self, one: Transition) -> None:
        self.outcomes[one.outcome] += 1
        if one.outcome is Outcome.MOVED and one.trigger == TrainerEvent.SLEEP:
            self.turns.sleeps(one.began_s)
        ended = one.outcome is not Outcome.UNFINISHED
        self.last = None if ended else one
        self.state = one.target if ended else one.source
        if len(self.first_s) < COMPARED and not self.restarts:
            self.first_s.setdefault((one.number, one.trigger), one.began_s)


def clocks(tallies: Iterable[tuple[Lane, Tally]]) -> dict[Lane, float]:
    """Seconds by which a rank's clock is ahead of that of the first rank of its run and model, where it is another one.

    The same transitions tell it: the differences are alike, and larger than ranks that act together are apart.
    """
    firsts: dict[tuple[str, str], Tally] = {}
    ahead_s: dict[Lane, float] = {}
    for lane, tally in tallies:
        first = firsts.setdefault((lane.run, lane.model), tally)
        apart = [began_s - first.first_s[key] for key, began_s in tally.first_s.items() if key in first.first_s]
        if len(apart) < COMPARED_LEAST:
            continue
        middle_s = median(apart)
        if abs(middle_s) > CLOCK_S and max(apart) - min(apart) < abs(middle_s) / 2:
            ahead_s[lane] = middle_s
    return ahead_s
