"""The one door to a tensor's bytes.

Code never guesses where bytes are. It names a tensor and a source that :mod:`states.sources` decided,
and gets the live tensor, the saver's host backup, a snapshot, or a clear error at once. Never zeros,
never a wait, never another version.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lifecycle.errors import UnreadableTensor
from lifecycle.saver import Backup, MemorySaver
from lifecycle.weights.aliases import alias
from lifecycle.weights.frozen_file import FrozenFile
from states import Read, Source


class Copies(Protocol):
    """What the door needs of the snapshots."""

    def tensor(self, tag: str, group: str, name: str) -> Tensor:
        """The copy of one tensor."""


class Door:
    """Reads and writes tensors where their bytes are.

    Args:
        saver: whose regions the tensors lie in.
        copies: the snapshots.
        file: the base file, if the run has one.
    """

    def __init__(self, saver: MemorySaver, copies: Copies, file: FrozenFile | None = None) -> None:
        self._saver = saver
        self._copies = copies
        self._file = file if file is not None else FrozenFile(None)

    def is_live(self, tensor: Tensor) -> bool:
        """Whether the tensor's device memory is mapped (or lies outside any region)."""
        tag = self._saver.tag_of(tensor)
        return tag is None or not self._saver.tags()[tag].paused

    def has_backup(self, tensor: Tensor) -> bool:
        """Whether the tensor has a host backup that can be read: it is paused, or the saver retains the last one."""
        tag = self._saver.tag_of(tensor)
        if tag is None:
            return False
        info = self._saver.tags()[tag]
        return info.backup is Backup.CPU and (info.paused or info.backup_bytes > 0)

    def read(self, name: str, tensor: Tensor, read: Read) -> Tensor:
        """The bytes of a tensor from a decided source, zero-copy.

        Args:
            name: for messages.
            tensor: the trainer's tensor.
            read: the decision for its content group.

        Returns:
            An alias on a storage of its own; valid while the lease that reads it is open.

        Raises:
            UnreadableTensor: the decided source no longer holds it.
        """
        if read.source is Source.SNAPSHOT:
            return alias(self._copies.tensor(read.tag, read.group, name))
        if read.source is Source.BASE_FILE:
            return alias(self._file.tensor(name))
        if read.source is Source.LIVE and self.is_live(tensor):
            return alias(tensor)
        if read.source is Source.SAVER_BACKUP and self.has_backup(tensor):
            return self._backup(name, tensor)
        raise UnreadableTensor(name, f"{read.source or 'no source'} was decided: {self._where(tensor)}")

    def own_bytes(self, name: str, tensor: Tensor) -> Tensor:
        """The bytes that the trainer's own region holds, readable and writable, live or in the backup.

        What is written into a backup is on the device after the next resume.

        Raises:
            UnreadableTensor: the region is paused and its backup is not host memory.
        """
        if self.is_live(tensor):
            return alias(tensor)
        if self.has_backup(tensor):
            return self._backup(name, tensor)
        raise UnreadableTensor(name, self._where(tensor))

    def _backup(self, name: str, tensor: Tensor) -> Tensor:
        found = self._saver.host_backup(tensor)
        if found is None:
            raise UnreadableTensor(name, "its saver has no host backup of it")
        return found

    def _where(self, tensor: Tensor) -> str:
        tag = self._saver.tag_of(tensor)
        if tag is None:
            return "it lies outside any region of the saver and is live"
        info = self._saver.tags()[tag]
        return f"its region {tag} is {'paused' if info.paused else 'active'} with backup {info.backup}"


def write(into: Tensor, value: Tensor) -> int:
    """Copy a value into memory that the door gave out.

    Args:
        into: from :meth:`Door.own_bytes`.
        value: same shape and dtype.

    Returns:
        The bytes copied.
    """
    with torch.no_grad():
        into.copy_(value)
    return value.numel() * value.element_size()
