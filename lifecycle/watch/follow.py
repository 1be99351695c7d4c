"""The lines of a log as they are written, over rotations and cuts, and of one that is not there yet."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import Final, Self

from lifecycle.audit.chain import OPENED
from lifecycle.audit.expand import Record
from lifecycle.audit.read import FIRST_BYTES, Torn, parse_line
from lifecycle.errors import AuditError
from lifecycle.watch.start import MIB, MOST_BYTES, end_of, lines_before, lines_between

READ_BYTES: Final = 4 * MIB
"""Of a log that grows faster than it is shown, so much at a time."""


class Standing(StrEnum):
    """What there is of a log."""

    WAITING = "waiting for it"
    FOLLOWED = "followed"
    GONE = "gone"


class Anew:
    """Another log is in the place of the one that was followed, or it was cut off: what was told of it is over."""


Line = Record | Torn | Anew


class Follower:
    """Follows one log. Nothing is read twice, and a look at a log that has not grown costs two calls of the system.

    Args:
        path: the file in use.

    Attributes:
        path: the same.
        standing: what there is of it.
        unfinished_bytes: size of a last line that has no end yet: it is being written, or its writer died.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.standing = Standing.WAITING
        self._file: FileIO | None = None
        self._rest = b""
        self._at = 0
        self._sequence = 0
        self._joins = False

    @property
    def unfinished_bytes(self) -> int:
        """Size of a last line that has no end yet; bytes."""
        return len(self._rest)

    def poll(self) -> Iterator[Line]:
        """What was written since the last call; at most :data:`READ_BYTES` of it at a time.

        Raises:
            AuditError: it cannot be read, or is no audit log.
        """
        try:
            if self._file is None:
                yield from self._begin()
            else:
                yield from self._go_on(self._file)
        except OSError as error:
            raise AuditError(str(self.path), f"it cannot be read: {error}") from error

    def _go_on(self, file: FileIO) -> Iterator[Line]:
        try:
            yield from self._read(file)
            yield from self._turn(file)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            yield from self._join()  # another machine has put it aside: a network file system forgets what was open

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> Iterator[Line]:
        file = self._open()
        if file is None:
            return
        self._file, self.standing = file, Standing.FOLLOWED
        found = end_of(file)
        self._at = file.tell()
        for line in lines_before(self.path, file, found):
            yield from self._lines(line + b"\n")
        yield from self._lines(found)

    def _open(self) -> FileIO | None:
        """The file in use, checked to be a log; None where there is none, or nothing in it."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would let us wait
        except FileNotFoundError:
            return None
        file = FileIO(descriptor, "rb")
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        start = file.read(len(FIRST_BYTES)) if is_file else b""
        if is_file and start and start.startswith(FIRST_BYTES[: len(start)]):
            return file
        file.close()
        if is_file and not start:
            return None
        raise AuditError(str(self.path), "it is no audit log; give the path of one, such as run/audit.jsonl")

    def _read(self, file: FileIO) -> Iterator[Line]:
        file.seek(self._at)
        found = file.read(READ_BYTES)
        self._at += len(found)
        yield from self._lines(found)

    def _turn(self, file: FileIO) -> Iterator[Line]:
        """Go on with what is in the file's place, once all of it was read."""
        held = os.fstat(file.fileno())
        if held.st_size > self._at:
            return
        try:
            now = self.path.stat()
        except FileNotFoundError:
            self.standing = Standing.GONE
            return
        self.standing = Standing.FOLLOWED
        if not os.path.samestat(now, held):
            yield from self._read(file)  # what was written before the other took its place
            yield from self._join()
        elif held.st_size < self._at:
            yield Anew()
            self._forget()
            self._at = 0

    def _join(self) -> Iterator[Line]:
        """Go over to the file that is in the place now."""
        file = self._open()
        if file is None:
            return
        yield from self._torn()
        self.close()
        self._file, self._at, self._joins = file, 0, True
        yield from self._read(file)

    def _torn(self) -> Iterator[Line]:
        if self._rest:
            yield Torn(0, len(self._rest), "")
        self._rest = b""

    def _forget(self) -> None:
        self._rest, self._sequence = b"", 0

    def _lines(self, found: bytes) -> Iterator[Line]:
        *lines, self._rest = (self._rest + found).split(b"\n")
        for text in lines:
            line = parse_line(text, 0)
            if not isinstance(line, Torn):
                if self._joins:
                    yield from self._joined(line)
                self._sequence = _number(line)
            yield line
        if len(self._rest) > MOST_BYTES:  # no record: it is not held until its end comes
            yield from self._torn()

    def _joined(self, first: Record) -> Iterator[Line]:
        """What lies between the file before and the first record of this one."""
        self._joins = False
        number = _number(first)
        goes_on = first.get("event") == OPENED and bool(first.get("continues"))
        if goes_on and number > self._sequence + 1 and self._file is not None:
            for text in lines_between(self.path, self._file, self._sequence):
                line = parse_line(text, 0)
                if not isinstance(line, Torn) and self._sequence < _number(line) < number:
                    yield line
        elif number != self._sequence + 1:
            yield Anew()


def _number(record: Record) -> int:
    number = record["sequence"]
    return number if isinstance(number, int) else 0
