"""The audit of one log, or of one a rank: every check at every record, and the ranks against each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lifecycle.audit.rotation import GZIP
from lifecycle.audit.values import DAMAGE
from lifecycle.auditing.asked import Asked
from lifecycle.auditing.chain import Chain
from lifecycle.auditing.decisions import Verdicts
from lifecycle.auditing.ends import Ends
from lifecycle.auditing.engines import Engines
from lifecycle.auditing.following import FactsReader
from lifecycle.auditing.form import problem_of
from lifecycle.auditing.kept import Kept
from lifecycle.auditing.kinds import DECIDED, EVERY, Check, Found, Kind, Look, Seen, Violation
from lifecycle.auditing.leases import Leases
from lifecycle.auditing.lines import Line, lines_of
from lifecycle.auditing.memory import Bytes, Copies
from lifecycle.auditing.ranks import Projected, compare
from lifecycle.auditing.standing import Standing
from lifecycle.auditing.transitions import Pairs, States
from lifecycle.auditing.versions import Versions
from states import Facts

_EVENTS: Final = {f"lifecycle.{event}": event for event in EVERY}
_MESSAGE_MAX: Final = 600


@dataclass
class Audited:
    """What an audit has seen so far.

    Attributes:
        records: how many.
        cut_off: logs whose last line was cut off, with the number of that line. What is before it was read.
    """

    records: int = 0
    cut_off: dict[str, int] = field(default_factory=dict)


def audit_logs(paths: Sequence[str | os.PathLike[str]], audited: Audited | None = None) -> Iterator[Violation]:
    """Replay logs and give each violation as it is found. Holds a record of each log at a time.

    Args:
        paths: one log, or the logs of one run, one a rank. What was put aside of a log is read before it.
        audited: counts what was read.

    Raises:
        AuditError: a log cannot be read, or is of another format.
    """
    seen = audited if audited is not None else Audited()
    audits = [_LogAudit(path, seen, projects=len(paths) > 1) for path in paths]
    if len(audits) == 1:
        for found in audits[0].run():
            if isinstance(found, Violation):
                yield found
        return
    yield from compare([one.run() for one in audits])
    seen_before: dict[tuple[object, ...], str] = {}
    for one in audits:
        if one.first is not None and one.first.record is not None:
            owner = tuple(one.first.record.get(key) for key in ("run", "rank", "model"))
            if owner in seen_before:
                yield _violation(Kind.RANKS, one.first, f"it is of the same rank as {seen_before[owner]}")
            seen_before[owner] = str(one.first.file)


class _LogAudit:
    """One log.

    Args:
        path: where it is.
        audited: counts its records.
        projects: others are compared with it.

    Attributes:
        first: its first record.
    """

    def __init__(self, path: str | os.PathLike[str], audited: Audited, *, projects: bool) -> None:
        self._path = path
        self._audited = audited
        self.first: Line | None = None
        self._chain = Chain()
        self._facts = FactsReader()
        self._projects = projects
        self._checks: tuple[Check, ...] = (
            Pairs(), States(), Verdicts(), Versions(), Engines(), Bytes(), Copies(), Leases(), Asked(), Standing(),
            Kept(), Ends(),
        )  # fmt: skip
        routes = [one.looks() for one in self._checks]
        self._looks: dict[str, list[Look]] = {event: [one[event] for one in routes if event in one] for event in EVERY}
        self._of_facts = [one.facts for one in self._checks if type(one).facts is not Check.facts]

    def run(self) -> Iterator[Violation | Projected]:
        """Violations, and after those of a record what other ranks must have in common with it."""
        last: Line | None = None
        torn: Line | None = None
        found = Found()
        for line in lines_of(self._path):
            if line.record is None:
                if torn is not None:
                    yield _violation(Kind.TORN, torn, "it is no record")
                torn = line
                self._chain.torn(line)
                continue
            torn, last = None, line
            self.first = self.first or line
            self._audited.records += 1
            is_whole = self._see(line, line.record, found)
            if found:
                yield from [_violation(kind, line, message) for kind, message in found]
                found.clear()
            if is_whole and self._projects:
                yield Projected(line, self._facts.in_full(line.record))
        yield from self._ended(last, torn)

    def _ended(self, last: Line | None, torn: Line | None) -> Iterator[Violation]:
        """What is wrong with a log that ends after this record, or in this line."""
        if torn is not None and _has_end(torn):
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

    def _see(self, line: Line, record: dict[str, Any], found: Found) -> bool:
        """Say what is wrong with a record, and answer whether everything of it could be looked at."""
        self._chain.see(line, record, found)
        if self._chain.is_broken:
            self._forget()
        problem = line.problem or self._look(record, found)
        if problem:
            self._forget()
            found.say(Kind.MALFORMED, problem)
        return not problem

    def _look(self, record: dict[str, Any], found: Found) -> str:
        """Show a record to the checks. Why not everything of it could be looked at, empty where it was."""
        event = _EVENTS.get(record["event"])
        if event is None:
            return f"{record['event']} is no event of a record"
        seen, facts, problem = Seen(record, event), None, ""
        if event in DECIDED and record.get("facts") is not None:  # version 1 tells none where none changed
            facts, problem = self._follow(seen)
        problem = problem or problem_of(record)
        if problem:
            return problem
        try:
            self._show(seen, facts, found)
        except DAMAGE as error:  # a value that no record has
            return f"its values cannot be compared: {type(error).__name__}: {error}"
        return ""

    def _follow(self, seen: Seen) -> tuple[Facts | None, str]:
        """The facts of a record, or why there are none."""
        try:
            facts = self._facts.of(seen.record)
        except DAMAGE as error:
            return None, f"its facts are not those of this version: {error}"
        seen.changed = self._facts.changed
        return facts, "" if facts is not None else "its facts are changes of a record that is not there"

    def _show(self, seen: Seen, facts: Facts | None, found: Found) -> None:
        if seen.event == "opened" and not seen.record.get("continues"):
            for check in self._checks:
                check.begin(seen, found)
        for look in self._looks[seen.event]:
            look(seen, found)
        if facts is not None:
            for of_facts in self._of_facts:
                of_facts(seen, facts, found)

    def _forget(self) -> None:
        for check in self._checks:
            check.forget()


def _has_end(line: Line) -> bool:
    """Whether the last line of a file was written to its end, and not cut off. False of what is no plain file."""
    if line.file.suffix == GZIP or not line.file.is_file():
        return False
    with line.file.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _violation(kind: Kind, line: Line, message: str) -> Violation:
    told = message if len(message) <= _MESSAGE_MAX else f"{message[:_MESSAGE_MAX]}..."
    return Violation(kind, str(line.file), line.number, told)
