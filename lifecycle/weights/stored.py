"""Stored content groups: what a snapshot's tag has of one group, in bytes of its own or borrowed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor


class Sharing(StrEnum):
    """How much the tags of a store share.

    ``nothing``: each tag holds copies of its own. ``stored``: equal versions are stored once. ``borrowed``: a
    frozen group that the trainer keeps readable anyway is not stored at all, the tag only notes its version.
    """

    NOTHING = "nothing"
    STORED = "stored"
    BORROWED = "borrowed"


class Gate(Protocol):
    """Decides whether a call may be made, and holds the trainer's turn while it is."""

    def passing(self, call: str, tag: str) -> AbstractContextManager[None]:
        """Enter to make the call.

        Raises:
            EventRefused: it may not be made now.
        """


class SnapshotSource(Protocol):
    """Where backups are read and restores are written: the trainer's own memory."""

    def versions(self) -> Mapping[str, int | None]:
        """Version of the bytes that the trainer's memory holds, by content group."""

    def names(self, group: str) -> tuple[str, ...]:
        """Tensor names of a group."""

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


def copy_group(source: SnapshotSource, group: str) -> Stored:
    """The trainer's present bytes of a group, in new host memory."""
    copies = {name: host_copy(source.own_bytes(group, name)) for name in source.names(group)}
    return Stored(source.versions()[group], copies)


def write_group(source: SnapshotSource, group: str, version: int | None, tensors: Mapping[str, Tensor]) -> int:
    """Write a group into the trainer's memory, which is marked unknown meanwhile.

    Returns:
        The bytes written.
    """
    source.written(group, None)
    for name, value in tensors.items():
        with torch.no_grad():
            source.own_bytes(group, name).copy_(value)
    source.written(group, version)
    return sum(one.numel() * one.element_size() for one in tensors.values())


def host_copy(tensor: Tensor) -> Tensor:
    """A copy in new host memory, pinned where CUDA is available."""
    into = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=torch.cuda.is_available())
    return into.copy_(tensor.detach())
