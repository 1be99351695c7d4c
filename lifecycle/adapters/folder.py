"""A directory that somebody else may change while it is read: opened once, and what is read is read in it.

Links are followed inside of the directory only. Each part of a path is opened relative to the one above
it and not following links, so that nothing can be put in its place between a look and the use of it.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from lifecycle.errors import AdapterError

CONFIG_NAME: Final = "adapter_config.json"
CONFIG_BYTES_MAX: Final = 2**20
WEIGHTS_NAME: Final = "adapter_model.safetensors"
WEIGHTS_BYTES_MAX: Final = 2**34

_GIVE: Final = "give the directory that holds the files, and one that may be read"
_PICKLES: Final = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not waiting for the writer of a pipe.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a PEFT directory was when it was registered. Plain values: they can be saved and compared.

    Attributes:
        place: the real path of the directory, links resolved.
        config_sha256: of the bytes of ``adapter_config.json``, as hexadecimal digits.
        weights_sha256: of the bytes of ``adapter_model.safetensors``.
    """

    place: str
    config_sha256: str
    weights_sha256: str


def identify(adapter: str, directory: Path) -> FileIdentity:
    """Read a directory's two files and say what they are. Their content is not parsed, no tensor is made.

    Raises:
        AdapterError: naming the file and why it cannot be read.
    """
    with Folder(adapter, directory) as folder:
        config = folder.digest(CONFIG_NAME, CONFIG_BYTES_MAX)
        folder.refuse_pickles()
        return FileIdentity(folder.place, config, folder.digest(WEIGHTS_NAME, WEIGHTS_BYTES_MAX))


def sha256_of(content: bytes) -> str:
    """The SHA-256 of bytes, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


class Folder:
    """A directory, open until the block ends.

    Args:
        adapter: for messages.
        directory: where it is; links on the way to it are followed now and not again.

    Attributes:
        place: its real path.

    Raises:
        AdapterError: it is no directory, or cannot be opened.
    """

    def __init__(self, adapter: str, directory: Path) -> None:
        self._adapter, self._directory = adapter, directory
        try:
            self.place = os.path.realpath(directory, strict=True)
            self._descriptor = os.open(self.place, _FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            raise AdapterError(adapter, f"{directory} is no directory; {_GIVE}") from None
        except (OSError, ValueError) as error:  # ValueError: a null character
            raise AdapterError(adapter, f"{directory} is no directory that can be opened: {error}; {_GIVE}") from error

    def refuse_pickles(self) -> None:
        """Say so when the weights are there as a pickle only.

        Raises:
            AdapterError: they are.
        """
        if self.has(WEIGHTS_NAME):
            return
        for name in filter(self.has, _PICKLES):
            raise AdapterError(
                self._adapter,
                f"{name} is a pickle, which can run code when it is read; it was not opened. "
                f"Save the adapter as {WEIGHTS_NAME}",
            )

    def has(self, name: str) -> bool:
        """Whether there is anything of this name, a dangling link included."""
        try:
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    def read(self, name: str, bytes_max: int) -> bytes:
        """The content of a regular file whose real place is inside the directory.

        Raises:
            AdapterError: there is none, it leads out, it is larger than *bytes_max*, or cannot be read.
        """
        with self._open(name, bytes_max) as file:
            return file.read(bytes_max)

    def digest(self, name: str, bytes_max: int) -> str:
        """The SHA-256 of the file that :meth:`read` would read, which is never in memory as a whole.

        Raises:
            AdapterError: as :meth:`read`.
        """
        with self._open(name, bytes_max) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @contextmanager
    def _open(self, name: str, bytes_max: int) -> Iterator[io.BufferedReader]:
        adapter, path = self._adapter, self._directory / name
        try:
            descriptor = self._open_beneath(name)
            with open(descriptor, "rb") as file:  # noqa: PTH123 - of an open descriptor
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise AdapterError(adapter, f"{path} is no regular file")
                if status.st_size > bytes_max:
                    raise AdapterError(adapter, f"{name} has {status.st_size} bytes, at most {bytes_max} can be right")
                yield file
        except FileNotFoundError:
            raise AdapterError(adapter, f"{self._directory} has no {name}") from None
        except (OSError, ValueError) as error:
            if isinstance(error, AdapterError):
                raise
            raise AdapterError(adapter, f"{path} cannot be read: {error}") from error

    def _open_beneath(self, name: str) -> int:
        """Open what a name leads to, relative to the open directory; the parts of its real path follow no link."""
        real = os.path.realpath(os.path.join(self.place, name), strict=True)  # noqa: PTH118 - of real paths
        if not Path(real).is_relative_to(self.place):
            why = f"{name} is a link that leads out of {self._directory}; put the file itself there"
            raise AdapterError(self._adapter, why)
        *folders, last = Path(real).relative_to(self.place).parts or (".",)
        above = self._descriptor
        try:
            for part in folders:
                below = os.open(part, _FOLDER, dir_fd=above)
                self._close(above)
                above = below
            return os.open(last, _FILE, dir_fd=above)
        finally:
            self._close(above)

    def _close(self, descriptor: int) -> None:
        """Close one on the way down; the directory's own stays open."""
        if descriptor != self._descriptor:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
