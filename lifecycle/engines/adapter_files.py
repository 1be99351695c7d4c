"""An adapter on its way to a server: a PEFT directory in private memory, there for one load and gone after it.

Or for as long as it is served, where the server may read it again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lifecycle.adapters.files import render_tensors
from lifecycle.adapters.folder import CONFIG_NAME, WEIGHTS_NAME
from lifecycle.adapters.given import as_path
from lifecycle.adapters.peft_config import render_config
from lifecycle.adapters.sources import check_name
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AdapterError, ConfigError
from lifecycle.private import make_folder

PREFIX: Final = "adapter-lifecycle-"
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - what is made in it is 0700


class AdapterFiles:
    """Where adapters lie while a server loads them, each version at a path of its own: ``NAME/vVERSION``.

    The server has to see the same path: it runs on this host, or shares the directory. Directories are 0700 and files
    0600: the server runs as the same user.

    All of them lie in one new directory, which is locked as long as this object lives and removed with it: what else
    lies beside it is somebody else's.

    Args:
        directory: where to make it; made 0700 where it is missing. None: in ``/dev/shm``, else a temporary directory.

    Raises:
        ConfigError: it cannot be made, or others may write it.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        try:
            self._home = _memory() if directory is None else _own_folder(directory)
            self._root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._home))
            lock = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            weakref.finalize(self, _remove_own, self._root, lock, os.getpid())
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError as error:
            raise ConfigError(f"adapters cannot be written to {directory or _memory()}: {error.strerror}") from error

    @property
    def root(self) -> Path:
        """The directory above all adapters."""
        return self._root

    @contextmanager
    def written(self, payload: AdapterPayload) -> Iterator[Path]:
        """Write the adapter, lend its directory, and remove it.

        Args:
            payload: copied before the block is entered.

        Raises:
            AdapterError: its name cannot be that of a directory, or there is no room. Nothing is left behind.
        """
        place = self.write(payload)
        try:
            yield place
        finally:
            self.remove(place)

    def write(self, payload: AdapterPayload) -> Path:
        """Write the adapter; it stays until :meth:`remove` or :meth:`keep`, for a server that reads it again.

        Raises:
            AdapterError: its name cannot be that of a directory, or there is no room. Nothing is left behind.
        """
        name = check_name(payload.name)
        place = self.place(name, payload.version)
        contents = {
            CONFIG_NAME: render_config(payload.rank, payload.alpha, payload.target_modules),
            WEIGHTS_NAME: render_tensors(payload.tensors),
        }
        try:
            shutil.rmtree(place, ignore_errors=True)  # a load of this version that was cut short
            place.parent.mkdir(mode=0o700, exist_ok=True)
            place.mkdir(mode=0o700)
            for file, content in contents.items():
                _write(place / file, content)
        except OSError as error:
            self.remove(place)
            raise AdapterError(name, f"it cannot be written to {place}: {error.strerror}; make room there") from error
        return place

    def place(self, name: str, version: int) -> Path:
        """Where a version of an adapter lies, or would."""
        return self._root / name / f"v{version}"

    def is_ours(self, place: Path) -> bool:
        """Whether this object has written there, or one like it of this user that is gone: its process has ended."""
        if place.is_relative_to(self._root):
            return True
        if not place.is_relative_to(self._home):
            return False
        maker = place.relative_to(self._home).parts[:1]
        return bool(maker) and maker[0].startswith(PREFIX) and _is_left(self._home / maker[0])

    def remove(self, place: Path) -> None:
        """Remove one version. What is not there is removed already."""
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):  # not empty: another version is on its way
            place.parent.rmdir()

    def keep(self, places: Collection[Path]) -> None:
        """Remove every version but these."""
        for place in self._root.glob("*/v*"):
            if place not in places:
                self.remove(place)


def _own_folder(directory: str | Path) -> Path:
    folder = as_path("directory", directory, "of adapter files").absolute()
    make_folder(folder)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ConfigError(f"{folder} is another user's, or others may write it; give one of your own, mode 0700")
    return folder


def _remove_own(root: Path, lock: int, maker: int) -> None:
    """Not at the end of a child that was forked meanwhile: the server still reads them."""
    if os.getpid() == maker:
        shutil.rmtree(root, ignore_errors=True)
        os.close(lock)


def _is_left(root: Path) -> bool:
    """Whether nobody who lives has made this directory: it is gone, or this user's and not locked."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _memory() -> Path:
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - of an open descriptor
        file.write(content)
