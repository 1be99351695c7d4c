"""The narrow port to a native memory saver. What stands above it keeps the books and refuses misuse.

Two things implement it: the emulation on host memory, and the thin binding to torch_memory_saver.
A port does what it is told; on misuse the emulation raises and the real library ends the process.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from lifecycle.saver.protocol import Backup


class NativePort(Protocol):
    """Allocations by tag. An allocation is ACTIVE or PAUSED and has one backup kind, fixed when it is made."""

    def enabled(self) -> bool:
        """Whether pausing really gives memory back."""

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """A new ACTIVE allocation as a uint8 tensor of *size_bytes*, at least 64-byte aligned.

        Raises:
            SaverError: there is no room.
        """

    def free(self, allocation: Tensor) -> None:
        """Give the allocation back, whether it is active or paused."""

    def pause(self, tag: str) -> None:
        """Pause every allocation of the tag. All are ACTIVE, or it is misuse."""

    def resume(self, tag: str) -> None:
        """Resume every allocation of the tag. All are PAUSED, or it is misuse."""

    def backup_pointer(self, address: int, size_bytes: int) -> int | None:
        """Host address of the backup of device bytes [address, address + size), None when there is none."""

    def set_retain(self, *, retain: bool) -> None:
        """Whether host backups outlive a resume."""

    def unmanaged(self) -> AbstractContextManager[None]:
        """Allocations inside do not land in the saver's memory."""

    def synchronize(self) -> None:
        """Wait for the device's streams; a pause does not do it."""

    def device_free_bytes(self) -> int | None:
        """Device bytes still to be had, None when not known."""

    def device_used_bytes(self) -> int | None:
        """Device bytes in use as the driver says, by whomever; None when it cannot be asked."""

    def frees_while_paused(self) -> bool:
        """Whether freeing an allocation is safe while something is paused; False: it may end the process."""
