"""Who uses a file: ``flock`` on the open file, shared by users, exclusive for who writes or removes it.

A lock belongs to an open file and goes when its last descriptor is closed, also when the process is killed. A
forked child shares the open file: nothing here unlocks but by closing, so that a child cannot unlock its parent.
Made for disks of the node: over a network file system such locks may not reach the other nodes.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from lifecycle.errors import BaseFileError

# Not following links, and not waiting for the writer of a pipe.
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def claim(path: Path, *, exclusive: bool, create: bool = False) -> int | None:
    """Open and lock the file that has this name, without waiting.

    Between opening and locking a file may lose its name to who removes it: then it is opened anew.

    Returns:
        The descriptor, which the caller closes, or None when there is no such file.

    Raises:
        BlockingIOError: somebody holds it.
        BaseFileError: what has this name is not a regular file of this user.
        OSError: it cannot be opened.
    """
    while True:
        descriptor = _open(path, create=create)
        if descriptor is None:
            return None
        try:
            lock(descriptor, exclusive=exclusive)
            if has_name(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock(descriptor: int, *, exclusive: bool) -> None:
    """Lock, or change the lock. A change is not atomic: another may come in between, so look at the name after it.

    Raises:
        BlockingIOError: somebody holds it; no lock is held now.
    """
    fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


def withdraw(descriptor: int, *names: Path) -> None:
    """Let go of a file, and remove it under whichever of the names it has, unless somebody else holds it."""
    try:
        lock(descriptor, exclusive=True)
        for name in names:
            if has_name(descriptor, name):
                name.unlink()
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


def has_name(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that has this name now."""
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(descriptor))


def _open(path: Path, *, create: bool) -> int | None:
    try:
        descriptor = os.open(path, _FLAGS | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = _path_problem(path)
        if problem:
            raise BaseFileError(str(path), problem) from error
        raise
    problem = trust_problem(os.fstat(descriptor))
    if problem:
        os.close(descriptor)
        raise BaseFileError(str(path), problem)
    return descriptor


def _path_problem(path: Path) -> str:
    try:
        return trust_problem(os.lstat(path))
    except FileNotFoundError:
        return ""


def trust_problem(status: os.stat_result) -> str:
    """Why what has this status is not ours to read or remove, empty when it is."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a link, which is not followed; remove it or choose another directory"
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file; remove it or choose another directory"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid} and is not trusted; choose a directory of your own"
    return ""
