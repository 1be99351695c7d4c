"""Ranks against each other: the canonical projections of their logs are the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lifecycle.audit import notes
from lifecycle.audit.projection import canonical, first_difference
from lifecycle.auditing.kinds import Kind, Violation
from lifecycle.auditing.lines import Line


@dataclass(frozen=True, slots=True)
class Projected:
    """A record that was looked at, for the comparison with other ranks."""

    line: Line
    record: dict[str, Any]


@dataclass
class _Log:
    """One log, read as far as its next record that ranks have in common.

    Attributes:
        next: that record, None at the end.
        last: the line before it.
        joins: the transition after which this rank has joined the others, None where it was there.
    """

    found: Iterator[Violation | Projected]
    next: Projected | None = None
    last: Line | None = None
    joins: int | None = None
    told: deque[Violation] = field(default_factory=deque)

    def read(self) -> Iterator[Violation]:
        """Go on to the next such record; what is found until then."""
        self.last = self.next.line if self.next is not None else self.last
        self.next, self.joins = None, None
        for one in self.found:
            if isinstance(one, Violation):
                yield one
                continue
            self.last = one.line
            if one.record.get("note") == notes.JOINED:
                self.joins = one.record["transition"]
            if canonical([one.record]):
                self.next = one
                return

    @property
    def model(self) -> object:
        """Whose life cycle it is; None where nothing was read that says so."""
        return None if self.last is None or self.last.record is None else self.last.record.get("model")

    def rest(self) -> Iterator[Violation]:
        """What is found in the rest, which is compared with nothing."""
        while self.next is not None:
            yield from self.read()


def compare(logs: Sequence[Iterator[Violation | Projected]]) -> Iterator[Violation]:
    """What is found in each log, and where the ranks of a model part.

    Models of a cohort live side by side, each its own life: a log is compared with those of the same model.
    """
    by_model: dict[object, list[_Log]] = {}
    for log in [_Log(found) for found in logs]:
        yield from log.read()
        by_model.setdefault(log.model, []).append(log)
    for ranks in by_model.values():
        yield from _compared(ranks)


def _compared(ranks: Sequence[_Log]) -> Iterator[Violation]:
    """The same of the ranks of one model, which are read side by side. Each has read to its first such record.

    A rank that has joined is compared from the transition on after which it has. Where two have parted, one
    violation is told and the later log is not compared any more.
    """
    first, *others = ranks
    compared = list(others)
    while first.next is not None:
        for log in compared:
            yield from _caught_up(first, log)
        for log, unlike in [(log, _unlike(first, log)) for log in compared]:
            if unlike is not None:
                yield unlike
                compared.remove(log)
        due = [log for log in compared if _is_due(first, log)]
        for log in (first, *due):
            yield from log.read()
    for log in compared:
        if log.next is not None:
            yield _violation(log.next.line, "the first log ends before this record")
    for log in others:
        yield from log.rest()


def _caught_up(first: _Log, log: _Log) -> Iterator[Violation]:
    """Read on in a log to where the first one has joined; what is found until then."""
    while first.joins is not None and log.joins is None and log.next is not None:
        if log.next.record["transition"] > first.joins:
            return
        yield from log.read()


def _is_due(first: _Log, log: _Log) -> bool:
    """Whether the record of a log that has joined is the one that the first log has now."""
    if log.next is None or first.next is None or log.joins is None:
        return True
    return bool(first.next.record["transition"] > log.joins)


def _unlike(first: _Log, log: _Log) -> Violation | None:
    assert first.next is not None
    if not _is_due(first, log):
        return None
    if log.next is None:
        line = log.last if log.last is not None else first.next.line
        return _violation(line, f"this log ends, the first one goes on with record {first.next.record['sequence']}")
    found = first_difference([first.next.record], [log.next.record])
    if found is None:
        return None
    return _violation(log.next.line, f"it is not what the first log has there: {found.key}: {_short(found.one)} there, "
                                     f"{_short(found.other)} here")  # fmt: skip


def _short(value: object) -> str:
    text = repr(str(value) if isinstance(value, str) else value)  # a state is an enum of texts
    return text if len(text) <= 200 else f"{text[:200]}..."  # noqa: PLR2004 - enough to see what it is


def _violation(line: Line, message: str) -> Violation:
    return Violation(Kind.RANKS, str(line.file), line.number, message)
