"""The file that a log is written to: opened with care, locked against other processes, and found again."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lifecycle import private
from lifecycle.audit.rotation import aside_name, new_file, put_aside
from lifecycle.errors import AuditError

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_GONE: Final = "its file was removed or moved away, records would be lost with it; open a new log"


class LogFile:
    """One file, appended to by whoever holds its lock. Not for several threads at once.

    Args:
        path: the file; made if it is not there.
        fsync: whether what is written, and a name that is made, is on the disk before the call returns.

    Attributes:
        path: the same, absolute: the process may go to another folder.

    Raises:
        AuditError: it cannot be opened, is a link, or is no regular file.
    """

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self.path = path.absolute()
        self._fsync = fsync
        self._fd = self._opened(make=True)
        self._owner = os.getpid()
        self._keep_names()

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def size_bytes(self) -> int:
        """How long it is now."""
        return os.fstat(self._fd).st_size

    def take(self) -> None:
        """Make it its owner's alone.

        Raises:
            AuditError: it is another user's that others may write.
        """
        distrust = private.take(self._fd)
        if distrust:
            raise AuditError(str(self.path), f"{distrust}; choose another path")

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the lock of the file that is in use now.

        Yields:
            Whether that is another file than the last time: a process that shares the log has rotated it.

        Raises:
            AuditError: the log is closed, or nothing is at its path any more.
            OSError: it cannot be locked.
        """
        if self._fd < 0:
            raise AuditError(str(self.path), "it is closed; open a new log")
        if self._owner != os.getpid():
            # After a fork both processes have the same open file, and so the same lock: neither waits for the other.
            self._go_on_with(self._opened_again())
            self._owner = os.getpid()
        is_another = False
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            while not self._is_in_use():
                is_another = True
                fresh = self._opened_again()
                self._go_on_with(fresh)
                fcntl.flock(self._fd, fcntl.LOCK_EX)
            yield is_another
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def append(self, data: bytes, size_bytes: int) -> None:
        """Write at the end, without a buffer. What cannot be written whole is taken back.

        Args:
            data: whole lines.
            size_bytes: how long the file is.

        Raises:
            OSError: it cannot be written.
        """
        try:
            self._write(self._fd, data)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._fd, size_bytes)
            raise

    def replaced(self, begin: Callable[[str], bytes]) -> int:
        """Put the file aside and go on in a new one; the caller holds the lock, and then that of the new one.

        Args:
            begin: given the name that the old file gets, the new one's first line.

        Returns:
            The size of the new file in bytes.

        Raises:
            OSError: that cannot be done. The old file is in use as before, or the new one where its name alone is not
                on the disk yet.
        """
        fresh, name = new_file(self.path)
        try:
            fcntl.flock(fresh, fcntl.LOCK_EX)
            aside = aside_name(self.path)
            self._write(fresh, begin(aside.name))
            put_aside(self.path, aside)
            name.rename(self.path)
        except BaseException:
            os.close(fresh)
            raise
        self._go_on_with(fresh)
        self._keep_names()
        return self.size_bytes()

    def _go_on_with(self, descriptor: int) -> None:
        old, self._fd = self._fd, descriptor
        os.close(old)

    def _is_in_use(self) -> bool:
        """Whether the file that is open is the one at the path.

        Raises:
            AuditError: there is none.
        """
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.lstat())
        except FileNotFoundError as error:
            raise AuditError(str(self.path), _GONE) from error

    def _opened_again(self) -> int:
        descriptor = self._opened(make=False)
        distrust = private.take(descriptor)
        if distrust:
            os.close(descriptor)
            raise AuditError(str(self.path), f"{distrust}; open a new log at another path")
        return descriptor

    def _opened(self, *, make: bool) -> int:
        try:
            if make:
                private.make_folder(self.path.parent)
            fd = os.open(self.path, _FLAGS if make else _FLAGS & ~os.O_CREAT, 0o600)
        except OSError as error:
            is_link = error.errno == errno.ELOOP and self.path.is_symlink()
            why = "it is a symbolic link; name the file itself" if is_link else error
            raise AuditError(str(self.path), f"it cannot be opened: {why}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise AuditError(str(self.path), "it is no regular file; choose another path")
        return fd

    def _write(self, descriptor: int, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        if self._fsync:
            os.fsync(descriptor)

    def _keep_names(self) -> None:
        """A file that is on the disk is lost all the same while its name is not."""
        if not self._fsync:
            return
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
