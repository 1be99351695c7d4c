"""One rank: everything that is shown of it, kept up to date record by record, in bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from typing import Final

from lifecycle.audit.expand import Record
from lifecycle.audit.read import Torn
from lifecycle.report import fields
from lifecycle.report.model import (
    Began,
    Happening,
    Lane,
    Opened,
    Outcome,
    Teller,
    Transition,
    Unreadable,
    lane_of,
)
from lifecycle.watch.engines import EngineWatch
from lifecycle.watch.picture import RankSeen, Refused
from states import TrainerEvent, TrainerState

RECENT_MOST: Final = 100
REFUSED_MOST: Final = 20
SYNCS_MOST: Final = 5
ADAPTERS_MOST: Final = 100
RATE_S: Final = 60.0
_RATE_MOST: Final = 6_000
_EVENTS: Final = frozenset(TrainerEvent)
_DONE: Final = frozenset({Outcome.MOVED, Outcome.FAILED})


@dataclass(slots=True)
class _Known:
    """What changes with a record; the same names as in :class:`~lifecycle.watch.picture.RankSeen`."""

    state: TrainerState | None = None
    since_s: float | None = None
    running: Transition | None = None
    usual_s: float | None = None
    last: Transition | None = None
    died_in: Transition | None = None
    held: Mapping[str, Mapping[str, int]] | None = None
    moved_before: Mapping[str, int] | None = None
    number: int = 0
    records: int = 0
    seen_s: float | None = None
    longest_silence_s: float = 0.0
    unreadable: int = 0
    restarts: int = 0


class RankWatch:
    """Watches one log. It is told records as they are read, and is never asked to go back.

    Args:
        whose: whose log it is.
    """

    def __init__(self, whose: Lane) -> None:
        self._whose = whose
        self._known = _Known()
        self._teller = Teller()
        self._engines = EngineWatch()
        self._recent: deque[Transition] = deque(maxlen=RECENT_MOST)
        self._refused: dict[tuple[str, tuple[str, ...]], Refused] = {}
        self._syncs_s: deque[float] = deque(maxlen=SYNCS_MOST)
        self._times_s: deque[float] = deque(maxlen=_RATE_MOST)
        self._longest_s: dict[str, float] = {}
        self._moved: Counter[str] = Counter()

    def see(self, line: Record | Torn) -> list[Happening]:
        """One more line.

        Returns:
            What it says.
        """
        found = [*self._teller.see(line)]
        for one in found:
            self._take(one)
        last = found[-1]
        if not isinstance(line, Torn) and not isinstance(last, Unreadable) and self._known.seen_s is not None:
            try:
                if isinstance(last, Opened) and last.restarted:
                    self._whose = lane_of(self._whose.index, self._whose.file, line)  # a run may have another name now
                self._engines.see(line, self._known.seen_s)
                self._known.records = fields.count(line.get("sequence"))
            except (fields.NotOfARecordError, RecursionError):
                self._take(Unreadable())
        return found

    def picture(self, unfinished_bytes: int = 0) -> RankSeen:
        """Everything that is known of it.

        Args:
            unfinished_bytes: size of a last line that has no end.
        """
        adapters, count = self._engines.adapters(ADAPTERS_MOST)
        return RankSeen(
            whose=self._whose,
            **{one.name: getattr(self._known, one.name) for one in fields_of(_Known)},
            recent=tuple(self._recent),
            refused=tuple(reversed(self._refused.values())),
            moved=dict(self._moved),
            adapters=adapters,
            adapters_count=count,
            engines=self._engines.engines(),
            syncs_s=tuple(self._syncs_s),
            records_per_s=self._rate(),
            unfinished_bytes=unfinished_bytes,
        )

    def _take(self, one: Happening) -> None:
        if isinstance(one, Unreadable):
            self._known.unreadable += 1
        elif isinstance(one, Transition):
            self._time(one.ended_s)
            self._transition(one)
        elif isinstance(one, Began):
            self._time(one.time_s)
            self._began(one.transition)
        else:
            self._time(one.time_s)
            if isinstance(one, Opened) and one.restarted:
                self._restart()

    def _restart(self) -> None:
        """Another process: what the one before held is gone, and its state says nothing any more."""
        before = self._known
        self._known = _Known(
            died_in=before.died_in,
            records=before.records,
            seen_s=before.seen_s,
            longest_silence_s=before.longest_silence_s,
            unreadable=before.unreadable,
            restarts=before.restarts + 1,
        )
        self._moved.clear()
        self._refused.clear()

    def _time(self, time_s: float) -> None:
        silence_s = time_s - (self._known.seen_s if self._known.seen_s is not None else time_s)
        self._known.seen_s = time_s
        self._known.longest_silence_s = max(self._known.longest_silence_s, silence_s)
        self._times_s.append(time_s)
        while self._times_s[0] < time_s - RATE_S:
            self._times_s.popleft()

    def _rate(self) -> float:
        if not self._times_s:
            return 0.0
        over_s = RATE_S if len(self._times_s) < _RATE_MOST else max(1.0, self._times_s[-1] - self._times_s[0])
        return len(self._times_s) / over_s

    def _began(self, begun: Transition) -> None:
        self._known.running = begun
        self._known.number = begun.number
        self._known.usual_s = self._longest_s.get(begun.trigger)
        self._known.died_in = None
        self._is_in(begun.source, None)

    def _transition(self, one: Transition) -> None:
        if one.outcome is Outcome.UNFINISHED:
            self._known.running = None
            self._known.died_in = one
            self._recent.append(one)
            return
        if one.outcome in _DONE:
            self._known.running = None
        self._known.number = one.number
        self._known.died_in = None
        self._is_in(one.target, one.ended_s if one.target is not one.source else None)
        if one.outcome is not Outcome.UNCHANGED:
            self._recent.append(one)
        if one.outcome is Outcome.REFUSED:
            self._refuse(one)
        elif one.outcome in _DONE:
            self._done(one)

    def _is_in(self, state: TrainerState, since_s: float | None) -> None:
        if state is not self._known.state or since_s is not None:
            self._known.state = state
            self._known.since_s = since_s

    def _refuse(self, one: Transition) -> None:
        key = one.trigger, tuple(verdict.guard for verdict in one.failed)
        before = self._refused.pop(key, None)
        times = before.times + 1 if before is not None and not before.is_settled else 1
        self._refused[key] = Refused(one, times, is_settled=False)
        while len(self._refused) > REFUSED_MOST:
            del self._refused[next(iter(self._refused))]

    def _done(self, one: Transition) -> None:
        self._known.last = one
        if one.held is not None:
            self._known.held = one.held
        self._moved.update(one.moved)
        if one.trigger in _EVENTS:
            self._longest_s[one.trigger] = max(one.duration_s, self._longest_s.get(one.trigger, 0.0))
        if one.outcome is Outcome.MOVED:
            for key, refused in self._refused.items():
                if key[0] == one.trigger:
                    self._refused[key] = replace(refused, is_settled=True)
        if one.trigger == TrainerEvent.UPDATE_WEIGHTS and one.outcome is Outcome.MOVED:
            self._syncs_s.append(one.duration_s)
        if _ends_a_turn(one):
            self._known.moved_before = dict(self._moved)
            self._moved.clear()


def _ends_a_turn(one: Transition) -> bool:
    """A turn to the engines and back ends with the wake; of a trainer that never sleeps, with the push."""
    if one.outcome is not Outcome.MOVED:
        return False
    pushed_awake = one.trigger == TrainerEvent.UPDATE_WEIGHTS and one.source is TrainerState.AWAKE
    return one.trigger == TrainerEvent.WAKE_UP or pushed_awake
