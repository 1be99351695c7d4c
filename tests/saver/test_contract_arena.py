"""The host arena does what every memory saver does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import Tensor

from lifecycle.saver.arena import HostArena
from lifecycle.saver.protocol import Backup, MemorySaver
from lifecycle.testing import SaverContract


class TestHostArena(SaverContract):
    """The contract, on pages of host memory."""

    @pytest.fixture(autouse=True)
    def _close(self) -> Iterator[None]:
        self.made: list[HostArena] = []
        yield
        for arena in self.made:
            arena.close()

    def new_saver(self, *, retain_host_backup: bool = False, disk_dir: str | None = None) -> MemorySaver:
        """An arena without a limit."""
        arena = HostArena(retain_host_backup=retain_host_backup, disk_dir=disk_dir)
        self.made.append(arena)
        return arena

    def allocate(self, saver: MemorySaver, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """Raw memory of the arena."""
        assert isinstance(saver, HostArena)
        return saver.allocate(size_bytes, tag, backup)


def test_the_arena_is_a_memory_saver() -> None:
    """The protocol can be checked at run time."""
    assert isinstance(HostArena(), MemorySaver)
