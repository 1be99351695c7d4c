"""The audit log: one JSON line a record, in the hands of the operating system before the call returns.

The native memory layer may end the process at once; no ``finally`` runs then, and what was only
buffered is lost. A record is therefore one ``write`` to the file, with no buffer in between. Records
are numbered and chained by hash, so that a missing, changed or reordered line is found.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import structlog

from lifecycle import private
from lifecycle.audit.chain import NAMES, OPENED, Chain, Keys, checked
from lifecycle.audit.expand import Expander
from lifecycle.audit.read import Tail, read_tail
from lifecycle.audit.told import told
from lifecycle.errors import AuditError

__all__ = ["NAMES", "AuditLog", "MemoryAudit"]

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


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
            record = json.loads(self._chain.stamp(None, "msg", {"event": name, "keys": encoded}))
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

    Raises:
        AuditError: the file cannot be opened, is a link, is something else than an audit log, or is another
            user's that others may write.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, run: str | None = None, rank: int = 0, model: str = "actor"
    ) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._chain = Chain(run, rank, model)
        self._size = 0
        self._fd = self._open()
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
            keys: its values; anything is encoded, see :func:`lifecycle.plain.plain`.

        Raises:
            AuditError: the line could not be written (the file then ends with the record before), the
                log is closed, or the name or a key is not one that a record may have.
        """
        encoded = checked(str(self.path), name, keys)
        with self._alone():
            if os.fstat(self._fd).st_size != self._size:
                # Another process wrote here (a fork), or an interrupt fell between write and count.
                self._continue(read_tail(self.path))
            self._append(name, encoded)

    def close(self) -> None:
        """Close the file. Idempotent; the records are on disk already."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        try:
            private.make_folder(self.path.absolute().parent)
            fd = os.open(self.path, _FLAGS, 0o600)
        except OSError as error:
            is_link = error.errno == errno.ELOOP and self.path.is_symlink()
            why = "it is a symbolic link; name the file itself" if is_link else error
            raise AuditError(str(self.path), f"it cannot be opened: {why}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise AuditError(str(self.path), "it is no regular file; choose another path")
        return fd

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread and no other process writes meanwhile. Errors of the system become ours."""
        with self._lock:
            if self._fd < 0:
                raise AuditError(str(self.path), "it is closed; open a new log")
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX)
                try:
                    yield
                finally:
                    fcntl.lockf(self._fd, fcntl.LOCK_UN)
            except OSError as error:
                raise AuditError(str(self.path), f"a record could not be written: {error}") from error

    def _begin_session(self) -> None:
        tail = read_tail(self.path)
        distrust = private.take(self._fd)  # only now: what is no log is left alone, its mode too
        if distrust:
            raise AuditError(str(self.path), f"{distrust}; choose another path")
        self._continue(tail)
        keys = {
            "restart": tail.sequence > 0 or tail.torn_bytes > 0,
            "last_hash": tail.hash,
            "torn_bytes": tail.torn_bytes,
            "unfinished": [
                {key: one.get(key) for key in ("sequence", "trigger", "edge", "source")} for one in tail.unfinished
            ],
            "pid": os.getpid(),
        }
        self._append(OPENED, Keys(told(keys), None))

    def _continue(self, tail: Tail) -> None:
        self._chain.follow(tail.sequence, tail.hash)
        self._size = tail.size_bytes
        if tail.needs_newline:
            # The torn line stays as it is, as evidence; it only gets an end, so that the next one is whole.
            self._put(b"\n")

    def _append(self, name: str, keys: Keys) -> None:
        self._logger.msg(name, keys=keys)
        self._chain.kept()

    def _put(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += written
