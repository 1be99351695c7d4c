"""``CarefulSaver``: asks for room before a call to a library that ends the process when it finds none."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lifecycle.errors import SaverError
from lifecycle.memory import host
from lifecycle.saver.books import TagBook
from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.native import NativePort
from lifecycle.saver.protocol import Backup

_MIB: Final = 1 << 20


class CarefulSaver(ManagedSaver):
    """A managed saver over a port that ends the process for want of room: it is asked for first.

    A resume needs room on the device, a pause room for its backup in the host's memory or on the disk, and a disk
    backup that was written has to be there. Another process can still take the room between the question and the call.

    Args:
        port: the native library. Owned by this object from now on.
        retain_host_backup: whether host backups outlive a resume.
        disk_dir: where the port writes disk backups; None refuses them.
    """

    def __init__(self, port: NativePort, *, retain_host_backup: bool = False, disk_dir: str | None = None) -> None:
        super().__init__(port, retain_host_backup=retain_host_backup, disk_dir=disk_dir)
        self._loose: dict[str, list[int]] = {}

    def release(self, tag: str) -> None:
        """Forget the tag and free its region, paused or not. Its tensors must not be used any more.

        A caching allocator frees late. Memory that was active goes on counting in what its tag needs.

        Raises:
            SaverMisuse: the tag is unknown.
            SaverError: memory could not be freed; what was freed is out of the books, call again.
        """
        with self._lock:
            book = self._known(f"release({tag})", tag)
            active = () if book.paused else tuple(book.regions)
            super().release(tag)
            freed_late = [region.size_bytes for region in active if region.allocation is not None]
            self._loose.setdefault(book.native_tag, []).extend(freed_late)

    def _check_device_room(self, book: TagBook) -> None:
        self._check_files(book)
        free = self._port.device_free_bytes()
        needed = segment_bytes([*(region.size_bytes for region in book.regions), *self._loose_sizes(book)])
        if free is not None and free < needed:
            why = f"resume needs up to {needed} bytes on the device and {free} are free; free device memory first"
            raise SaverError(book.tag, why)

    def _check_backup_room(self, book: TagBook) -> None:
        fresh = (region.size_bytes for region in book.regions if region.kept_bytes == 0)
        needed = segment_bytes([*fresh, *self._loose_sizes(book)])
        if book.backup is Backup.CPU:
            _check_room(book.tag, needed, host.host_free_bytes(), "the host's memory")
        if book.backup is Backup.DISK and self._disk_dir is not None:
            problem = host.disk_problem(self._disk_dir)
            if problem:
                raise SaverError(book.tag, f"its backup cannot be written: {problem}; mend that first")
            self._check_files(book)
            _check_room(book.tag, needed, shutil.disk_usage(self._disk_dir).free, f"the disk of {self._disk_dir}")

    def _check_files(self, book: TagBook) -> None:
        """Which file is whose cannot be asked, but together they hold at least what the books say."""
        if book.backup is not Backup.DISK or book.kept_bytes == 0 or self._disk_dir is None:
            return
        kept, found = self._books.usage().disk_bytes, _backup_file_bytes(self._disk_dir)
        if found < kept:
            why = f"backups hold {kept} bytes and the files in {self._disk_dir} {found}; put the missing ones back"
            raise SaverError(book.tag, why)

    def _loose_sizes(self, book: TagBook) -> list[int]:
        return self._loose.get(book.native_tag, [])


def segment_bytes(sizes: Iterable[int]) -> int:
    """Device bytes that allocations of these sizes take at most, in the segments of torch's caching allocator.

    Up to 1 MiB lies in a segment of 2 MiB, below 10 MiB in one of 20 MiB, above in whole steps of 2 MiB.
    Allocations that share a segment are counted as if they did not: a refusal too early can be retried,
    a resume without room ends the process.
    """
    return sum(_segment(size) for size in sizes)


def _segment(size_bytes: int) -> int:
    if size_bytes <= _MIB:
        return 2 * _MIB
    if size_bytes < 10 * _MIB:
        return 20 * _MIB
    return -(-size_bytes // (2 * _MIB)) * 2 * _MIB


def _backup_file_bytes(folder: str) -> int:
    sizes = []
    for name in host.backup_files(folder):
        try:
            sizes.append((Path(folder) / name).stat().st_size)
        except FileNotFoundError:  # another process has just removed it
            continue
    return sum(sizes)


def _check_room(tag: str, needed: int, free: int, place: str) -> None:
    if free < needed:
        raise SaverError(tag, f"the backup needs up to {needed} bytes and {place} has {free} free; make room first")
