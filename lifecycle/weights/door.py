"""The one door to a tensor's bytes.

Code never guesses where bytes are. It names a tensor and a source that :mod:`states.sources` decided,
and gets the live tensor, the saver's host backup, a snapshot, or a clear error at once. Never zeros,
never a wait, never another version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, UntypedStorage

from lifecycle.errors import UnreadableTensor
from lifecycle.saver import MemorySaver, Window
from lifecycle.saver.windows import Windows
from lifecycle.weights.aliases import OtherMemory, alias
from lifecycle.weights.frozen_file import FrozenFile
from states import Read, Source


class Copies(Protocol):
    """What the door needs of the snapshots."""

    def stored(self, tag: str, group: str, version: int) -> Mapping[str, Tensor]:
        """The tensors of a stored group, which never change.

        Raises:
            UnreadableTensor: the tag has no such version of it, in bytes of its own.
        """


Pin = Callable[[str], Tensor]
"""Gives a group's tensors by name from memory that it keeps alive, whatever becomes of its tag or file."""


class Door:
    """Reads and writes tensors where their bytes are.

    Args:
        saver: whose regions the tensors lie in.
        copies: the snapshots.
        file: the base file, if the run has one.
    """

    def __init__(self, saver: MemorySaver, copies: Copies, file: FrozenFile | None = None) -> None:
        self._saver = saver
        self._windows = Windows(saver)
        self._backups: dict[int, tuple[Window, OtherMemory]] = {}
        self._copies = copies
        self._file = file if file is not None else FrozenFile(None)

    def is_live(self, tensor: Tensor) -> bool:
        """Whether the tensor's device memory is mapped (or lies outside any region)."""
        return self._windows.of(tensor).live

    def has_backup(self, tensor: Tensor) -> bool:
        """Whether the tensor has a host backup that can be read: it is paused, or the saver retains the last one."""
        return self._windows.of(tensor).host is not None

    def pin(self, read: Read) -> Pin | None:
        """Hold the copy or the file that a decision reads, so that it goes on giving the version it was made for.

        Returns:
            None for the trainer's own memory: transitions are refused as long as it is read.

        Raises:
            UnreadableTensor: the decided source holds another version by now.
        """
        if read.source is Source.SNAPSHOT:
            return self._copies.stored(read.tag, read.group, read.version).__getitem__
        return self._file.pin(read.version) if read.source is Source.BASE_FILE else None

    def read(self, name: str, tensor: Tensor, read: Read, pin: Pin | None = None) -> Tensor:
        """The bytes of a tensor from a decided source, zero-copy.

        Args:
            name: for messages.
            tensor: the trainer's tensor.
            read: the decision for its content group.
            pin: what :meth:`pin` gave for that decision; asked for anew when None.

        Returns:
            An alias on a storage of its own; valid while the lease that reads it is open.

        Raises:
            UnreadableTensor: the decided source no longer holds it.
        """
        source = read.source
        if source is Source.SNAPSHOT or source is Source.BASE_FILE:
            held = pin if pin is not None else self.pin(read)
            assert held is not None  # both of these sources can be pinned
            return alias(held(name))
        window = self._windows.of(tensor)
        if source is Source.LIVE and window.live:
            return alias(tensor)
        if source is Source.SAVER_BACKUP and window.host is not None:
            return self._backup(name, tensor, window, window.host)
        if tensor.numel() == 0:  # nothing of it was placed, so nothing of it can be away
            return alias(tensor)
        raise UnreadableTensor(name, f"{read.source or 'no source'} was decided: {self._where(tensor)}")

    def own_bytes(self, name: str, tensor: Tensor) -> Tensor:
        """The bytes that the trainer's own region holds, readable and writable, live or in the backup.

        What is written into a backup is on the device after the next resume.

        Raises:
            UnreadableTensor: the region is paused and its backup is not host memory.
        """
        window = self._windows.of(tensor)
        if window.live:
            return alias(tensor)
        if window.host is not None:
            return self._backup(name, tensor, window, window.host)
        raise UnreadableTensor(name, self._where(tensor))

    def _backup(self, name: str, tensor: Tensor, window: Window, host: UntypedStorage) -> Tensor:
        if tensor.numel() == 0:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        known = self._backups.get(window.start)
        if known is None or known[0] is not window:
            self._backups[window.start] = known = window, OtherMemory(host)
        found = known[1].alias(tensor, tensor.data_ptr() - window.start)
        if found is None:
            raise UnreadableTensor(name, f"it reaches over the end of its region {window.tag}")
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
