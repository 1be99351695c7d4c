"""Files that stand for transport bytes, locked by who uses them: a lock goes with its process, also a killed one.

The sender holds a shared lock as long as it lives, each reader as long as it has a view. So the sender can tell whether
every reader has let go, and whoever comes later removes what a dead sender left behind.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from lifecycle.base_file.locks import claim, has_name, lock, withdraw
from lifecycle.errors import BaseFileError, ConfigError
from lifecycle.private import make_folder

_PREFIX: Final = "adapter-lifecycle-"
_NAME: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}")


class Unreadable(Exception):
    """A reader cannot use what it was sent."""


class LeasedFile:
    """A new file, 0600, under a name that cannot be guessed; locked by this process until it is removed.

    Args:
        folder: where.

    Attributes:
        name: in that folder.
        descriptor: open for reading and writing.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.name = f"{_PREFIX}{secrets.token_hex(16)}"
        self._path = folder / self.name
        found = claim(self._path, exclusive=False, create=True)
        assert found is not None  # it is made where it is missing
        self.descriptor: int = found

    def is_read(self) -> bool:
        """Whether a reader has it."""
        try:
            lock(self.descriptor, exclusive=True)
        except BlockingIOError:
            return True
        finally:
            with suppress(BlockingIOError):
                lock(self.descriptor, exclusive=False)
        return False

    def has_name(self) -> bool:
        """Whether readers can still find it: a tidy stranger may have removed it."""
        return has_name(self.descriptor, self._path)

    def remove(self) -> None:
        """Give its bytes back and remove it. Nobody may have it."""
        with suppress(OSError):
            os.ftruncate(self.descriptor, 0)  # also for a child that was forked meanwhile and has the mapping
        withdraw(self.descriptor, self._path)


def open_leased(folder: Path, name: object) -> int:
    """A reader's descriptor with a shared lock, which the reader closes.

    Raises:
        Unreadable: the name is not one of ours, nothing has it, or what has it is not this user's file.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Unreadable(f"{str(name)[:80]!r} is no name of a transport file")
    try:
        descriptor = claim(folder / name, exclusive=False)
    except (BaseFileError, OSError) as error:
        raise Unreadable(f"{folder / name}: {error}") from error
    if descriptor is None:
        raise Unreadable(f"there is no {folder / name}; sender and receiver have to see the same directory")
    return descriptor


def sweep(folder: Path) -> int:
    """Remove what dead senders left in a folder. Returns how many files."""
    removed = 0
    for path in folder.glob(f"{_PREFIX}*"):
        if not _NAME.fullmatch(path.name):
            continue
        try:
            descriptor = claim(path, exclusive=True)
        except (BlockingIOError, BaseFileError, OSError):
            continue  # in use, or not ours
        if descriptor is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            removed += 1
    return removed


def private_folder(folder: Path) -> Path:
    """A folder of this user alone, made where it is missing.

    Raises:
        ConfigError: it cannot be made, or others may write it.
    """
    try:
        make_folder(folder)
        found = folder.stat()
    except OSError as error:
        raise ConfigError(f"transport files cannot be kept in {folder}: {error.strerror}") from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} is another user's, or open to others; give one of your own, mode 0700")
    return folder
