"""One small file, written whole or not at all, and read only when it is a plain file."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from lifecycle.adapters.refusals import RegistryFileError


def write_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 under a temporary name beside it, sync it, and rename it. The directory is synced too.

    Raises:
        RegistryFileError: it cannot be written, or *path* is a link or no plain file. What was there is as it was.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise RegistryFileError(path, "it is a link or no plain file; name the file itself")
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}-", suffix=".tmp", dir=path.parent)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - of an open descriptor
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, path)  # noqa: PTH105 - one call, which the tests let fail
        except BaseException:
            os.unlink(temporary)  # noqa: PTH108 - the same
            raise
        _sync(path.parent)
    except (OSError, ValueError) as error:  # ValueError: a null character
        if isinstance(error, RegistryFileError):
            raise
        raise RegistryFileError(path, f"it cannot be written: {getattr(error, 'strerror', None) or error}") from error


def read_file(path: Path, bytes_max: int) -> bytes:
    """The content of a plain file.

    Raises:
        RegistryFileError: it is missing, a link, no plain file, larger than *bytes_max*, or cannot be read.
    """
    try:
        # Not waiting for the writer of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of an open descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise RegistryFileError(path, "it is no plain file")
            if status.st_size > bytes_max:
                raise RegistryFileError(path, f"it has {status.st_size} bytes, at most {bytes_max} can be right")
            return file.read(bytes_max)
    except FileNotFoundError:
        raise RegistryFileError(path, "there is no such file; a new registry begins with AdapterRegistry()") from None
    except (OSError, ValueError) as error:
        if isinstance(error, RegistryFileError):
            raise
        why = "it is a link; name the file itself" if path.is_symlink() else f"it cannot be read: {error}"
        raise RegistryFileError(path, why) from error


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
