"""The native port of the host arena: allocations by tag on pages of host memory, all-or-nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor

from lifecycle.errors import ConfigError, SaverError, SaverMisuse
from lifecycle.saver import backup_files, pages
from lifecycle.saver.blocks import Block
from lifecycle.saver.books import Ranges
from lifecycle.saver.estate import Estate
from lifecycle.saver.guards import check_folder
from lifecycle.saver.protocol import Backup
from lifecycle.saver.views import bytes_at

Faults = Callable[[str, str], None]


class ArenaPort:
    """A :class:`~lifecycle.saver.native.NativePort` over host memory. Linux 5.7 or newer.

    Args:
        capacity_bytes: of the device; allocating or resuming beyond it fails. None: no limit.
        disk_dir: folder of disk backups, made when it is missing. Those that a dead arena left there are removed.
        faults: asked before each native operation as ``faults(operation, tag)``; what it raises
            (:class:`OSError` or :class:`~lifecycle.errors.SaverError`) is that operation's failure. Operations:
            ``allocate``, ``pause``, ``backup_write``, ``resume``, ``backup_read``, ``free``; once an allocation.

    Raises:
        ConfigError: the capacity is not positive, the folder cannot be written, or the system is no such Linux.
    """

    def __init__(
        self, capacity_bytes: int | None = None, disk_dir: str | None = None, *, faults: Faults | None = None
    ) -> None:
        _check_capacity(capacity_bytes)
        check_folder(disk_dir)
        unsupported = pages.why_unsupported()
        if unsupported is not None:
            raise ConfigError(f"the host arena cannot be made: {unsupported}; it needs Linux 5.7 or newer")
        if disk_dir is not None:
            backup_files.sweep(disk_dir)
        self._capacity = capacity_bytes
        self._disk_dir = disk_dir
        self._faults = faults
        self._retain = False
        self._lock = threading.RLock()
        self._ranges: Ranges[Block] = Ranges()
        self._estate = Estate()

    def enabled(self) -> bool:
        """Always: pausing gives the pages back to the operating system."""
        return True

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """A new ACTIVE allocation as a uint8 CPU tensor ``[size_bytes]``, page-aligned, zero.

        The arena's memory lives as long as any tensor over it, or until :meth:`close` or :meth:`free`.

        Raises:
            SaverError: the capacity or the host's memory is exceeded.
            SaverMisuse: the size is not positive, or disk backup without a folder.
        """
        with self._lock, _failures(tag, "allocate"):
            self._check_open("allocate")
            if size_bytes <= 0:
                raise SaverMisuse(f"allocate({tag})", f"{size_bytes} bytes; at least 1")
            if backup is Backup.DISK and self._disk_dir is None:
                raise SaverMisuse(f"allocate({tag})", "a disk backup needs a folder; give the arena a disk_dir")
            self._check_room(tag, pages.round_up(size_bytes))
            self._ask("allocate", tag)
            block = Block(pages.map_fresh(pages.round_up(size_bytes)), size_bytes, tag, backup)
            self._estate.blocks[block.address] = block
            self._ranges.add(block.address, size_bytes, block)
            return bytes_at(block.address, size_bytes, self._estate)

    def free(self, allocation: Tensor) -> None:
        """Give pages, backup and file back. The range stays reserved: a later access is a SIGSEGV, not other bytes."""
        with self._lock:
            self._check_open("free")
            block = self._estate.blocks.get(allocation.data_ptr())
            if block is None:
                raise SaverMisuse("free", "the tensor is no allocation of this arena, or was freed already")
            with _failures(block.tag, "free"):
                self._ask("free", block.tag)
                pages.reserve_in_place(block.address, block.mapped_bytes)
                block.drop_slot()
                block.drop_file()
            self._ranges.remove(block.address)
            self._estate.freed.append((block.address, block.mapped_bytes))
            del self._estate.blocks[block.address]

    def pause(self, tag: str) -> None:
        """Pause every allocation of the tag, or none: what fails half-way is put back.

        An unknown tag is a silent success, as in the library.

        Raises:
            SaverMisuse: an allocation of the tag is paused already.
            SaverError: no room for a backup, a disk error, too many mappings. All are active then.
        """
        with self._lock, _failures(tag, "pause"):
            self._check_open("pause")
            blocks = self._blocks(tag)
            if any(block.paused for block in blocks):
                raise SaverMisuse(f"pause({tag})", "an allocation is paused already; the library ends the process")
            fresh = [block for block in blocks if block.slot is None and block.file is None]
            try:
                for block in blocks:
                    self._ask("backup_write", tag)
                    self._prepare_backup(block)
                for block in blocks:
                    self._ask("pause", tag)
                    block.hold(self._estate.poison)
            except BaseException:
                _undo_pause(blocks, fresh)
                raise
            for block in blocks:
                block.let_go()

    def resume(self, tag: str) -> None:
        """Resume every allocation of the tag, or none. An unknown tag is a silent success, as in the library.

        Raises:
            SaverMisuse: an allocation of the tag is active.
            SaverError: the capacity or the host's memory is exceeded, or a disk backup cannot be read.
                All are paused then, with their backups.
        """
        with self._lock, _failures(tag, "resume"):
            self._check_open("resume")
            blocks = self._blocks(tag)
            if not all(block.paused for block in blocks):
                raise SaverMisuse(f"resume({tag})", "an allocation is not paused; the library ends the process")
            self._check_room(tag, sum(block.mapped_bytes for block in blocks))
            try:
                for block in blocks:
                    self._ask("resume", tag)
                    self._ask("backup_read", tag)
                    block.stage()
                for block in blocks:
                    block.settle()
            except BaseException:
                self._undo_resume(blocks)
                raise
            if not self._retain:
                for block in blocks:
                    block.drop_slot()

    def backup_pointer(self, address: int, size_bytes: int) -> int | None:
        """Host address of the backup of device bytes [address, address + size).

        Returns:
            None when it is a disk backup, or the allocation is active without a retained backup.

        Raises:
            SaverMisuse: the address is unknown, the bytes span allocations, or it is paused without backup.
        """
        with self._lock:
            self._check_open("backup_pointer")
            block = self._ranges.find(address)
            if block is None and size_bytes == 0:  # no bytes behind the last one still lie in an allocation
                block = self._ranges.find(address - 1)
            if block is None:
                raise SaverMisuse("backup_pointer", f"address {address:#x} lies in no allocation")
            if address + size_bytes > block.address + block.size_bytes:
                raise SaverMisuse("backup_pointer", f"{size_bytes} bytes reach over the end of an allocation")
            if block.paused and block.backup is Backup.NONE:
                raise SaverMisuse("backup_pointer", f"tag {block.tag} is paused and has no backup")
            return None if block.slot is None else block.slot + address - block.address

    def set_retain(self, *, retain: bool) -> None:
        """Whether host backups outlive a resume. Read at resume only."""
        self._retain = retain

    def unmanaged(self) -> AbstractContextManager[None]:
        """Nothing to do: only :meth:`allocate` allocates here."""
        return nullcontext()

    def synchronize(self) -> None:
        """Nothing to do: host memory has no streams."""

    def device_free_bytes(self) -> int | None:
        """Capacity less the pages of active allocations, None without a limit."""
        with self._lock:
            return None if self._capacity is None else self._capacity - self._active_bytes()

    def device_used_bytes(self) -> int | None:
        """The pages of active allocations."""
        with self._lock:
            return self._active_bytes()

    def frees_while_paused(self) -> bool:
        """Always."""
        return True

    def describe(self, address: int, size_bytes: int) -> tuple[str, Backup, bool] | None:
        """(tag, kind, paused) of the allocation that holds all these bytes, None when none does."""
        with self._lock:
            block = self._ranges.find(address)
            if block is None or address + size_bytes > block.address + block.size_bytes:
                return None
            return block.tag, block.backup, block.paused

    def close(self) -> None:
        """Give everything back, files included. Tensors that are left may die, but not be used. Idempotent."""
        with self._lock:
            self._estate.close()
            self._ranges = Ranges()

    def _blocks(self, tag: str) -> list[Block]:
        if not tag:
            raise SaverMisuse("pause or resume", "the tag is empty, which means every tag of every tenant; name one")
        return [block for block in self._estate.blocks.values() if block.tag == tag]

    def _prepare_backup(self, block: Block) -> None:
        if block.backup is Backup.CPU:
            block.make_slot()
        elif block.backup is Backup.DISK and self._disk_dir is not None:
            block.write_file(self._disk_dir)

    def _undo_resume(self, blocks: list[Block]) -> None:
        for block in blocks:
            block.drop_staged()
            if not block.paused:
                block.hold(self._estate.poison)
                block.let_go()

    def _active_bytes(self) -> int:
        return sum(block.mapped_bytes for block in self._estate.blocks.values() if not block.paused)

    def _check_room(self, tag: str, size_bytes: int) -> None:
        free = self.device_free_bytes()
        if free is not None and size_bytes > free:
            why = f"{size_bytes} bytes are needed and {free} of {self._capacity} are free; pause or release another tag"
            raise SaverError(tag, why)

    def _check_open(self, call: str) -> None:
        if self._estate.closed:
            raise SaverMisuse(call, "the arena is closed; make a new one")

    def _ask(self, operation: str, tag: str) -> None:
        if self._faults is not None:
            self._faults(operation, tag)


def _undo_pause(blocks: list[Block], fresh: list[Block]) -> None:
    for block in blocks:
        block.put_back()
    for block in fresh:
        block.drop_slot()
        block.drop_file()


def _check_capacity(capacity_bytes: int | None) -> None:
    if capacity_bytes is not None and capacity_bytes <= 0:
        raise ConfigError(f"capacity_bytes is {capacity_bytes}; give a positive number of bytes, or None for no limit")


@contextmanager
def _failures(tag: str, operation: str) -> Iterator[None]:
    """Turn what the system answers into the saver's own error."""
    try:
        yield
    except (OSError, MemoryError) as error:
        why = f"{operation} failed ({error}); nothing changed, make room or mend the disk and try again"
        raise SaverError(tag, why) from error
