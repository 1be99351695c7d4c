"""Files of the arena's disk backups: who has one holds a shared ``flock`` on it, so that leftovers can be told.

Names begin like those of torch_memory_saver, and go on differently: its files carry no lock, and nobody can tell
whether a process still needs them. They are never touched.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "tms_arena_"
_NAME: Final = re.compile(PREFIX + "[a-z0-9_]{8}")


def create(folder: str) -> tuple[int, str]:
    """A new, empty file of mode 0600 that is locked as in use.

    Returns:
        Its descriptor, which keeps the lock until it is closed, and its path.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        descriptor, path = tempfile.mkstemp(prefix=PREFIX, dir=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _has_name(descriptor, path):
                return descriptor, path
        except BlockingIOError:  # a sweep saw it before it was locked, and removes it
            pass
        except BaseException:
            os.close(descriptor)
            Path(path).unlink(missing_ok=True)
            raise
        os.close(descriptor)


def sweep(folder: str | Path) -> dict[str, int]:
    """Remove the arenas' files that no process holds; what cannot be removed is left alone.

    Returns:
        Name to size in bytes of what was removed.
    """
    removed: dict[str, int] = {}
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names are wanted
        if _NAME.fullmatch(name):
            with suppress(OSError):  # somebody holds it, has just removed it, or it is another user's
                removed[name] = _remove(Path(folder) / name)
    return removed


def held(folder: str | Path) -> tuple[str, ...]:
    """Names of the arenas' files in a folder, sorted; after a :func:`sweep` those that a process holds."""
    return tuple(sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name)))  # noqa: PTH208


def of_the_library(folder: str | Path) -> tuple[str, ...]:
    """Names of files that torch_memory_saver may have left or may need, sorted."""
    return tuple(sorted(path.name for path in Path(folder).glob("tms_*") if not _NAME.fullmatch(path.name)))


def _remove(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_name(descriptor, str(path)):
            path.unlink()
        return status.st_size
    finally:
        os.close(descriptor)


def _has_name(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
