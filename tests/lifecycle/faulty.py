"""Savers that go wrong the way the field cases tell: over the arena's real pages, with its real books."""

from __future__ import annotations

import ctypes
from pathlib import Path

from torch import Tensor

from lifecycle.saver.arena_port import ArenaPort
from lifecycle.saver.managed import ManagedSaver


class FaultyPort(ArenaPort):
    """An arena that may change a byte at resume, keep device memory at a pause, or not be switched on.

    Attributes:
        flips: addresses of bytes whose lowest bit is turned at every resume of the tag that holds them.
        keeps_share: of the bytes that a pause should free, so many stay in use.
        leaves_bytes: so many more stay in use after each resume, for ever.
        is_enabled: whether the hook is loaded.
    """

    def __init__(self, disk_dir: Path | None = None) -> None:
        super().__init__(disk_dir=None if disk_dir is None else str(disk_dir))
        self.flips: list[int] = []
        self.keeps_share = 0.0
        self.leaves_bytes = 0
        self.is_enabled = True
        self.kept: dict[str, int] = {}
        self.left = 0

    def enabled(self) -> bool:
        return self.is_enabled

    def pause(self, tag: str) -> None:
        before = super().device_used_bytes() or 0
        super().pause(tag)
        self.kept[tag] = int(self.keeps_share * (before - (super().device_used_bytes() or 0)))

    def resume(self, tag: str) -> None:
        super().resume(tag)
        self.kept.pop(tag, None)
        self.left += self.leaves_bytes
        for address in self.flips:
            found = self.describe(address, 1)
            if found is not None and found[0] == tag:
                flip(address)

    def device_used_bytes(self) -> int | None:
        return (super().device_used_bytes() or 0) + sum(self.kept.values()) + self.left


def faulty_saver(disk_dir: Path | None = None) -> ManagedSaver:
    """A saver over a :class:`FaultyPort`, which is its ``_port``."""
    return ManagedSaver(FaultyPort(disk_dir), disk_dir=None if disk_dir is None else str(disk_dir))


def flip(address: int) -> None:
    """Turn the lowest bit of one byte of memory."""
    ctypes.c_uint8.from_address(address).value ^= 1


def byte_of(tensor: Tensor, index: int = 5) -> int:
    """The address of one byte of a tensor."""
    return tensor.data_ptr() + index
