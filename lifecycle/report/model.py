"""What happened in a run, of the records of one log: a record is looked at once and never trusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from lifecycle.audit.chain import BEGAN, OPENED
from lifecycle.audit.expand import Record
from lifecycle.audit.read import Torn
from lifecycle.report import fields
from states import TrainerState

TEXT_MAX: Final = 300
"""Characters of a text of the log that are kept."""

TIME_MAX_S: Final = 253_402_300_799
"""The last second of the year 9999, seconds since 1970: later ones cannot be written."""

_ENDS: Final = {
    "lifecycle.moved": "moved",
    "lifecycle.failed": "failed",
    "lifecycle.refused": "refused",
    "lifecycle.unchanged": "unchanged",
}


class Outcome(StrEnum):
    """What became of something that was asked."""

    MOVED = "moved"
    FAILED = "failed"
    REFUSED = "refused"
    UNCHANGED = "unchanged"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Lane:
    """Whose log it is.

    Attributes:
        index: its place among the logs, from 0.
        run: of its first record.
        rank: the same.
        model: the same.
        file: name of the log, without its folder.
    """

    index: int
    run: str
    rank: int
    model: str
    file: str


@dataclass(frozen=True, slots=True)
class FailedVerdict:
    """A guard that did not hold.

    Attributes:
        guard: its name.
        because: why it did not hold.
        remedy: what to do.
    """

    guard: str
    because: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Transition:
    """Something that was asked of the trainer, and what became of it. Times are seconds since 1970.

    Attributes:
        outcome: what became of it.
        sequence: number of the record that says so.
        number: of the decision, in its session.
        trigger: the event, or another call that was refused.
        edge: the row of the table, empty where none fits.
        source: state before.
        target: state after; of an unfinished one the one that it was to reach.
        began_s: when it was decided.
        ended_s: when the record of its end was written. Never before what was written earlier.
        duration_s: how long it took, as the trainer measured it; else of the two times.
        held: bytes by place and tag at its end; None where the record does not say.
        moved: bytes that it moved, by kind.
        versions: content groups that have another version now, None for one that is gone.
        loaded: adapters that a reconcile loaded.
        sent: engine to the groups that were sent to it.
        failed: the guards that did not hold.
        problem: the effect that failed, and its error.
    """

    outcome: Outcome
    sequence: int
    number: int
    trigger: str
    edge: str
    source: TrainerState
    target: TrainerState
    began_s: float
    ended_s: float
    duration_s: float
    held: Mapping[str, Mapping[str, int]] | None
    moved: Mapping[str, int]
    versions: Mapping[str, int | None]
    loaded: tuple[str, ...]
    sent: Mapping[str, tuple[str, ...]]
    failed: tuple[FailedVerdict, ...]
    problem: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A session, or a file of the log, begins.

    Attributes:
        time_s: when, seconds since 1970.
        restarted: another session wrote what stands before.
    """

    time_s: float
    restarted: bool


@dataclass(frozen=True, slots=True)
class Noted:
    """A note, or any other record of a known time.

    Attributes:
        time_s: when, seconds since 1970.
        note: what it says, empty where it is no note.
    """

    time_s: float
    note: str


