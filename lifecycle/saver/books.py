"""The books of a memory saver: which tag is where. The native library has no query, so these are the only record.

Pure data. :class:`~lifecycle.saver.managed.ManagedSaver` writes an entry after each single native call.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from torch import Tensor

from lifecycle.saver.protocol import Backup, TagInfo, Usage

T = TypeVar("T")

END_OF_MEMORY: Final = 1 << 64


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

    def around(self, address: int) -> tuple[int, int, T | None]:
        """Start, end and value of the range that holds the address; of the gap it lies in, with None, if none does."""
        position = bisect_right(self._starts, address)
        begin = 0
        if position > 0:
            start = self._starts[position - 1]
            begin, value = self._held[start]
            if address < begin:
                return start, begin, value
        return begin, self._starts[position] if position < len(self._starts) else END_OF_MEMORY, None

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
        size_bytes: device bytes when it is active.
        kept_bytes: bytes of its backups.
    """

    tag: str
    native_tag: str
    backup: Backup
    paused: bool = False
    regions: list[Region] = field(default_factory=list)
    size_bytes: int = 0
    kept_bytes: int = 0

    def set_kept(self, *, kept: bool) -> None:
        """Write down that every region has a backup, or none has."""
        for region in self.regions:
            region.kept_bytes = region.size_bytes if kept else 0
        self.kept_bytes = self.size_bytes if kept else 0

    def info(self) -> TagInfo:
        """The entry as callers see it."""
        host_bytes = self.kept_bytes if self.backup is Backup.CPU else 0
        return TagInfo(self.tag, self.backup, self.paused, self.size_bytes, host_bytes)


class Books:
    """All tags and all regions of one saver.

    Args:
        after: books that these take the place of, whose counters they continue.

    Attributes:
        generation: grows whenever a region comes or goes. While it is the same, an address lies in the same tag.
        revision: grows whenever an entry changes at all: regions, pauses and resumes.
    """

    def __init__(self, after: Books | None = None) -> None:
        self.generation: int = after.generation + 1 if after is not None else 0
        self.revision: int = after.revision + 1 if after is not None else 0
        self._infos: dict[str, TagInfo] = {}
        self._infos_revision = -1
        self._tags: dict[str, TagBook] = {}
        self._ranges: Ranges[tuple[TagBook, Region]] = Ranges()
        self._reused: dict[str, int] = {}

    def __iter__(self) -> Iterator[TagBook]:
        return iter(self._tags.values())

    def get(self, tag: str) -> TagBook | None:
        """The tag's book, None when it is unknown."""
        return self._tags.get(tag)

    def find(self, address: int) -> tuple[TagBook, Region] | None:
        """The region that holds a device address."""
        return self._ranges.find(address)

    def around(self, address: int) -> tuple[int, int, tuple[TagBook, Region] | None]:
        """Start, end and entry of the region that holds a device address, or of the gap between regions."""
        return self._ranges.around(address)

    def turned(self) -> None:
        """An entry is about to change or has changed: what was looked up before may be wrong now."""
        self.revision += 1

    def overlaps(self, address: int, size_bytes: int) -> bool:
        """Whether a known region shares a byte with the range."""
        return self._ranges.overlaps(address, size_bytes)

    def native_tag(self, tag: str) -> str:
        """The name under which the native library knows the tag, also before it is opened."""
        generation = self._reused.get(tag, 0)
        return tag if generation == 0 else f"{tag}\x1f{generation}"  # no tag of a caller has control characters

    def open(self, tag: str, backup: Backup, *, paused: bool) -> TagBook:
        """The tag's book, a new one when there is none."""
        self.turned()
        return self._tags.setdefault(tag, TagBook(tag, self.native_tag(tag), backup, paused))

    def add(self, book: TagBook, region: Region) -> None:
        """Write a region down."""
        self.generation += 1
        self.turned()
        book.regions.append(region)
        book.size_bytes += region.size_bytes
        book.kept_bytes += region.kept_bytes
        self._ranges.add(region.address, region.size_bytes, (book, region))

    def remove(self, book: TagBook, region: Region) -> None:
        """Strike a region out."""
        self.generation += 1
        self.turned()
        book.regions.remove(region)
        book.size_bytes -= region.size_bytes
        book.kept_bytes -= region.kept_bytes
        self._ranges.remove(region.address)

    def close(self, book: TagBook) -> None:
        """Strike the tag out. It has no regions any more.

        The native library may still hold paused memory of it (a caching allocator frees late), and a new
        active allocation under the same native tag would then be fatal at resume. So the next use of a tag
        that was released while paused goes by another native name.
        """
        self.turned()
        del self._tags[book.tag]
        if book.paused:
            self._reused[book.tag] = self._reused.get(book.tag, 0) + 1

    def infos(self) -> Mapping[str, TagInfo]:
        """Every tag's entry, sorted. Made anew only when an entry has changed; not to be written to."""
        if self._infos_revision != self.revision:
            self._infos = {tag: self._tags[tag].info() for tag in sorted(self._tags)}
            self._infos_revision = self.revision
        return MappingProxyType(self._infos)

    def usage(self) -> Usage:
        """Bytes held now, by place."""
        device = sum(book.size_bytes for book in self if not book.paused)
        host = sum(book.kept_bytes for book in self if book.backup is Backup.CPU)
        disk = sum(book.kept_bytes for book in self if book.backup is Backup.DISK)
        return Usage(device, host, disk)
