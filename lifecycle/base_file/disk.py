"""The one place where the operating system is asked to reserve, write, read and sync; whole, or an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def reserve(descriptor: int, size_bytes: int) -> None:
    """Give the file its size and its room on the disk, so that a full disk is known before the first byte.

    Raises:
        OSError: no room (ENOSPC, EDQUOT) or too large (EFBIG).
    """
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:  # such a file system says so at the write
            raise


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of the data at the offset.

    Raises:
        OSError: as the operating system says.
    """
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)


def read_all(descriptor: int, into: memoryview, offset: int) -> int:
    """Fill the buffer from the offset on. Returns the bytes read: fewer than asked for where the file ends.

    Raises:
        OSError: as the operating system says.
    """
    done = 0
    while done < len(into):
        count = os.preadv(descriptor, [into[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def sync(descriptor: int) -> None:
    """Wait until the file is on the disk.

    Raises:
        OSError: it is not.
    """
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on the disk.

    Raises:
        OSError: they are not.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
