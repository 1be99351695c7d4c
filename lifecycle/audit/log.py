"""The audit log: one JSON line a record, in the hands of the operating system before the call returns.

The native memory layer may end the process at once; no ``finally`` runs then, and what was only
buffered is lost. A record is therefore one ``write`` to the file, with no buffer in between. Records
are numbered and chained by hash, so that a missing, changed or reordered line is found.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import structlog

from lifecycle.audit.added import read_added
from lifecycle.audit.chain import BEGAN, ENDS, NAMES, OPENED, Chain, Keys, checked
from lifecycle.audit.expand import Expander
from lifecycle.audit.file import LogFile
from lifecycle.audit.rotation import tidy
from lifecycle.audit.tail import Tail, read_tail
from lifecycle.audit.told import told
from lifecycle.errors import AuditError, ConfigError

__all__ = ["NAMES", "AuditLog", "MemoryAudit"]

_ALONE: Final = frozenset({BEGAN, "lifecycle.refused", "lifecycle.unchanged"})
_LAST: Final = _ALONE - {BEGAN} | ENDS
"""Records that a transition begins with, and those after which it is over: both stand in one file."""


class MemoryAudit:
    """The same records, kept in a list: for tests, and where nobody asked for a file.

    Args:
        run: name of the run; drawn when None.
        rank: this rank.
        model: the trainer's model.
        records_max: how many records are kept; the oldest are forgotten.

    Attributes:
        records: what was written, oldest first, as it would be read back from a file: with all facts. Records share
            the parts of them that did not change; do not change any.
    """

    def __init__(
        self, *, run: str | None = None, rank: int = 0, model: str = "actor", records_max: int = 10_000
    ) -> None:
        self.records: list[dict[str, object]] = []
        self._records_max = records_max
        self._chain = Chain(run, rank, model)
        self._expander = Expander()
        self._lock = threading.Lock()

    def write(self, name: str, keys: Mapping[str, object]) -> None:
        """Append one record.

        Raises:
            AuditError: the name or a key is not one that a record may have.
        """
        encoded = checked("in memory", name, keys)
        with self._lock:
            record = json.loads(self._chain.line(name, encoded))
            self._chain.kept()
            self._expander.expand(record)
            self.records.append(record)
            del self.records[: -self._records_max]


class _Line:
    """The end of structlog's chain: puts a rendered record on the file, without a buffer.

    structlog's own WriteLogger keeps what could not be written in the file's buffer, and writes it later.
    """

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def msg(self, text: str) -> None:
        """Write one line."""
        self._put(text.encode() + b"\n")


class AuditLog:
    """Appends records to one file. One log a rank; opening an existing one continues its numbers and its chain.

    The file is made its owner's alone (0600), also one that is continued, and so is a directory that has
    to be made (0700). A symbolic link in its place is not followed. Whether training stops when a record
    cannot be written is the controller's to decide.

    Args:
        path: the file.
        run: name of the run; a random one when None.
        rank: this process's rank.
        model: whose life cycle this is.
        max_bytes: a file that has become as large is put aside before the next transition, as ``NAME.1``, ``NAME.2``
            and so on; the chain goes on in a new file. Never when None.
        keep: how many files that were put aside are kept; the oldest are removed. All of them when None.
        compress: whether what was put aside is compressed (gzip), about a second for 50 MB, in the call that rotates.
        fsync: whether each record is on the disk before the call goes on (fsync, milliseconds a record). Without it a
            record is with the operating system: it outlives this process, whatever ends it, and not the machine.

    Raises:
        AuditError: the file cannot be opened, is a link, is something else than an audit log, or is another
            user's that others may write.
        ConfigError: a bound is no whole number above 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        rank: int = 0,
        model: str = "actor",
        max_bytes: int | None = None,
        keep: int | None = None,
        compress: bool = False,
        fsync: bool = False,
    ) -> None:
        _check_bounds(max_bytes=max_bytes, keep=keep)
        self.path = Path(path)
        self._max_bytes, self._keep, self._compress = max_bytes, keep, compress
        self._lock = threading.Lock()
        self._chain = Chain(run, rank, model)
        self._size = self._end = 0
        self._is_between = True
        self._file = LogFile(self.path, fsync=fsync)
        self._logger: Any = structlog.wrap_logger(
            _Line(self._put),
            processors=[self._chain.stamp],
            wrapper_class=structlog.BoundLogger,
            context_class=dict,
        ).bind()  # once: a lazy proxy would be bound anew for each record
        try:
            with self._alone():
                self._begin_session()
        except BaseException:
            self.close()
            raise

    def write(self, name: str, keys: Mapping[str, object]) -> None:
        """Append one record; when this returns, the line is with the operating system.

        Args:
            name: one of :data:`NAMES`.
            keys: its values; anything is encoded, see :func:`lifecycle.audit.plain.plain`.

        Raises:
            AuditError: the line could not be written (the file then ends with the record before), the file was
                removed or moved away, the log is closed, another rank or run writes it too, or the name or a key is not
                one that a record may have.
        """
        encoded = checked(str(self.path), name, keys)
        with self._alone():
            if self._file.size_bytes() != self._size:
                # Another process wrote here (a fork), or an interrupt fell between write and count.
                added = read_added(self._file.path, self._size, self._chain.identity)
                self._continue(added or read_tail(self._file.path))
            if self._max_bytes is not None and self._size >= self._max_bytes and (self._is_between or name in _ALONE):
                self._rotate()
            self._append(name, encoded)
            self._is_between = name in _LAST or (self._is_between and name != BEGAN)

    def close(self) -> None:
        """Close the file. Idempotent; the records are on disk already."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread and no other process writes meanwhile. Errors of the system become ours."""
        with self._lock:
            try:
                with self._file.locked() as is_another:
                    if is_another:
                        self._continue(read_tail(self._file.path), after=self._chain.sequence)
                    yield
            except OSError as error:
                raise AuditError(str(self.path), f"a record could not be written: {error}") from error

    def _begin_session(self) -> None:
        tail = read_tail(self._file.path)
        self._file.take()  # only now: what is no log is left alone, its mode too
        self._continue(tail)
        keys = {
            "restart": tail.sequence > 0 or tail.torn_bytes > 0,
            "last_hash": tail.hash,
            "torn_bytes": tail.torn_bytes,
            "unfinished": [
                {key: one.get(key) for key in ("sequence", "trigger", "edge", "source")} for one in tail.unfinished
            ],
            "pid": os.getpid(),
            "continues": tail.continues,
        }
        self._append(OPENED, Keys(told(keys), None))

    def _continue(self, tail: Tail, *, after: int = 0) -> None:
        if tail.sequence < after:
            raise AuditError(str(self.path), f"another file is in its place, without record {after}; open a new log")
        self._chain.follow(tail.sequence, tail.hash)
        self._size = tail.size_bytes
        if tail.needs_newline:
            # The torn line stays as it is, as evidence; it only gets an end, so that the next one is whole.
            self._put(b"\n")
            self._size = self._end

    def _rotate(self) -> None:
        """Go on in a new file, whose first record names the one before it and the last hash there."""
        keys = {
            "restart": False,
            "last_hash": self._chain.hash,
            "torn_bytes": 0,
            "unfinished": [],
            "pid": os.getpid(),
        }
        self._chain.forget_facts()

        def begin(aside: str) -> bytes:
            return self._chain.line(OPENED, Keys(told({**keys, "continues": aside}), None)).encode() + b"\n"

        size_bytes = self._file.replaced(begin)
        self._chain.kept()
        self._size = size_bytes
        tidy(self._file.path, keep=self._keep, compress=self._compress)

    def _append(self, name: str, keys: Keys) -> None:
        self._logger.msg(name, keys=keys)
        self._chain.kept()
        self._size = self._end  # last: after an interrupt before this the next record looks at the file

    def _put(self, data: bytes) -> None:
        self._file.append(data, self._size)
        self._end = self._size + len(data)


def _check_bounds(**bounds: int | None) -> None:
    for name, bound in bounds.items():
        if bound is not None and (type(bound) is not int or bound < 1):
            raise ConfigError(f"{name} is {bound!r}; give a whole number above 0, or None for no bound")
