"""The whole run in little: what the page shows, gathered while the logs are read once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from lifecycle.report.lanes import Drawn, LaneDrawing
from lifecycle.report.lives import Life, Lives
from lifecycle.report.model import Happening, Lane, Outcome, Transition, Unreadable

BUCKETS_MOST: Final = 1200
"""Of one lane; a wide screen has about as many points."""
BUCKETS_OF_ALL: Final = 24_000
"""Of all lanes: with more lanes each has fewer."""
BUCKETS_LEAST: Final = 60
SLOWEST_MOST: Final = 50
SHOWN_MOST: Final = 300
"""Rows of a table of the page that has a row for each of something; the rest is counted."""


@dataclass(slots=True)
class Kind:
    """All transitions of one event and edge.

    Attributes:
        times: how many.
        total_s: how long all of them took.
        longest_s: how long the longest took.
        most_bytes: moved by one of them, at most.
        moved: bytes moved by all of them, by kind.
        outcomes: how many came to what.
    """

    times: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    most_bytes: int = 0
    moved: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Placed:
    """A transition, and whose it was."""

    lane: Lane
    transition: Transition


@dataclass(frozen=True, slots=True)
class Report:
    """What the page shows.

    Attributes:
        lanes: what is drawn of each log, in the order in which they were given; all in buckets of the same width.
        began_s: the first time in any log, seconds since 1970.
        ended_s: the last one.
        records: how many could be read.
        unreadable: by lane, how many lines could not.
        kinds: (event, edge) to what all such transitions came to.
        slowest: the slowest transitions that moved or failed, slowest first.
        refusals: refused events, and transitions that failed or have no end: the first ones of each rank, by time.
        refused: how many there are of them all.
        guards: how often each guard did not hold.
        lives: of adapters, the first ones, as they began.
        lived: how many there are of them all.
    """

    lanes: tuple[Drawn, ...]
    began_s: float
    ended_s: float
    records: int
    unreadable: Mapping[Lane, int]
    kinds: Mapping[tuple[str, str], Kind]
    slowest: tuple[Placed, ...]
    refusals: tuple[Placed, ...]
    refused: int
    guards: Mapping[str, int]
    lives: tuple[Life, ...]
    lived: int


class Summary:
    """Gathers a report. What it holds does not grow with the length of the logs.

    Args:
        lanes_count: how many logs there are.
    """

    def __init__(self, lanes_count: int) -> None:
        self._buckets = max(BUCKETS_LEAST, min(BUCKETS_MOST, BUCKETS_OF_ALL // max(1, lanes_count)))
        self._drawings: dict[Lane, LaneDrawing] = {}
        self._lives: dict[Lane, Lives] = {}
        self._models: set[tuple[str, str]] = set()
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._slowest: list[tuple[float, int, Placed]] = []
        self._refusals: dict[Lane, list[Placed]] = {}
        self._refusals_most = max(1, SHOWN_MOST // max(1, lanes_count))
        self._guards: Counter[str] = Counter()
        self._unreadable: Counter[Lane] = Counter()
        self._ended_lives: list[Life] = []
        self._counted = Counter[str]()

    def begin(self, lane: Lane) -> None:
        """A log begins. Of ranks of one model the first one tells the adapters' lives."""
        self._drawings[lane] = LaneDrawing(lane, self._buckets)
        if (lane.run, lane.model) not in self._models:
            self._lives[lane] = Lives(lane)
        self._models.add((lane.run, lane.model))

    def take(self, lane: Lane, happening: Happening) -> list[Life]:
        """Add what happened.

        Returns:
            The lives of adapters that end with it.
        """
        if isinstance(happening, Unreadable):
            self._unreadable[lane] += 1
            return []
        self._drawings[lane].take(happening)
        if isinstance(happening, Transition):
            self._transition(Placed(lane, happening))
        return self._keep(self._lives[lane].take(happening) if lane in self._lives else ())

    def end(self, lane: Lane, records: int) -> list[Life]:
        """A log of so many records is at its end.

        Returns:
            The lives of adapters that have not ended.
        """
        self._counted["records"] += records
        return self._keep(self._lives[lane].rest() if lane in self._lives else ())

    def _keep(self, lives: Iterable[Life]) -> list[Life]:
        ended = list(lives)
        self._counted["lived"] += len(ended)
        self._ended_lives.extend(ended[: SHOWN_MOST - len(self._ended_lives)])
        return ended

    def _transition(self, placed: Placed) -> None:
        one = placed.transition
        if one.outcome in {Outcome.MOVED, Outcome.FAILED}:
            self._count(one)
            entry = (one.duration_s, -self._counted["timed"], placed)
            self._counted["timed"] += 1
            push = heapq.heappush if len(self._slowest) < SLOWEST_MOST else heapq.heappushpop
            push(self._slowest, entry)
        if one.outcome in {Outcome.REFUSED, Outcome.FAILED, Outcome.UNFINISHED}:
            self._counted["refused"] += 1
            kept = self._refusals.setdefault(placed.lane, [])
            kept.extend([placed] if len(kept) < self._refusals_most else [])
            self._guards.update(verdict.guard for verdict in one.failed)

    def _count(self, one: Transition) -> None:
        kind = self._kinds.setdefault((one.trigger, one.edge), Kind())
        kind.times += 1
        kind.total_s += one.duration_s
        kind.longest_s = max(kind.longest_s, one.duration_s)
        kind.most_bytes = max(kind.most_bytes, sum(one.moved.values()))
        kind.moved.update(one.moved)
        kind.outcomes[one.outcome] += 1

    def report(self) -> Report:
        """What was gathered."""
        width_s = max((one.widest_s() for one in self._drawings.values()), default=1.0)
        lanes = tuple(one.drawn(width_s) for one in self._drawings.values())
        timed = [one for one in lanes if one.ended_s]
        return Report(
            lanes=lanes,
            began_s=min((one.began_s for one in timed), default=0.0),
            ended_s=max((one.ended_s for one in timed), default=0.0),
            records=self._counted["records"],
            unreadable=dict(self._unreadable),
            kinds=dict(sorted(self._kinds.items())),
            slowest=tuple(placed for _, _, placed in sorted(self._slowest, key=lambda one: one[:2], reverse=True)),
            refusals=tuple(sorted(chain(*self._refusals.values()), key=lambda one: one.transition.ended_s)),
            refused=self._counted["refused"],
            guards=dict(self._guards.most_common()),
            lives=tuple(sorted(self._ended_lives, key=lambda one: (one.loaded_s, one.adapter))),
            lived=self._counted["lived"],
        )
