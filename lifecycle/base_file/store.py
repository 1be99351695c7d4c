"""Obtaining the file of a frozen base: found, or written by one process while the others wait.

The partial file is the writer's token: who holds it exclusively writes. It is synced, renamed to its final name
while still locked, and only then is the lock made a shared one; no step in between leaves a complete file behind
that nobody holds, except that changing the lock is not atomic, which is looked at afterwards.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from lifecycle.base_file import disk
from lifecycle.base_file.content import difference, write
from lifecycle.base_file.layout import Layout, digest_problem, layout_of
from lifecycle.base_file.locks import claim, has_name, lock, withdraw
from lifecycle.base_file.opened import BaseFile
from lifecycle.base_file.sweep import Cleaned, finished_name, partial_name, sweep
from lifecycle.errors import BaseFileError
from lifecycle.memory.host import is_real_disk
from lifecycle.private import make_folder

_POLL_S: Final = 0.02
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BaseFileStore:
    """The base files of one directory on a disk of this node. Processes share it through the file system alone.

    Args:
        directory: made with mode 0700 where it is missing.
        wait_s: how long to wait for another process that is writing the same file and makes no progress.
        grace_s: how long a file with wrong bytes may stay in use before that is an error: other processes that
            are just comparing it let go of it too.

    Raises:
        BaseFileError: the directory cannot be made.
    """

    def __init__(self, directory: str | Path, *, wait_s: float = 300.0, grace_s: float = 5.0) -> None:
        self.directory = Path(directory).absolute()
        self._wait_s = wait_s
        self._grace_s = grace_s
        try:
            make_folder(self.directory)
        except OSError as error:
            raise BaseFileError(str(directory), f"the directory cannot be made: {_plain(error)}") from error

    def is_real_disk(self) -> bool:
        """Whether the directory lies on a disk: on a memory-backed file system every base file takes memory."""
        return is_real_disk(str(self.directory))

    def need_bytes(self, tensors: Mapping[str, Tensor], digest: str) -> int:
        """Bytes of disk that :meth:`obtain` would write: the file's size, 0 when a file of that name and size is there.

        Raises:
            BaseFileError: the tensors cannot be laid out.
        """
        path, layout = self._laid_out(tensors, digest)
        try:
            found = os.lstat(path).st_size == layout.size_bytes
        except OSError:
            found = False
        return 0 if found else layout.size_bytes

    def obtain(self, tensors: Mapping[str, Tensor], digest: str) -> BaseFile:
        """Open the file that holds exactly these tensors, and write it first where it is missing.

        Files of other contents that nobody holds are removed before. A file of the right name is compared byte by
        byte with the tensors; one that differs is replaced when nobody holds it. Of several processes one writes.

        Args:
            tensors: the frozen base, readable until the call returns. Tied tensors are stored under each name.
            digest: ``digests.digest(tensors)``, which the caller has computed once. A file of another digest is
                never opened for reading.

        Returns:
            The open file; the caller closes it.

        Raises:
            BaseFileError: no room, a disk error, a name or dtype that the format lacks, something in the way that is
                not trusted, wrong bytes in a file that others use, or a writer that makes no progress. Nothing that
                this call wrote is left behind.
        """
        path, layout = self._laid_out(tensors, digest)
        try:
            sweep(self.directory, spare=digest)
            waiting = _Patience(path.with_name(partial_name(digest)), self._wait_s)
            while True:
                file = self._found(path, digest, layout, tensors) or self._written(path, digest, layout, tensors)
                if file is not None:
                    return file
                waiting.pause()
        except OSError as error:
            room = f" ({layout.size_bytes} bytes are needed; free some room or choose another directory)"
            hint = room if error.errno in _FULL else ""
            raise BaseFileError(str(path), f"it cannot be written or opened: {_plain(error)}{hint}") from error

    def clean(self) -> Cleaned:
        """Remove every base file of the directory, finished or partial, that no process holds.

        Raises:
            BaseFileError: the directory cannot be read.
        """
        try:
            return sweep(self.directory)
        except OSError as error:
            raise BaseFileError(str(self.directory), f"it cannot be read: {_plain(error)}") from error

    def _laid_out(self, tensors: Mapping[str, Tensor], digest: str) -> tuple[Path, Layout]:
        problem = digest_problem(digest)
        if problem:
            raise BaseFileError(str(self.directory), f"{digest!r} cannot name a file: {problem}")
        path = self.directory / finished_name(digest)
        return path, layout_of(tensors, digest, str(path))

    def _found(self, path: Path, digest: str, layout: Layout, tensors: Mapping[str, Tensor]) -> BaseFile | None:
        """The file that is there, None when there is none or its lock is just being changed."""
        try:
            descriptor = claim(path, exclusive=False)
        except BlockingIOError:
            return None
        if descriptor is None:
            return None
        try:
            before = os.fstat(descriptor)
            wrong = difference(descriptor, layout, tensors)
            if not wrong:
                return BaseFile(path, digest, layout, descriptor, before, written=False)
            self._discard(descriptor, path, wrong)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _discard(self, descriptor: int, path: Path, wrong: str) -> None:
        """Remove a file with wrong bytes once nobody else holds it. A file that replaced it is another inode."""
        deadline = time.monotonic() + self._grace_s
        while has_name(descriptor, path):
            try:
                lock(descriptor, exclusive=True)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BaseFileError(
                        str(path),
                        f"{wrong}, and another process uses it. End that process, or choose another directory",
                    ) from None
                time.sleep(_POLL_S)
                continue
            if has_name(descriptor, path):
                path.unlink()

    def _written(self, path: Path, digest: str, layout: Layout, tensors: Mapping[str, Tensor]) -> BaseFile | None:
        """The file, written by this process, None when another one is writing or has just done so."""
        partial = path.with_name(partial_name(digest))
        try:
            descriptor = claim(partial, exclusive=True, create=True)
        except BlockingIOError:
            return None
        assert descriptor is not None, "a file that may be created is there"
        try:
            # What a writer that died has left is not written over: somebody may have it open.
            if not os.path.lexists(path) and os.fstat(descriptor).st_size == 0:
                write(descriptor, layout, tensors)
                if _publish(descriptor, partial, path):
                    return BaseFile(path, digest, layout, descriptor, os.fstat(descriptor), written=True)
        except BaseException:
            withdraw(descriptor, partial, path)
            raise
        withdraw(descriptor, partial)
        return None


def _publish(descriptor: int, partial: Path, path: Path) -> bool:
    """Give the complete file its name, and keep a shared lock. False when another process came in between."""
    if not has_name(descriptor, partial):
        return False
    partial.rename(path)
    disk.sync_folder(path.parent)
    try:
        lock(descriptor, exclusive=False)
    except BlockingIOError:
        return False
    return has_name(descriptor, path)


def _plain(error: OSError) -> str:
    return error.strerror or str(error)


class _Patience:
    """Waits for another process; the clock starts anew whenever the partial file changes."""

    def __init__(self, partial: Path, wait_s: float) -> None:
        self._partial = partial
        self._wait_s = wait_s
        self._seen: tuple[int, int] | None = None
        self._deadline = time.monotonic() + wait_s

    def pause(self) -> None:
        """Wait a moment.

        Raises:
            BaseFileError: nothing has changed for too long.
        """
        try:
            status = os.lstat(self._partial)
            seen = (status.st_ino, status.st_mtime_ns)
        except FileNotFoundError:
            seen = None
        if seen != self._seen:
            self._seen, self._deadline = seen, time.monotonic() + self._wait_s
        if time.monotonic() > self._deadline:
            raise BaseFileError(
                str(self._partial),
                f"another process holds it and has written nothing for {self._wait_s:g} s. End that process",
            )
        time.sleep(_POLL_S)
