"""Reading an audit log back: after a crash, and beside a running writer."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lifecycle.audit.chain import BEGAN, OPENED, SCHEMA, chain_hash
from lifecycle.audit.expand import Expander, Record
from lifecycle.audit.rotation import GZIP, log_files, rotated
from lifecycle.errors import AuditError

__all__ = [
    "FIRST_BYTES", "Record", "Records", "Tail", "Torn", "log_files", "parse_line", "placed_lines", "raw_lines",
    "read_lines", "read_log", "read_tail", "unfinished", "verify_chain",
]  # fmt: skip


_ENDS: Final = frozenset({"lifecycle.moved", "lifecycle.failed"})
FIRST_BYTES: Final = b'{"event":"lifecycle.'
_SPACED: Final = b'{"event": "'
"""How a log began before the first release. Its hashes were of something else than its lines."""
_OF_ANOTHER_FORMAT: Final = (
    "it is of another format, of a development or a later version; keep it as it is, and write to another path"
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
        continues: the file that was put aside in which the last record stands, empty when it is the file in use.
    """

    sequence: int
    hash: str
    size_bytes: int
    torn_bytes: int
    needs_newline: bool
    unfinished: tuple[Record, ...]
    continues: str = ""


def read_lines(path: str | os.PathLike[str]) -> Iterator[Record | Torn]:
    """Every line of a log in turn, as a record with all its facts or as a torn line. Holds one line at a time.

    Records share the parts of facts that did not change between them; do not change any.

    Args:
        path: the log; what was put aside of it (:func:`log_files`) is read first. A file that was put aside,
            compressed or not, is read for itself.

    Raises:
        AuditError: a file cannot be read, or is of another format.
    """
    for _, _, line in placed_lines(path):
        yield line


def placed_lines(path: str | os.PathLike[str]) -> Iterator[tuple[Path, int, Record | Torn]]:
    """The same with the file in which each line stands, and its number there, from 1.

    Raises:
        AuditError: a file cannot be read, or is of another format.
    """
    expander = Expander()
    for file, number, text in raw_lines(path):
        line = parse_line(text, number)
        if not isinstance(line, Torn):
            expander.expand(line)
        yield file, number, line


def raw_lines(path: str | os.PathLike[str]) -> Iterator[tuple[Path, int, bytes]]:
    """The same as they stand in the files, without their ends.

    Raises:
        AuditError: a file cannot be read, or is of another format.
    """
    for file, lines in _files(Path(path)):
        for number, line in enumerate(lines, start=1):
            yield file, number, line


def _files(path: Path) -> Iterator[tuple[Path, Iterator[bytes]]]:
    """Each file of a log and its lines. The one in use is opened first: a rotation meanwhile takes nothing away."""
    try:
        with ExitStack() as stack:
            before = rotated(path)
            in_use = stack.enter_context(path.open("rb")) if path.exists() or not before else None
            for _, one in sorted(rotated(path).items()):
                if in_use is None or not os.path.samestat(one.stat(), os.fstat(in_use.fileno())):
                    yield one, _raw(one)
            if in_use is not None:
                yield path, _raw(path, in_use)
    except OSError as error:
        raise AuditError(str(path), f"it cannot be read: {error}") from error


def _lines(path: Path) -> Iterator[Record | Torn]:
    """Every line of one file, with facts as they are written."""
    return (parse_line(line, number) for number, line in enumerate(_raw(path), start=1))


def _raw(path: Path, file: BinaryIO | None = None) -> Iterator[bytes]:
    try:
        with _open(path) if file is None or path.suffix == GZIP else file as opened:
            for number, line in enumerate(opened, start=1):
                if number == 1 and line.startswith(_SPACED):
                    raise AuditError(str(path), _OF_ANOTHER_FORMAT)
                yield line.removesuffix(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise AuditError(str(path), f"it cannot be read: {error}") from error


def _open(path: Path) -> gzip.GzipFile | BinaryIO:
    if path.suffix != GZIP and not path.exists():  # it was compressed meanwhile
        path = path.with_name(path.name + GZIP)
    return gzip.open(path) if path.suffix == GZIP else path.open("rb")


def parse_line(line: bytes, number: int) -> Record | Torn:
    """A line without its end, with facts as they are written."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # also bytes that are no text, and brackets without end
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
    """Where the log ends now. Where the file in use holds no record, that is where the last one put aside ends.

    Raises:
        AuditError: a file cannot be read, is of another format, or does not begin like an audit log.
    """
    last: Record | None = None
    line: Record | Torn | None = None
    pending = _Pending()
    continues = ""
    for line in _lines(path):
        if not isinstance(line, Torn):
            last = line
            pending.see(line)
    size, needs_newline = _ends(path)
    torn_bytes = line.size_bytes if isinstance(line, Torn) else 0
    for file in [one for _, one in sorted(rotated(path).items())][-1:] if last is None else ():
        continues = file.name.removesuffix(GZIP)
        for line in _lines(file):
            if not isinstance(line, Torn):
                last = line
                pending.see(line)
    if last is not None and last.get("schema") not in (1, SCHEMA):
        raise AuditError(str(path), _OF_ANOTHER_FORMAT)
    return Tail(
        sequence=int(str(last["sequence"])) if last else 0,
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


def verify_chain(records: Sequence[Mapping[str, object]]) -> list[str]:
    """What is wrong with the numbers and hashes of a log, in words; nothing when it is whole.

    Args:
        records: the whole log in order, as :func:`read_log` gives it. Torn lines that
            :func:`read_log` found are wrong too, unless a new session reported one at that place.
            Where the files before were removed, it begins with the record that names the last hash in them.
    """
    problems: list[str] = []
    previous, expected = _beginning(records)
    for record in records:
        sequence = record.get("sequence")
        if sequence != expected:
            problems.append(f"record {expected} is missing or out of order: {sequence} stands in its place")
        if record.get("hash") != chain_hash(previous, record):
            problems.append(f"record {sequence} does not follow from the one before it: one of them was changed")
        previous, expected = str(record.get("hash")), _number(sequence, expected) + 1
    return problems + _unexplained(records)


def _beginning(records: Sequence[Mapping[str, object]]) -> tuple[str, int]:
    """The hash that the first record follows, and its number."""
    first = records[0] if records else {}
    if first.get("event") == OPENED and first.get("continues"):
        return str(first.get("last_hash")), _number(first.get("sequence"), 1)
    return "", 1


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
