"""One allocation of the arena and the moves its pages make. What a move leaves half done has an undo."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from lifecycle.saver import backup_files, pages
from lifecycle.saver.protocol import Backup

_IO_BYTES = 64 << 20


@dataclass(slots=True, eq=False)
class Block:
    """Pages at an address that never changes.

    Attributes:
        address: of the first byte.
        size_bytes: as it was asked for.
        tag: its tag.
        backup: its kind.
        paused: whether poison is mapped there instead of pages.
        slot: address of the host backup, None when there is none.
        file: path of the disk backup, None when there is none.
        lock: descriptor that says that the disk backup is in use, None when there is none.
        held: where the pages are between the two halves of a pause.
        staged: where the new pages are between the two halves of a resume.
    """

    address: int
    size_bytes: int
    tag: str
    backup: Backup
    paused: bool = False
    slot: int | None = None
    file: str | None = None
    lock: int | None = None
    held: int | None = None
    staged: int | None = None

    @property
    def mapped_bytes(self) -> int:
        """Its size in whole pages."""
        return pages.round_up(self.size_bytes)

    def write_file(self, folder: str) -> None:
        """Write the disk backup, synced. A file that is new and fails is removed.

        Raises:
            OSError: the disk is full or broken.
        """
        if self.file is not None:
            descriptor = os.open(self.file, os.O_RDWR)
            try:
                self._fill_file(descriptor)
            finally:
                os.close(descriptor)
            return
        descriptor, path = backup_files.create(folder)
        try:
            self._fill_file(descriptor)
        except BaseException:
            Path(path).unlink()
            os.close(descriptor)
            raise
        self.file, self.lock = path, descriptor

    def _fill_file(self, descriptor: int) -> None:
        # Reserve the room before the first byte, so that a full disk is known at once.
        os.posix_fallocate(descriptor, 0, self.size_bytes)
        self._transfer(descriptor, self.address, write=True)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read_file(self, target: int) -> None:
        """Read the disk backup to an address.

        Raises:
            OSError: the file is gone, short or unreadable.
        """
        if self.file is None:
            raise FileNotFoundError("the disk backup was never written")
        descriptor = os.open(self.file, os.O_RDONLY)
        try:
            self._transfer(descriptor, target, write=False)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def drop_file(self) -> None:
        """Remove the disk backup; it may be gone already."""
        if self.file is not None:
            path, self.file = self.file, None
            try:
                Path(path).unlink(missing_ok=True)
            finally:
                self.let_go_of_file()

    def let_go_of_file(self) -> None:
        """Give up the lock on the disk backup: of a forked child, whose file is its parent's."""
        descriptor, self.lock = self.lock, None
        if descriptor is not None:
            os.close(descriptor)

    def make_slot(self) -> None:
        """Map memory for the host backup, unless a retained one is there."""
        if self.slot is None:
            self.slot = pages.map_fresh(self.mapped_bytes)

    def drop_slot(self) -> None:
        """Give the host backup's memory back."""
        if self.slot is not None:
            pages.unmap(self.slot, self.mapped_bytes)
            self.slot = None

    def hold(self, poison: int) -> None:
        """First half of a pause: the pages wait elsewhere, poison is mapped in their place.

        Raises:
            OSError: too many mappings; :meth:`put_back` takes what was done back.
        """
        self.held = pages.move_away(self.address, self.mapped_bytes)
        pages.map_poison(self.address, self.mapped_bytes, poison)

    def put_back(self) -> None:
        """Undo of :meth:`hold`."""
        if self.held is not None:
            pages.move_to(self.held, self.address, self.mapped_bytes)
            self.held = None

    def let_go(self) -> None:
        """Second half of a pause: fill the host backup, give the pages back."""
        if self.held is None:
            return
        if self.slot is not None:
            pages.copy(self.held, self.slot, self.size_bytes)
        pages.unmap(self.held, self.mapped_bytes)
        self.held = None
        self.paused = True

    def stage(self) -> None:
        """First half of a resume: new pages, elsewhere, with the bytes of the backup.

        Without backup every byte is 0xFF: values that are lost must not look like zeros.

        Raises:
            OSError: no memory, or the disk backup cannot be read.
        """
        staged = pages.map_fresh(self.mapped_bytes)
        try:
            if self.slot is not None:
                pages.copy(self.slot, staged, self.size_bytes)
            elif self.backup is Backup.DISK:
                self.read_file(staged)
            else:
                pages.fill_poison(staged, self.size_bytes)
        except BaseException:
            pages.unmap(staged, self.mapped_bytes)
            raise
        self.staged = staged

    def drop_staged(self) -> None:
        """Undo of :meth:`stage`."""
        if self.staged is not None:
            pages.unmap(self.staged, self.mapped_bytes)
            self.staged = None

    def settle(self) -> None:
        """Second half of a resume: the new pages replace the poison."""
        if self.staged is not None:
            pages.move_to(self.staged, self.address, self.mapped_bytes)
            self.staged = None
            self.paused = False

    def _transfer(self, descriptor: int, address: int, *, write: bool) -> None:
        memory = pages.memory(address, self.size_bytes)
        done = 0
        while done < self.size_bytes:
            chunk = memory[done : done + _IO_BYTES]
            moved = os.write(descriptor, chunk) if write else os.readv(descriptor, [chunk])
            if moved == 0:
                raise OSError(errno.EIO, f"the disk backup ends after {done} of {self.size_bytes} bytes")
            done += moved
