"""Reading an audit log back, line by line: after a crash, and beside a running writer."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lifecycle.audit.expand import Expander, Record
from lifecycle.audit.rotation import GZIP, log_files, rotated
from lifecycle.errors import AuditError

__all__ = [
    "FIRST_BYTES", "OF_ANOTHER_FORMAT", "Record", "Records", "Torn", "ended_lines", "lines_in_file", "log_files",
    "parse_line", "placed_lines", "raw_lines", "read_lines", "read_log",
]  # fmt: skip


FIRST_BYTES: Final = b'{"event":"lifecycle.'
_SPACED: Final = b'{"event": "'
"""How a log began before the first release. Its hashes were of something else than its lines."""
OF_ANOTHER_FORMAT: Final = (
    "it is of another format, of a development or a later version; keep it as it is, and write to another path"
)
_SHOWN_MAX: Final = 60
_READ_BYTES: Final = 2**18
"""Read at once: by the 8 KiB of Python's default an audit takes two hundredths longer."""


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
        torn: what was torn; only a crash of the writer may explain it, which :mod:`lifecycle.audit.verify` looks at.
    """

    def __init__(self) -> None:
        super().__init__()
        self.torn: list[Torn] = []


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
    for file, number, line in ended_lines(path):
        yield file, number, line.removesuffix(b"\n")


def ended_lines(path: str | os.PathLike[str]) -> Iterator[tuple[Path, int, bytes]]:
    """The same with their ends, which the last one may lack.

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
            before, in_use = _begun(path, stack)
            is_begun = False
            for one in before:
                found = _opened(one)
                if found is not None:
                    is_begun = True
                    yield found[0], _raw(*found)
                elif is_begun:
                    raise AuditError(str(one), "the log has removed it while it was read; read it again")
            if in_use is not None:
                yield path, _raw(path, in_use)
    except OSError as error:
        raise AuditError(str(path), f"it cannot be read: {error}") from error


def _open(path: Path) -> BinaryIO:
    return path.open("rb", buffering=_READ_BYTES)


def _begun(path: Path, stack: ExitStack) -> tuple[list[Path], BinaryIO | None]:
    """What was put aside, oldest first, and the file in use, None where there is none: as both were at one moment."""
    while True:
        in_use = stack.enter_context(_open(path)) if path.exists() or not rotated(path) else None
        before = [one for _, one in sorted(rotated(path).items())]
        if in_use is None or _is_at(path, in_use):
            return before, in_use
        in_use.close()  # it was put aside meanwhile, and stands among the others


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _opened(path: Path) -> tuple[Path, BinaryIO] | None:
    """A file that was put aside, and under which name: it may be compressed meanwhile. None where it was removed."""
    for one in dict.fromkeys((path, path.with_name(path.name.removesuffix(GZIP) + GZIP))):
        with suppress(FileNotFoundError):
            return one, _open(one)
    return None


def lines_in_file(path: Path) -> Iterator[Record | Torn]:
    """Every line of one file, with facts as they are written.

    Raises:
        AuditError: it cannot be read, or is of another format.
    """
    return (parse_line(line.removesuffix(b"\n"), number) for number, line in enumerate(_raw(path), start=1))


def _raw(path: Path, file: BinaryIO | None = None) -> Iterator[bytes]:
    try:
        with file if file is not None else _open(path) as raw, _text(path, raw) as opened:
            for number, line in enumerate(opened, start=1):
                if number == 1 and line.startswith(_SPACED):
                    raise AuditError(str(path), OF_ANOTHER_FORMAT)
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise AuditError(str(path), f"it cannot be read: {error}") from error


def _text(path: Path, raw: BinaryIO) -> gzip.GzipFile | BinaryIO:
    return gzip.GzipFile(fileobj=raw) if path.suffix == GZIP else raw


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
