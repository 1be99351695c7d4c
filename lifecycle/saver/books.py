"""The books of a memory saver: which tag is where. The native library has no query, so these are the only record.

Pure data. :class:`~lifecycle.saver.managed.ManagedSaver` writes an entry after each single native call.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch import Tensor

from lifecycle.saver.protocol import Backup, TagInfo, Usage

T = TypeVar("T")


@dataclass(slots=True)
class Region:
    """One allocation in the saver's memory, or one storage that a framework has allocated there.

    Attributes:
        address: of its first byte on the device.
        size_bytes: what it takes when it is active.
        allocation: the native allocation, kept alive here; None when a framework owns it.
        kept_bytes: what its backup holds now, in host memory or on disk.
    """

    address: int
    size_bytes: int
    allocation: Tensor | None
    kept_bytes: int = 0


class Ranges(Generic[T]):
    """Address ranges that do not overlap, each with a value. Looked up by bisection."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._held: dict[int, tuple[int, T]] = {}

    def add(self, start: int, size_bytes: int, value: T) -> None:
        """Add a range. The caller has checked that it overlaps none."""
        insort(self._starts, start)
        self._held[start] = (start + size_bytes, value)

    def remove(self, start: int) -> None:
        """Remove the range that begins at *start*."""
        del self._held[start]
        self._starts.pop(bisect_right(self._starts, start) - 1)

    def find(self, address: int) -> T | None:
        """The value of the range that holds the address."""
        position = bisect_right(self._starts, address)
        if position == 0:
            return None
        end, value = self._held[self._starts[position - 1]]
        return value if address < end else None

    def overlaps(self, start: int, size_bytes: int) -> bool:
        """Whether any range shares a byte with this one."""
        position = bisect_right(self._starts, start + size_bytes - 1)
        return position > 0 and self._held[self._starts[position - 1]][0] > start


@dataclass(slots=True)
class TagBook:
    """One tag.

    Attributes:
        tag: as callers know it.
        native_tag: as the native library knows it; differs once the tag was released while it was paused.
        backup: the kind, the same for all its regions.
        paused: whether its device memory is given back.
        regions: in the order they came.
    """

    tag: str
    native_tag: str
    backup: Backup
    paused: bool = False
    regions: list[Region] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Device bytes when it is active."""
        return sum(region.size_bytes for region in self.regions)

    @property
    def kept_bytes(self) -> int:
        """Bytes of its backups."""
        return sum(region.kept_bytes for region in self.regions)

    def set_kept(self, *, kept: bool) -> None:
        """Write down that every region has a backup, or none has."""
        for region in self.regions:
            region.kept_bytes = region.size_bytes if kept else 0

    def info(self) -> TagInfo:
        """The entry as callers see it."""
        host_bytes = self.kept_bytes if self.backup is Backup.CPU else 0
        return TagInfo(self.tag, self.backup, self.paused, self.size_bytes, host_bytes)


class Books:
    """All tags and all regions of one saver."""

    def __init__(self) -> None:
        self._tags: dict[str, TagBook] = {}
        self._ranges: Ranges[tuple[TagBook, Region]] = Ranges()
        self._generation: dict[str, int] = {}

    def __iter__(self) -> Iterator[TagBook]:
        return iter(self._tags.values())

    def get(self, tag: str) -> TagBook | None:
        """The tag's book, None when it is unknown."""
        return self._tags.get(tag)

    def find(self, address: int) -> tuple[TagBook, Region] | None:
        """The region that holds a device address."""
        return self._ranges.find(address)

    def overlaps(self, address: int, size_bytes: int) -> bool:
        """Whether a known region shares a byte with the range."""
        return self._ranges.overlaps(address, size_bytes)

    def native_tag(self, tag: str) -> str:
        """The name under which the native library knows the tag, also before it is opened."""
        generation = self._generation.get(tag, 0)
        return tag if generation == 0 else f"{tag}\x1f{generation}"  # no tag of a caller has control characters

    def open(self, tag: str, backup: Backup, *, paused: bool) -> TagBook:
        """The tag's book, a new one when there is none."""
        return self._tags.setdefault(tag, TagBook(tag, self.native_tag(tag), backup, paused))

    def add(self, book: TagBook, region: Region) -> None:
        """Write a region down."""
        book.regions.append(region)
        self._ranges.add(region.address, region.size_bytes, (book, region))

    def remove(self, book: TagBook, region: Region) -> None:
        """Strike a region out."""
        book.regions.remove(region)
        self._ranges.remove(region.address)

    def close(self, book: TagBook) -> None:
        """Strike the tag out. It has no regions any more.

        The native library may still hold paused memory of it (a caching allocator frees late), and a new
        active allocation under the same native tag would then be fatal at resume. So the next use of a tag
        that was released while paused goes by another native name.
        """
        del self._tags[book.tag]
        if book.paused:
            self._generation[book.tag] = self._generation.get(book.tag, 0) + 1

    def infos(self) -> Mapping[str, TagInfo]:
        """Every tag's entry, sorted."""
        return {tag: self._tags[tag].info() for tag in sorted(self._tags)}

    def usage(self) -> Usage:
        """Bytes held now, by place."""
        device = sum(book.size_bytes for book in self if not book.paused)
        host = sum(book.kept_bytes for book in self if book.backup is Backup.CPU)
        disk = sum(book.kept_bytes for book in self if book.backup is Backup.DISK)
        return Usage(device, host, disk)
