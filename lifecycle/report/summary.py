"""The whole run in little: what the page shows, gathered while the logs are read once."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import lifecycle.diagram.counting as diagram  # by its module: it needs transitions of here
from lifecycle.report.buckets import SMALLEST_S
from lifecycle.report.lanes import Drawn, LaneDrawing
from lifecycle.report.lives import Life, Lives
from lifecycle.report.model import Happening, Lane, Outcome, Transition, Unreadable
from lifecycle.report.refused import Refusals, Refused
from lifecycle.report.tally import Tally, clocks
from states.run_counts import RunCounts

BUCKETS_MOST: Final = 1200
"""Of one lane; a wide screen has about as many points."""
BUCKETS_OF_ALL: Final = 24_000
"""Of all lanes: with more lanes each has fewer."""
BUCKETS_LEAST: Final = 60
SLOWEST_MOST: Final = 50
SHOWN_MOST: Final = 300
"""Rows of a table of the page that has a row for each of something; the rest is counted."""
KINDS_MOST: Final = 300
"""Names of a log that are told apart: of events, edges and guards there are fewer, unless the log is made up."""
OTHERS: Final = "(others)"


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
        began_s: the first time in any log, seconds since 1970, by the clock by which lanes are drawn.
        ended_s: the last one.
        records: how many could be read.
        unreadable: by lane, how many lines could not.
        tallies: what became of each lane.
        clocks: seconds by which a lane's clock is ahead of that of the first of its run and model, where it is another.
        kinds: (event, edge) to what all such transitions came to.
        outcomes: how many transitions of all lanes came to what.
        slowest: the slowest transitions that moved or failed, slowest first.
        failures: transitions that failed or have no end: the first ones of each rank, by time.
        failed: how many there are of them all.
        refusals: refused events, those that are alike together, the most frequent first.
        refused: how many there are of them all.
        refused_apart: how many of them are in none of ``refusals``, as there are too many kinds.
        guards: how often each guard did not hold.
        lives: of adapters, the last ones that ended and those that have not, as they began.
        lived: how many there are of them all.
        diagram: how often each edge was taken, and what was refused where.
    """

    lanes: tuple[Drawn, ...]
    began_s: float
    ended_s: float
    records: int
    unreadable: Mapping[Lane, int]
    tallies: Mapping[Lane, Tally]
    clocks: Mapping[Lane, float]
    kinds: Mapping[tuple[str, str], Kind]
    outcomes: Mapping[Outcome, int]
    slowest: tuple[Placed, ...]
    failures: tuple[Placed, ...]
    failed: int
    refusals: tuple[Refused, ...]
    refused: int
    refused_apart: int
    guards: Mapping[str, int]
    lives: tuple[Life, ...]
    lived: int
    diagram: RunCounts


