"""The memory saver as the life cycle sees it: tagged regions that can be paused and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from torch import Tensor, UntypedStorage


class Backup(StrEnum):
    """What a pause does with the bytes. One value, fixed when the region is allocated."""

    NONE = "none"
    CPU = "cpu"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class TagInfo:
    """The books' entry for one tag. A tag is always in one state and has one backup kind.

    Attributes:
        tag: ``MODEL/PART``, for instance ``actor/base``.
        backup: its backup kind.
        paused: whether its device memory is given back.
        size_bytes: device bytes it takes when it is active.
        backup_bytes: host bytes its backup holds now (0 when there is none, also for disk).
    """

    tag: str
    backup: Backup
    paused: bool
    size_bytes: int
    backup_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes held by all tenants of the saver, by place.

    Attributes:
        device_bytes: device memory of active regions.
        host_bytes: host memory of backups (pinned or mmap).
        disk_bytes: files of disk backups.
    """

    device_bytes: int
    host_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of addresses of which the books say one thing: one region, or a gap between regions.

    Attributes:
        revision: of the books when it was looked up; it is true as long as that is the saver's.
        start: its first address.
        end: the address behind its last.
        tag: of the region; None for a gap.
        live: whether the memory can be read where it is.
        host: the host backup of the whole region, its first byte that of *start*; None where there is none to read.
            It belongs to the saver, see :meth:`MemorySaver.host_backup`.
    """

    revision: int
    start: int
    end: int
    tag: str | None
    live: bool
    host: UntypedStorage | None


@runtime_checkable
class MemorySaver(Protocol):
    """Regions of device memory by tag. Misuse raises :class:`~lifecycle.errors.SaverMisuse`; it never ends the process.

    Every method is safe to call from any thread; calls are serialised. ``tag`` is never None.
    """

    @property
    def enabled(self) -> bool:
        """Whether a pause really gives memory back (False: the hook is not loaded)."""

    @property
    def retain_host_backup(self) -> bool:
        """Whether host backups outlive a resume. They then hold the bytes of the last pause."""

    def place(self, tensors: Mapping[str, Tensor], tag: str, backup: Backup) -> None:
        """Move tensors into a new region of *tag*; the same tensor objects, same values, new storage.

        Tensors that share a storage (tied weights, views) share one afterwards too, at the same
        offsets and strides, and are moved once. All or nothing.

        Raises:
            SaverMisuse: the tag is paused, has another backup kind, or a tensor is already placed,
                on the meta device, not strided, or an autograd non-leaf.
            SaverError: there is no room.
        """

    def adopt(self, tensors: Mapping[str, Tensor], tag: str, backup: Backup, *, paused: bool) -> None:
        """Take tensors into the books that a framework has already allocated in a region of *tag*.

        Raises:
            SaverMisuse: the tag is known with another state or backup kind, or a tensor is already known.
        """

    def tag_of(self, tensor: Tensor) -> str | None:
        """The tag of the region that holds the tensor's storage, None when no region does."""

    def tags(self) -> Mapping[str, TagInfo]:
        """The books: one entry a tag, sorted. Cheap to ask again while nothing has changed."""

    @property
    def generation(self) -> int:
        """Grows whenever a region comes or goes: while it is the same, :meth:`tag_of` an address is the same."""

    @property
    def revision(self) -> int:
        """Grows whenever anything in the books changes: regions, pauses, resumes."""

    def window(self, tensor: Tensor) -> Window:
        """What the books say of the memory around a tensor's storage, until :attr:`revision` changes.

        One look answers for every tensor of the same region. A tensor without storage gets an empty window.
        """

    def pause(self, tag: str) -> None:
        """Write the backup, give the device memory back.

        Raises:
            SaverMisuse: the tag is unknown or already paused.
            SaverError: no room for the backup, a disk error. The tag is then active and unharmed.
        """

    def resume(self, tag: str) -> None:
        """Take device memory again at the same addresses, read the backup back, free it unless retained.

        Raises:
            SaverMisuse: the tag is unknown or not paused.
            SaverError: the device has no room. The tag is then paused and its backup unharmed.
        """

    def host_backup(self, tensor: Tensor) -> Tensor | None:
        """The tensor's bytes in the saver's host backup, zero-copy, or None when there is none to read.

        The result is a CPU tensor of the same shape, dtype and strides on a storage of its own that
        aliases the backup. It is writable: what is written is on the device after resume. The memory
        belongs to the saver and is valid until the next resume of the tag (until the next pause
        overwrites it when backups are retained). Answers also while a retained backup exists and the
        tag is active.

        Raises:
            SaverMisuse: the tensor lies in no region, or in a paused one without host backup.
        """

    def unmanaged(self) -> AbstractContextManager[None]:
        """Allocations inside do not land in the saver's memory. Does nothing outside a region; nests."""

    def release(self, tag: str) -> None:
        """Forget the tag and free its region, paused or not. Its tensors must not be used any more.

        Raises:
            SaverMisuse: the tag is unknown.
        """

    def usage(self) -> Usage:
        """Bytes held now."""

    def device_free_bytes(self) -> int | None:
        """Device bytes still to be had, None when the device has no limit that is known."""

    def device_used_bytes(self) -> int | None:
        """Device bytes in use as the driver says, not as the books say; None when it cannot be asked.

        Other tenants of the device are in it: what a pause freed is the difference of two readings.
        """

    @property
    def frees_while_paused(self) -> bool:
        """Whether freeing memory or clearing torch's cache is safe while something is paused.

        False for torch_memory_saver before 0.0.10, where it ends the process: wait until nothing is paused.
        """

    @property
    def disk_dir(self) -> str | None:
        """Where disk backups are written; None when none is set."""
