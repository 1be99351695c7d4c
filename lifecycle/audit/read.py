"""Reading an audit log back: after a crash, and beside a running writer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lifecycle.audit.chain import OPENED, chain_hash
from lifecycle.audit.expand import Expander
from lifecycle.audit.expand import Record as Record  # noqa: PLC0414 - readers of logs import it from here
from lifecycle.errors import AuditError

_BEGAN: Final = "lifecycle.began"
_ENDS: Final = frozenset({"lifecycle.moved", "lifecycle.failed"})
_FIRST_BYTES: Final = b'{"event":"lifecycle.'
_SPACED: Final = b'{"event": "'
"""How a log began before the first release. Its hashes were of something else than its lines."""
_OF_ANOTHER_FORMAT: Final = (
    "it is of another format, an audit log of a development version; keep it as it is, and write to another path"
)
_SHOWN_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Torn:
    """A line that is no record: its writer ended in the middle of it.

    Attributes:
        line: its number in the file, from 1.
        size_bytes: its length without the newline.
        text: how it begins.
    """

    line: int
    size_bytes: int
    text: str


class Records(list[Record]):
    """The records of a log, oldest first, and the lines that are none.

    Attributes:
        torn: what was torn; only a crash of the writer may explain it, see :func:`verify_chain`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.torn: list[Torn] = []


@dataclass(frozen=True, slots=True)
class Tail:
    """Where a log ends, for the writer that continues it.

    Attributes:
        sequence: number of the last record, 0 when there is none.
        hash: its hash, empty when there is none.
        size_bytes: size of the file.
        torn_bytes: size of the torn line at the end, 0 when the last line is a record.
        needs_newline: the last line has no end.
        unfinished: transitions that began and never ended.
    """

    sequence: int
    hash: str
    size_bytes: int
    torn_bytes: int
    needs_newline: bool
    unfinished: tuple[Record, ...]


def read_lines(path: str | os.PathLike[str]) -> Iterator[Record | Torn]:
    """Every line of a log in turn, as a record with all its facts or as a torn line. Holds one line at a time.

    Records share the parts of facts that did not change between them; do not change any.

    Raises:
        AuditError: the file cannot be read, or is of another format.
    """
    expander = Expander()
    for line in _lines(Path(path)):
        if not isinstance(line, Torn):
            expander.expand(line)
        yield line


def _lines(path: Path) -> Iterator[Record | Torn]:
    """Every line of one file, with facts as they are written."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line.startswith(_SPACED):
                    raise AuditError(str(path), _OF_ANOTHER_FORMAT)
                yield _parse(line.removesuffix(b"\n"), number)
    except OSError as error:
        raise AuditError(str(path), f"it cannot be read: {error}") from error


def _parse(line: bytes, number: int) -> Record | Torn:
    try:
        record = json.loads(line)
    except ValueError:  # also bytes that are no text
        record = None
    if isinstance(record, dict) and isinstance(record.get("sequence"), int) and isinstance(record.get("hash"), str):
        return record
    return Torn(number, len(line), line[:_SHOWN_MAX].decode(errors="replace"))


def read_log(path: str | os.PathLike[str]) -> Records:
    """The whole log. A torn line is left out of the list and stands in its ``torn``.

    Raises:
        AuditError: the file cannot be read, or is of another format.
    """
    records = Records()
    for line in read_lines(path):
        if isinstance(line, Torn):
            records.torn.append(line)
        else:
            records.append(line)
    return records


def read_tail(path: Path) -> Tail:
    """Where the log ends now.

    Raises:
        AuditError: the file cannot be read, is of another format, or does not begin like an audit log.
    """
    last: Record | None = None
    line: Record | Torn | None = None
    pending = _Pending()
    for line in _lines(path):
        if not isinstance(line, Torn):
            last = line
            pending.see(line)
    size, needs_newline = _ends(path)
    return Tail(
        sequence=int(str(last["sequence"])) if last else 0,
        hash=str(last["hash"]) if last else "",
        size_bytes=size,
        torn_bytes=line.size_bytes if isinstance(line, Torn) else 0,
        needs_newline=needs_newline,
        unfinished=tuple(pending.found()),
    )


def _ends(path: Path) -> tuple[int, bool]:
    with path.open("rb") as file:
        start = file.read(len(_FIRST_BYTES))
        if not _FIRST_BYTES.startswith(start):
            raise AuditError(str(path), "it holds something else than an audit log; choose another path")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return size, size > 0 and file.read(1) != b"\n"


def verify_chain(records: Sequence[Mapping[str, object]]) -> list[str]:
    """What is wrong with the numbers and hashes of a log, in words; nothing when it is whole.

    Args:
        records: the whole log in order, as :func:`read_log` gives it. Torn lines that
            :func:`read_log` found are wrong too, unless a new session reported one at that place.
    """
    problems: list[str] = []
    previous, expected = "", 1
    for record in records:
        sequence = record.get("sequence")
        if sequence != expected:
            problems.append(f"record {expected} is missing or out of order: {sequence} stands in its place")
        if record.get("hash") != chain_hash(previous, record):
            problems.append(f"record {sequence} does not follow from the one before it: one of them was changed")
        previous, expected = str(record.get("hash")), _number(sequence, expected) + 1
    return problems + _unexplained(records)


def _number(sequence: object, otherwise: int) -> int:
    return sequence if isinstance(sequence, int) else otherwise


def _unexplained(records: Sequence[Mapping[str, object]]) -> list[str]:
    torn = records.torn if isinstance(records, Records) else []
    reported = [
        record["torn_bytes"] for record in records if record.get("event") == OPENED and record.get("torn_bytes")
    ]
    left = [one for one in torn if one.size_bytes not in reported]
    return [f"line {one.line} is torn ({one.size_bytes} bytes: {one.text}...)" for one in left]


class _Pending:
    """Finds the transitions that began and did not end, record by record."""

    def __init__(self) -> None:
        self._open: Record | None = None
        self._found: list[Record] = []

    def see(self, record: Record) -> None:
        event = record.get("event")
        if event in _ENDS and self._open and record.get("transition") == self._open.get("transition"):
            self._open = None
        elif event in {_BEGAN, OPENED}:
            self._found = self.found()
            self._open = record if event == _BEGAN else None

    def found(self) -> list[Record]:
        return [*self._found, self._open] if self._open else self._found


def unfinished(records: Iterable[Record]) -> list[Record]:
    """The ``lifecycle.began`` records without an end. The process died in that transition, or is in it now."""
    pending = _Pending()
    for record in records:
        pending.see(record)
    return pending.found()