class Summary:
    """Gathers a report. What it holds does not grow with the length of the logs.

    Args:
        lanes_count: how many logs there are.
    """

    def __init__(self, lanes_count: int) -> None:
        self._buckets = max(BUCKETS_LEAST, min(BUCKETS_MOST, BUCKETS_OF_ALL // max(1, lanes_count)))
        self._drawings: dict[Lane, LaneDrawing] = {}
        self._tallies: dict[Lane, Tally] = {}
        self._lives: dict[Lane, Lives] = {}
        self._models: set[tuple[str, str]] = set()
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._slowest: list[tuple[float, int, Placed]] = []
        self._failures: dict[Lane, list[Placed]] = {}
        self._failures_most = max(1, SHOWN_MOST // max(1, lanes_count))
        self._refusals = Refusals()
        self._guards: Counter[str] = Counter()
        self._unreadable: Counter[Lane] = Counter()
        self._ended_lives: deque[Life] = deque(maxlen=SHOWN_MOST)
        self._counted = Counter[str]()
        self._diagram = diagram.RunCounter()

    def begin(self, lane: Lane) -> None:
        """A log begins. Of ranks of one model the first one tells the adapters' lives."""
        self._drawings[lane] = LaneDrawing(lane, self._buckets)
        self._tallies[lane] = Tally()
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
        self._tallies[lane].take(happening)
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
        self._ended_lives.extend(ended)
        return ended

    def _transition(self, placed: Placed) -> None:
        one = placed.transition
        self._diagram.see(one)
        if one.outcome in {Outcome.MOVED, Outcome.FAILED}:
            self._count(one)
            entry = (one.duration_s, -self._counted["timed"], placed)
            self._counted["timed"] += 1
            push = heapq.heappush if len(self._slowest) < SLOWEST_MOST else heapq.heappushpop
            push(self._slowest, entry)
        if one.outcome in {Outcome.FAILED, Outcome.UNFINISHED}:
            self._counted["failed"] += 1
            kept = self._failures.setdefault(placed.lane, [])
            kept.extend([placed] if len(kept) < self._failures_most else [])
        elif one.outcome is Outcome.REFUSED:
            self._refusals.take(placed.lane, one)
            for verdict in one.failed:
                many = verdict.guard not in self._guards and len(self._guards) >= KINDS_MOST
                self._guards[OTHERS if many else verdict.guard] += 1

    def _count(self, one: Transition) -> None:
        key = (one.trigger, one.edge)
        if key not in self._kinds and len(self._kinds) >= KINDS_MOST:
            key = (OTHERS, "")
        kind = self._kinds.setdefault(key, Kind())
        kind.times += 1
        kind.total_s += one.duration_s
        kind.longest_s = max(kind.longest_s, one.duration_s)
        kind.most_bytes = max(kind.most_bytes, sum(one.moved.values()))
        kind.moved.update(one.moved)
        kind.outcomes[one.outcome] += 1

    def _drawn(self, clocks_s: Mapping[Lane, float]) -> tuple[Drawn, ...]:
        """All lanes in buckets of one width, of which there are not many from the first lane to the last one."""
        spans = [
            (began_s - clocks_s.get(lane, 0.0), ended_s - clocks_s.get(lane, 0.0))
            for lane, one in self._drawings.items()
            for began_s, ended_s in [one.span_s() or (0.0, 0.0)]
            if one.span_s() is not None
        ]
        all_s = max((end for _, end in spans), default=0.0) - min((began for began, _ in spans), default=0.0)
        width_s = max((one.widest_s() for one in self._drawings.values()), default=SMALLEST_S)
        while all_s / width_s > BUCKETS_MOST:
            width_s *= 2
        return tuple(one.drawn(width_s, clocks_s.get(lane, 0.0)) for lane, one in self._drawings.items())

    def report(self) -> Report:
        """What was gathered."""
        clocks_s = clocks(self._tallies.items())
        lanes = self._drawn(clocks_s)
        timed = [one for one in lanes if one.ended_s]
        return Report(
            lanes=lanes,
            began_s=min((one.began_s for one in timed), default=0.0),
            ended_s=max((one.ended_s for one in timed), default=0.0),
            records=self._counted["records"],
            unreadable=dict(self._unreadable),
            tallies=self._tallies,
            clocks=clocks_s,
            kinds=dict(sorted(self._kinds.items(), key=lambda one: (-one[1].total_s, one[0]))),
            outcomes=sum((one.outcomes for one in self._tallies.values()), Counter[Outcome]()),
            slowest=tuple(placed for _, _, placed in sorted(self._slowest, key=lambda one: one[:2], reverse=True)),
            failures=tuple(sorted(chain(*self._failures.values()), key=lambda one: one.transition.ended_s)),
            failed=self._counted["failed"],
            refusals=self._refusals.groups(),
            refused=self._refusals.times,
            refused_apart=self._refusals.apart,
            guards=dict(self._guards.most_common()),
            lives=tuple(sorted(self._ended_lives, key=lambda one: (one.loaded_s, one.adapter))),
            lived=self._counted["lived"],
            diagram=self._diagram.counts(),
        )