@dataclass(frozen=True, slots=True)
class Began(Noted):
    """A transition was decided, and its effects begin.

    Attributes:
        transition: as far as it is known; it comes again when it has ended.
    """

    transition: Transition


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is torn, or a record that is none."""


Happening = Transition | Opened | Noted | Unreadable


def lane_of(index: int, file: str, first: Record) -> Lane:
    """Whose log it is, by its first record.

    Raises:
        NotOfARecordError: the record does not say so.
    """
    return Lane(
        index,
        run=fields.text(first.get("run"), TEXT_MAX),
        rank=fields.count(first.get("rank")),
        model=fields.text(first.get("model"), TEXT_MAX),
        file=fields.text(file, TEXT_MAX),
    )


def happenings(lines: Iterable[Record | Torn]) -> Iterator[Happening]:
    """What the lines of one log say, in their order. A transition comes when it has ended. Holds one line at a time."""
    teller = Teller()
    for line in lines:
        yield from teller.see(line)
    yield from teller.rest()


class Teller:
    """Tells what lines of one log say, as they come. Knows the transition that has begun, and the time.

    A clock that was put back stands still until it is reached again.
    """

    def __init__(self) -> None:
        self._record: Record | None = None
        self._began_s = 0.0
        self._now_s = float("-inf")

    def see(self, line: Record | Torn) -> Iterator[Happening]:
        """What the next line says, and before it what it ends."""
        try:
            yield from self._see(line)
        except fields.NotOfARecordError:
            yield Unreadable()

    def _see(self, line: Record | Torn) -> Iterator[Happening]:
        if isinstance(line, Torn):
            yield Unreadable()
            return
        event, now_s = fields.text(line.get("event"), TEXT_MAX), max(self._now_s, _time_s(line))
        if event in {OPENED, BEGAN}:
            yield from self.rest()
        self._now_s = now_s
        if event == OPENED:
            yield Opened(now_s, restarted=line.get("restart") is True)
        elif event == BEGAN:
            begun = _transition(line, Outcome.UNFINISHED, now_s, now_s)
            self._record, self._began_s = line, now_s
            yield Began(now_s, "", begun)
        elif event in _ENDS:
            yield self._ended(line, Outcome(_ENDS[event]))
        else:
            yield Noted(now_s, fields.text(line.get("note", ""), TEXT_MAX))

    def rest(self) -> Iterator[Happening]:
        """What has begun, and has no end."""
        if self._record is not None:
            yield _transition(self._record, Outcome.UNFINISHED, self._began_s, self._now_s)
        self._record = None

    def _ended(self, line: Record, outcome: Outcome) -> Transition:
        begun = self._record is not None and self._record.get("transition") == line.get("transition")
        if begun:
            self._record = None
        if begun or outcome in {Outcome.REFUSED, Outcome.UNCHANGED}:
            return _transition(line, outcome, self._began_s if begun else self._now_s, self._now_s)
        lasted_s = fields.seconds(line.get("duration_s", 0.0))
        return _transition(line, outcome, max(0.0, self._now_s - lasted_s), self._now_s)


def _time_s(record: Record) -> float:
    try:
        time_s = datetime.fromisoformat(fields.text(record.get("time"), TEXT_MAX)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise fields.NotOfARecordError from error
    if not 0 <= time_s < TIME_MAX_S:
        raise fields.NotOfARecordError
    return time_s


def _transition(record: Record, outcome: Outcome, began_s: float, ended_s: float) -> Transition:
    try:
        source, target = (TrainerState(fields.text(record.get(name), TEXT_MAX)) for name in ("source", "target"))
    except ValueError as error:
        raise fields.NotOfARecordError from error
    details = fields.mapping(record.get("details", {}))
    problem = [fields.text(record.get(name, ""), TEXT_MAX) for name in ("effect", "error")]
    return Transition(
        outcome=outcome,
        sequence=fields.count(record.get("sequence")),
        number=fields.count(record.get("transition")),
        trigger=fields.text(record.get("trigger"), TEXT_MAX),
        edge=fields.text(record.get("edge"), TEXT_MAX),
        source=source,
        target=target,
        began_s=began_s,
        ended_s=ended_s,
        duration_s=fields.seconds(record.get("duration_s", ended_s - began_s)),
        held=_held(record["held"]) if "held" in record else None,
        moved=fields.counts(record.get("moved", {})),
        versions=fields.versions(record.get("versions", {})),
        loaded=fields.texts(details.get("loaded", [])),
        sent=_sent(details),
        failed=tuple(_failed(record)) if outcome is Outcome.REFUSED else (),
        problem=": ".join(one for one in problem if one),
    )


def _held(told: object) -> dict[str, dict[str, int]]:
    return {fields.text(place, TEXT_MAX): fields.counts(tags) for place, tags in fields.mapping(told).items()}


def _sent(details: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """By engine, of those that have committed."""
    told = fields.mapping(details.get("engines", {}))
    engines = {fields.text(name, TEXT_MAX): fields.mapping(one) for name, one in told.items()}
    return {name: fields.texts(one.get("sent", [])) for name, one in engines.items() if one.get("committed") is True}


def _failed(record: Record) -> Iterator[FailedVerdict]:
    for told in fields.items(record.get("verdicts", [])):
        one = fields.mapping(told)
        if one.get("holds") is False:
            guard, because, remedy = (
                fields.text(one.get(name, ""), TEXT_MAX) for name in ("name", "because", "remedy")
            )
            yield FailedVerdict(guard, because, remedy)
