"""Stored content groups: what a snapshot's tag has of one group, in bytes of its own or borrowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from lifecycle.errors import ConfigError
from states.guards_snapshots import SnapshotCall


class Sharing(StrEnum):
    """How much the tags of a store share.

    ``nothing``: each tag holds copies of its own. ``stored``: equal versions are stored once. ``borrowed``: a
    frozen group that the trainer keeps readable anyway is not stored at all, the tag only notes its version.
    """

    NOTHING = "nothing"
    STORED = "stored"
    BORROWED = "borrowed"


@dataclass(frozen=True)
class Plan:
    """What a call of the user's would do; see :class:`states.guards_snapshots.SnapshotAsk`.

    Attributes:
        puts: (group, version) that the tag would hold of these groups.
        whole: whatever else the tag holds is dropped.
        copies: groups that would be copied from the trainer's memory.
        memory: (group, version) in the trainer's memory, for a call that writes there.
        need_bytes: host bytes that would be copied.
    """

    puts: tuple[tuple[str, int | None], ...] = ()
    whole: bool = False
    copies: tuple[str, ...] = ()
    memory: tuple[tuple[str, int | None], ...] = ()
    need_bytes: int = 0


class Gate(Protocol):
    """Decides whether a call of the user's may be made, and holds the trainer's turn while it is."""

    def perform(self, call: SnapshotCall, tag: str, plan: Callable[[], Plan], do: Callable[[], int]) -> int:
        """Decide on a plan, carry it out and count the bytes that *do* says it has moved.

        Returns:
            Those bytes.

        Raises:
            EventRefused: it may not be done now. Nothing changed.
            ReentrantEvent: this thread is inside an event.
        """

    def looking(self, tag: str) -> AbstractContextManager[None]:
        """Enter to look at a tag: no transition of another thread takes its bytes away meanwhile.

        Raises:
            EventRefused: it may not be looked at now.
        """


class SnapshotSource(Protocol):
    """Where backups are read and restores are written: the trainer's own memory."""

    def versions(self) -> Mapping[str, int | None]:
        """Version of the bytes that the trainer's memory holds, by content group."""

    def names(self, group: str) -> tuple[str, ...]:
        """Tensor names of a group."""

    def size_bytes(self, group: str) -> int:
        """Bytes of all tensors of a group."""

    def own_bytes(self, group: str, name: str) -> Tensor:
        """Readable and writable bytes of one tensor."""

    def written(self, group: str, version: int | None) -> None:
        """The group's bytes now are this version; None while they are being written."""

    def lends(self, group: str, version: int | None) -> bool:
        """Whether the trainer itself keeps this version of a frozen group readable, paused or not."""

    def lent(self, holder: str, group: str, version: int) -> Mapping[str, Tensor]:
        """The tensors of a version that the trainer keeps, zero-copy; while one lives, its memory stays.

        Raises:
            UnreadableTensor: the trainer no longer has that version.
        """


@dataclass(frozen=True)
class Stored:
    """One group of one tag. It never changes.

    Attributes:
        version: of its bytes.
        tensors: by name, None when they are borrowed from the trainer.
    """

    version: int | None
    tensors: Mapping[str, Tensor] | None

    def size_bytes(self) -> int:
        """Host bytes of its own."""
        return sum(one.numel() * one.element_size() for one in (self.tensors or {}).values())


def check_tag(tag: object) -> None:
    """Refuse what is no name of a snapshot.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(tag, str) or not tag:
        raise ConfigError(f"{tag!r} is no tag; use a name such as ref, teacher or old_actor")


def copy_group(source: SnapshotSource, group: str) -> Stored:
    """The trainer's present bytes of a group, in new host memory."""
    copies = {name: host_copy(source.own_bytes(group, name)) for name in source.names(group)}
    return Stored(source.versions()[group], copies)


def write_group(source: SnapshotSource, group: str, version: int | None, tensors: Mapping[str, Tensor]) -> int:
    """Write a group into the trainer's memory, which is marked unknown meanwhile.

    Returns:
        The bytes written.

    Raises:
        UnreadableTensor: its memory is paused where it cannot be written. Nothing was written or marked.
    """
    into = {name: source.own_bytes(group, name) for name in tensors}
    source.written(group, None)
    with torch.no_grad():
        for name, value in tensors.items():
            into[name].copy_(value)
    source.written(group, version)
    return sum(one.numel() * one.element_size() for one in tensors.values())


def host_copy(tensor: Tensor) -> Tensor:
    """A copy in new host memory, pinned where CUDA is available."""
    into = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=torch.cuda.is_available())
    return into.copy_(tensor.detach())
