"""Where a log ends, for the writer that continues it, and what has begun in it and has no end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lifecycle.audit.chain import BEGAN, ENDS, OPENED, SCHEMA
from lifecycle.audit.read import FIRST_BYTES, OF_ANOTHER_FORMAT, Record, Torn, lines_in_file
from lifecycle.audit.rotation import GZIP, rotated
from lifecycle.errors import AuditError


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
        continues: the file that was put aside in which the last record stands, empty when it is the file in use.
    """

    sequence: int
    hash: str
    size_bytes: int
    torn_bytes: int
    needs_newline: bool
    unfinished: tuple[Record, ...]
    continues: str = ""


def read_tail(path: Path) -> Tail:
    """Where the log ends now. Where the file in use holds no record, that is where the last one put aside ends.

    Raises:
        AuditError: a file cannot be read, is of another format, or does not begin like an audit log.
    """
    last: Record | None = None
    line: Record | Torn | None = None
    pending = _Pending()
    continues = ""
    for line in lines_in_file(path):
        if not isinstance(line, Torn):
            last = line
            pending.see(line)
    size, needs_newline = _ends(path)
    torn_bytes = line.size_bytes if isinstance(line, Torn) else 0
    for file in [one for _, one in sorted(rotated(path).items())][-1:] if last is None else ():
        continues = file.name.removesuffix(GZIP)
        for line in lines_in_file(file):
            if not isinstance(line, Torn):
                last = line
                pending.see(line)
    sequence = 0 if last is None else last["sequence"]
    if last is not None and last.get("schema") not in (1, SCHEMA):
        raise AuditError(str(path), OF_ANOTHER_FORMAT)
    if type(sequence) is not int:  # true and false are numbers to Python
        raise AuditError(str(path), OF_ANOTHER_FORMAT)
    return Tail(
        sequence=sequence,
        hash=str(last["hash"]) if last else "",
        size_bytes=size,
        torn_bytes=torn_bytes,
        needs_newline=needs_newline,
        unfinished=tuple(pending.found()),
        continues=continues,
    )


def _ends(path: Path) -> tuple[int, bool]:
    with path.open("rb") as file:
        start = file.read(len(FIRST_BYTES))
        if not FIRST_BYTES.startswith(start):
            raise AuditError(str(path), "it holds something else than an audit log; choose another path")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return size, size > 0 and file.read(1) != b"\n"


class _Pending:
    """Finds the transitions that began and did not end, record by record."""

    def __init__(self) -> None:
        self._open: Record | None = None
        self._found: list[Record] = []

    def see(self, record: Record) -> None:
        event = record.get("event")
        if event in ENDS and self._open and record.get("transition") == self._open.get("transition"):
            self._open = None
        elif event in {BEGAN, OPENED}:
            self._found = self.found()
            self._open = record if event == BEGAN else None

    def found(self) -> list[Record]:
        return [*self._found, self._open] if self._open else self._found


def unfinished(records: Iterable[Record]) -> list[Record]:
    """The ``lifecycle.began`` records without an end. The process died in that transition, or is in it now."""
    pending = _Pending()
    for record in records:
        pending.see(record)
    return pending.found()
