"""The base file of one trainer: which version it holds, and how its bytes come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from lifecycle.errors import BaseFileError, UnreadableTensor

if TYPE_CHECKING:
    from lifecycle.base_file import BaseFile


class FrozenFile:
    """The frozen base of one trainer on disk, or nothing where the run has none.

    Args:
        directory: where base files lie, None when the frozen base is not backed by a file.
    """

    def __init__(self, directory: str | None) -> None:
        self.directory = directory
        self._file: BaseFile | None = None
        self._version: int | None = None
        self._damage = ""

    @property
    def wanted(self) -> bool:
        """Whether the frozen base is backed by a file."""
        return self.directory is not None

    @property
    def version(self) -> int | None:
        """The version whose bytes can be read from the file, None when there is none or it was damaged."""
        return self._version if self._file is not None and not self.problem() else None

    def problem(self) -> str:
        """Why the file cannot serve, empty when it can or there is none.

        A file that was touched is compared in full, once; a damaged one is never used again.
        """
        if self._file is None or self._damage:
            return self._damage
        try:
            self._file.check()
            if not self._file.is_untouched():
                self._file.compare()
        except BaseFileError as error:
            self._damage = str(error)
        return self._damage

    def compare(self) -> str:
        """Compare the file in full, touched or not; a damaged one is never used again.

        Returns:
            Why it cannot serve, empty when it can or there is none.
        """
        if self._file is not None and not self._damage:
            try:
                self._file.compare()
            except BaseFileError as error:
                self._damage = str(error)
        return self._damage

    def write(self, tensors: Mapping[str, Tensor], content_digest: str, version: int) -> int:
        """Find or write the file of these bytes and hold it; the file that was held before is let go.

        Returns:
            The bytes written, 0 when the file was there.

        Raises:
            BaseFileError: it cannot be written. What was held before is held still.
        """
        from lifecycle.base_file import BaseFileStore  # noqa: PLC0415 - needs safetensors

        assert self.directory is not None  # asked for only where it is wanted
        found = BaseFileStore(self.directory).obtain(tensors, content_digest)
        self.hold((found, version))
        return found.written_bytes

    def held(self) -> tuple[BaseFile | None, int | None]:
        """The file and its version, for :meth:`hold` as the undo."""
        return self._file, self._version

    def hold(self, held: tuple[BaseFile | None, int | None]) -> None:
        """Hold this file from now on."""
        self._damage = self._damage if held[0] is self._file else ""
        self._file, self._version = held

    def take_back(self, held: tuple[BaseFile | None, int | None]) -> None:
        """Undo of :meth:`write`: hold what was held before. A file that was made is removed, unless others use it."""
        made = self._file
        self.hold(held)
        if made is not None and made is not held[0] and made.written_bytes:
            made.discard()

    def pin(self, version: int) -> Callable[[str], Tensor]:
        """Gives tensors of this version by name, from the file that holds it now and is kept open for it.

        Raises:
            UnreadableTensor: there is no file of that version, or it was damaged.
        """
        if version != self._version:
            raise UnreadableTensor(f"version {version} of the frozen base", f"the base file holds {self._version}")
        return self._sound("the frozen base").view()

    def tensor(self, name: str) -> Tensor:
        """One tensor, memory-mapped: read-only, valid as long as the file is held.

        Raises:
            UnreadableTensor: there is no file, or it was damaged.
        """
        return self._sound(name).tensor(name)

    def read_into(self, name: str, into: Tensor) -> int:
        """Read one tensor's bytes in chunks.

        Returns:
            The bytes read.

        Raises:
            UnreadableTensor: there is no file, or it was damaged.
            BaseFileError: the disk failed.
        """
        return self._sound(name).read_into(name, into)

    def size_bytes(self) -> int:
        """Bytes of the file, 0 when there is none. A node holds them once, as clean page cache."""
        return 0 if self._file is None else self._file.size_bytes

    def written_bytes(self) -> int:
        """Bytes that were written to have the file that is held, 0 when there is none or it was there already."""
        return 0 if self._file is None else self._file.written_bytes

    def _sound(self, name: str) -> BaseFile:
        why = self.problem()
        if self._file is None or why:
            raise UnreadableTensor(name, why or "there is no base file")
        return self._file
