"""The audit of one log: every check at every record."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lifecycle.audit.values import DAMAGE
from lifecycle.auditing.asked import Asked
from lifecycle.auditing.chain import Chain
from lifecycle.auditing.decisions import Verdicts
from lifecycle.auditing.ends import Ends
from lifecycle.auditing.engines import Engines
from lifecycle.auditing.following import FactsReader
from lifecycle.auditing.form import problem_of
from lifecycle.auditing.kept import Kept
from lifecycle.auditing.kinds import DECIDED, EVERY, Audited, Check, Found, Kind, Seen, Violation
from lifecycle.auditing.leases import Leases
from lifecycle.auditing.lines import Line, lines_of
from lifecycle.auditing.memory import Bytes, Copies
from lifecycle.auditing.ranks import Projected
from lifecycle.auditing.standing import Standing
from lifecycle.auditing.transitions import Pairs, States
from lifecycle.auditing.versions import Versions
from lifecycle.errors import AuditError
from states import Facts

LINES_MAX: Final = 128
"""So many lines are held at a time, those of all logs together."""
LINES_MIN: Final = 16
"""As many of each log, however many logs there are: fewer take longer."""
BYTES_MAX: Final = 2**20
"""No more lines of a log are held once they have so many bytes."""
ENTRIES_MAX: Final = 4096
"""As many content groups stand in the facts that are held of a log: a short line may change all of them."""
_EVENTS: Final = {f"lifecycle.{event}": event for event in EVERY}
_MESSAGE_MAX: Final = 600


@dataclass(slots=True)
class _Record:
    """A line on its way through the checks.

    Attributes:
        line: it.
        found: what was found at it so far.
        is_after_gap: something is missing before it, or it was changed.
        seen: the record as checks look at it, None from where not everything of it can be looked at.
        facts: its own, None where it tells none.
        whole: the same record with all of its facts, where it is compared with other ranks.
    """

    line: Line
    found: Found
    is_after_gap: bool = False
    seen: Seen | None = None
    facts: Facts | None = None
    whole: dict[str, Any] | None = None

    def spoil(self, problem: str) -> None:
        """No check looks at it any more."""
        self.seen = None
        self.found.say(Kind.MALFORMED, problem)


class LogAudit:
    """One log.

    Args:
        path: where it is.
        audited: counts its records.
        logs: how many are read side by side, and compared with each other.

    Attributes:
        first: its first record.
    """

    def __init__(self, path: str | os.PathLike[str], audited: Audited, *, logs: int) -> None:
        self._path = path
        self._audited = audited
        self._projects = logs > 1
        self._lines_max = max(LINES_MAX // logs, LINES_MIN)
        self.first: Line | None = None
        self._last: Line | None = None
        self._torn: Line | None = None
        self._chain = Chain()
        self._facts = FactsReader()
        self._checks: tuple[Check, ...] = (
            Pairs(), States(), Verdicts(), Versions(), Engines(), Bytes(), Copies(), Leases(), Asked(), Standing(),
            Kept(), Ends(),
        )  # fmt: skip

    def run(self) -> Iterator[Violation | Projected]:
        """Violations, and after those of a record what other ranks must have in common with it."""
        for lines in self._batches():
            yield from self._audit(lines)
        yield from self._ended()

    def _batches(self) -> Iterator[list[Line]]:
        """Some lines at a time; what was read before an error is looked at before it is raised."""
        batch, size_bytes, lines_max = list[Line](), 0, LINES_MIN
        try:
            for line in lines_of(self._path):
                batch.append(line)
                size_bytes += len(line.text)
                if len(batch) >= lines_max or size_bytes >= BYTES_MAX:
                    yield batch
                    batch, size_bytes = [], 0
                    lines_max = max(1, min(self._lines_max, ENTRIES_MAX // max(1, self._facts.entries)))
        except AuditError:
            yield batch
            raise
        yield batch

    def _audit(self, lines: Sequence[Line]) -> Iterator[Violation | Projected]:
        """One check looks at all of these records, then the next one does.

        What a check needs is then at hand to the processor: it takes two thirds of the time of all checks in turn at
        each record.
        """
        read = [*self._chained(lines)]
        records = [one for one in read if one.line.record is not None]
        for one in records:
            self._follow(one)
        for check in self._checks:
            _show(check, records)
        self._audited.records += len(records)
        for one in read:
            yield from [_violation(kind, one.line, message) for kind, message in one.found]
            if one.seen is not None and one.whole is not None:
                yield Projected(one.line, one.whole)

    def _chained(self, lines: Sequence[Line]) -> Iterator[_Record]:
        """Each record, and each line that is none before another one that is none."""
        for line in lines:
            torn, self._torn = self._torn, None
            if line.record is None:
                if torn is not None:
                    yield _Record(torn, Found([(Kind.TORN, "it is no record")]))
                self._torn = line
                self._chain.torn(line)
                continue
            self.first, self._last = self.first or line, line
            one = _Record(line, Found())
            self._chain.see(line, line.record, one.found)
            one.is_after_gap = self._chain.is_broken
            yield one

    def _follow(self, one: _Record) -> None:
        """What checks look at."""
        record = one.line.record
        assert record is not None
        problem = one.line.problem
        event = None if problem else _EVENTS.get(record["event"])
        if event is None:
            one.spoil(problem or f"{record['event']} is no event of a record")
            return
        one.seen = Seen(record, event)
        if event in DECIDED and record.get("facts") is not None:  # version 1 tells none where none changed
            problem = self._take_facts(one, one.seen)
        if problem or (problem := problem_of(record)):
            one.spoil(problem)
        elif self._projects:
            one.whole = self._facts.in_full(record)

    def _take_facts(self, one: _Record, seen: Seen) -> str:
        """The facts of a record. Why there are none, empty where there are."""
        try:
            one.facts = self._facts.of(seen.record)
        except DAMAGE as error:
            return f"its facts are not those of this version: {error}"
        seen.changed = self._facts.changed
        return "" if one.facts is not None else "its facts are changes of a record that is not there"

    def _ended(self) -> Iterator[Violation]:
        """What is wrong with a log that ends here."""
        torn, last = self._torn, self._last
        if torn is not None and torn.has_end:
            yield _violation(Kind.TORN, torn, "it is no record")
        elif torn is not None:
            self._audited.cut_off[str(torn.file)] = torn.number
        if last is None:
            yield Violation(Kind.SESSION, str(self._path), 1, "there is no record in it")
            return
        found = Found()
        for check in self._checks:
            check.end(found)
        yield from [_violation(kind, last, message) for kind, message in found]


def _show(check: Check, records: Sequence[_Record]) -> None:
    """Records in their order to one check, which forgets what it knows where something is missing between two."""
    looks, facts_are_seen = check.looks(), type(check).facts is not Check.facts
    for one in records:
        seen = one.seen
        if one.is_after_gap or seen is None:
            check.forget()
        if seen is None:
            continue
        try:
            if seen.event == "opened" and not seen.record.get("continues"):
                check.begin(seen, one.found)
            look = looks.get(seen.event)
            if look is not None:
                look(seen, one.found)
            if facts_are_seen and one.facts is not None:
                check.facts(seen, one.facts, one.found)
        except DAMAGE as error:  # a value that no record has
            one.spoil(f"its values cannot be compared: {type(error).__name__}: {error}")
            check.forget()


def _violation(kind: Kind, line: Line, message: str) -> Violation:
    told = message if len(message) <= _MESSAGE_MAX else f"{message[:_MESSAGE_MAX]}..."
    return Violation(kind, str(line.file), line.number, told)
