"""What is drawn of one log: states, bytes and copies over time, in buckets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lifecycle.places import DEVICE, HOST_PLACES, OTHERS, PLACES
from lifecycle.report.buckets import Buckets, Cell
from lifecycle.report.model import Happening, Lane, Noted, Opened, Outcome, Transition
from states import TrainerEvent, TrainerState

IN_TRANSITION: Final = "in transition"
MEMORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "device": (DEVICE,),
    "host": HOST_PLACES,
    "files and buffers": tuple(place for place in PLACES if place not in {DEVICE, *HOST_PLACES}),
}
"""Which places are drawn together."""

REFUSED: Final = "refused"
FAILED: Final = "failed"
MARKS: Final[Mapping[Outcome, str]] = {
    Outcome.REFUSED: REFUSED,
    Outcome.FAILED: FAILED,
    Outcome.UNFINISHED: FAILED,
}
"""What is marked where it happened; what has no end is with what failed."""
TAGS_MOST: Final = 1000
"""Of a place, whose most bytes are kept apart: a log may hold any names."""

Held = Mapping[tuple[str, str], int]
"""(place, tag) to bytes."""


@dataclass(frozen=True, slots=True)
class Most:
    """The moment in which a memory held the most.

    Attributes:
        size_bytes: how much.
        time_s: when, seconds since 1970, by the rank's own clock.
        held: what that was.
    """

    size_bytes: int = 0
    time_s: float = 0.0
    held: Held = field(default_factory=dict)


@dataclass(slots=True)
class HeldCell:
    """What was held in a bucket.

    Attributes:
        peak: at the moment of the most, of those that a record told; None where none did.
        last: at its end; None as before.
    """

    peak: Held | None = None
    last: Held | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """One lane, as it is drawn. Keys of cells are numbers of buckets, counted from 1970.

    Attributes:
        lane: whose log it is.
        width_s: of a bucket.
        states: bucket to state, or :data:`IN_TRANSITION`, to seconds.
        held: memory to bucket to what was held.
        moved: bucket to kind to bytes.
        marks: bucket to a value of :data:`MARKS` to how often.
        peaks: the most bytes of each place and tag, exact.
        most: the most of each memory, exact.
        began_s: the first time in the log, seconds since 1970, by the clock by which all lanes are drawn.
        ended_s: the last one.
    """

    lane: Lane
    width_s: float
    states: Mapping[int, Mapping[str, float]]
    held: Mapping[str, Mapping[int, HeldCell]]
    moved: Mapping[int, Mapping[str, float]]
    marks: Mapping[int, Mapping[str, float]]
    peaks: Held
    most: Mapping[str, Most]
    began_s: float
    ended_s: float


Amounts = dict[str, float]
"""Name to seconds, or to bytes."""


def _no_amounts() -> Amounts:
    return defaultdict(float)


def _add(earlier: Amounts, later: Mapping[str, float]) -> None:
    for name, amount in later.items():
        earlier[name] += amount


def _join_held(earlier: HeldCell, later: HeldCell) -> None:
    if later.peak is not None and (earlier.peak is None or _sum(later.peak) > _sum(earlier.peak)):
        earlier.peak = later.peak
    earlier.last = later.last if later.last is not None else earlier.last


def _sum(held: Held) -> int:
    return sum(held.values())


@dataclass(slots=True)
class _State:
    """Since when the lane has been in a state that the next record tells."""

    since_s: float
    seen_s: float
    now: TrainerState | None = None


class LaneDrawing:
    """Gathers what is drawn of one lane.

    Args:
        lane: whose log it is.
        most: how many buckets, at most.
    """

    def __init__(self, lane: Lane, most: int) -> None:
        self._lane = lane
        self._states: Buckets[Amounts] = Buckets(most, _no_amounts, _add)
        self._moved: Buckets[Amounts] = Buckets(most, _no_amounts, _add)
        self._marks: Buckets[Amounts] = Buckets(most, _no_amounts, _add)
        self._held = {memory: Buckets(most, HeldCell, _join_held) for memory in MEMORIES}
        self._peaks: dict[tuple[str, str], int] = {}
        self._most = {memory: Most() for memory in MEMORIES}
        self._state: _State | None = None
        self._began_s: float | None = None
        self._ended_s = 0.0

    def take(self, happening: Happening) -> None:
        """Add what happened."""
        if isinstance(happening, Opened):
            self._opened(happening)
        elif isinstance(happening, Transition):
            self._transition(happening)
        elif isinstance(happening, Noted):
            self._seen(happening.time_s)

    def _seen(self, time_s: float) -> _State:
        if self._began_s is None:
            self._began_s = time_s
        if self._state is None:
            self._state = _State(time_s, time_s)
        self._state.seen_s = self._ended_s = time_s
        return self._state

    def _opened(self, opened: Opened) -> None:
        if opened.restarted:
            self._hold({}, max(self._ended_s, 0.0) or opened.time_s)
            self._end_session()
        self._seen(opened.time_s)

    def _end_session(self) -> None:
        """What state it is in until the next session is not known."""
        if self._state is not None and self._state.now is not None:
            self._spend(self._state.now, self._state.since_s, self._state.seen_s)
        self._state = None

    def _transition(self, one: Transition) -> None:
        state = self._seen(one.ended_s)
        began_s = min(max(one.began_s, state.since_s), one.ended_s)
        self._spend(one.source, state.since_s, began_s)
        reconciles = one.trigger == TrainerEvent.RECONCILE_ADAPTERS  # what changed nothing took no time
        self._spend(TrainerState.ADAPTER_RECONCILING if reconciles else one.source, began_s, one.ended_s)
        self._spend(IN_TRANSITION, began_s, one.ended_s)
        ended = one.outcome is not Outcome.UNFINISHED
        self._state = _State(one.ended_s, one.ended_s, one.target) if ended else None
        if one.held is not None:
            self._hold(one.held, one.ended_s)
        if one.moved:
            _add(self._moved.at(one.ended_s), one.moved)
        if one.outcome in MARKS:
            self._marks.at(one.ended_s)[MARKS[one.outcome]] += 1

    def _spend(self, state: str, began_s: float, ended_s: float) -> None:
        for cell, lasted_s in self._states.over(began_s, ended_s):
            cell[state] += lasted_s

    def _hold(self, held: Mapping[str, Mapping[str, int]], time_s: float) -> None:
        for memory, places in MEMORIES.items():
            now = {(place, tag): size for place in places for tag, size in held.get(place, {}).items()}
            _join_held(self._held[memory].at(time_s), HeldCell(now, now))
            size_bytes = _sum(now)
            if size_bytes > self._most[memory].size_bytes:
                self._most[memory] = Most(size_bytes, time_s, now)
            for (place, tag), size in now.items():
                many = (place, tag) not in self._peaks and len(self._peaks) >= TAGS_MOST
                what = (place, OTHERS if many else tag)
                self._peaks[what] = max(size, self._peaks.get(what, 0))

    def _all(self) -> tuple[Buckets[Amounts] | Buckets[HeldCell], ...]:
        return (self._states, self._moved, self._marks, *self._held.values())

    def widest_s(self) -> float:
        """The width of its widest buckets."""
        return max(one.width_s for one in self._all())

    def span_s(self) -> tuple[float, float] | None:
        """The first and the last time, by its own clock; None before any."""
        return None if self._began_s is None else (self._began_s, self._ended_s)

    def drawn(self, width_s: float, ahead_s: float = 0.0) -> Drawn:
        """The lane as it is drawn.

        Args:
            width_s: of buckets, at least :meth:`widest_s`.
            ahead_s: by which its clock is ahead of the one by which all lanes are drawn.
        """
        self._end_session()
        for one in self._all():
            one.widen(width_s)
        buckets = round(ahead_s / width_s)
        began_s, ended_s = self.span_s() or (0.0, 0.0)
        return Drawn(
            lane=self._lane,
            width_s=width_s,
            states=_earlier(self._states.cells(), buckets),
            held={memory: _earlier(one.cells(), buckets) for memory, one in self._held.items()},
            moved=_earlier(self._moved.cells(), buckets),
            marks=_earlier(self._marks.cells(), buckets),
            peaks=dict(sorted(self._peaks.items())),
            most=self._most,
            began_s=began_s - buckets * width_s,
            ended_s=ended_s - buckets * width_s,
        )


def _earlier(cells: Mapping[int, Cell], buckets: int) -> dict[int, Cell]:
    return {at - buckets: cell for at, cell in cells.items()}
