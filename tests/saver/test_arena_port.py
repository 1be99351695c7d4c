"""The arena's native port by itself: misuse raises where the library ends the process, and the rest is as there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from lifecycle.errors import SaverMisuse
from lifecycle.saver import ArenaPort, Backup, NativePort


@pytest.fixture
def port() -> Iterator[ArenaPort]:
    """A port with an active tag, a paused one, and a paused one without backup."""
    made = ArenaPort()
    for tag, backup in (("active", Backup.CPU), ("paused", Backup.CPU), ("lost", Backup.NONE)):
        made.allocate(4096, tag, backup)
    made.pause("paused")
    made.pause("lost")
    yield made
    made.close()


def address_of(port: ArenaPort, tag: str) -> int:
    """Where the tag's one allocation is."""
    return next(block.address for block in port._blocks(tag))


MISUSES: dict[str, Callable[[ArenaPort], object]] = {
    "pause of a paused tag": lambda port: port.pause("paused"),
    "resume of an active tag": lambda port: port.resume("active"),
    "pause of all tags": lambda port: port.pause(""),
    "resume of all tags": lambda port: port.resume(""),
    "backup of an unknown address": lambda port: port.backup_pointer(4096, 8),
    "backup that spans allocations": lambda port: port.backup_pointer(address_of(port, "paused"), 4097),
    "backup of a region without one": lambda port: port.backup_pointer(address_of(port, "lost"), 8),
    "free of foreign memory": lambda port: port.free(torch.zeros(8, dtype=torch.uint8)),
    "allocation of nothing": lambda port: port.allocate(0, "active", Backup.CPU),
    "disk backup without a folder": lambda port: port.allocate(8, "disk", Backup.DISK),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_of_the_port_raises(misuse: str, port: ArenaPort) -> None:
    """The guards above it are not the only ones."""
    with pytest.raises(SaverMisuse):
        MISUSES[misuse](port)

    assert [block.paused for block in port._estate.blocks.values()] == [False, True, True]


def test_an_active_allocation_in_a_paused_tag_makes_its_resume_misuse(port: ArenaPort) -> None:
    """The library allocates without a word and ends the process at the resume."""
    port.allocate(8, "paused", Backup.CPU)

    with pytest.raises(SaverMisuse, match="not paused"):
        port.resume("paused")


def test_an_unknown_tag_is_a_silent_success_of_the_port(port: ArenaPort) -> None:
    """As in the library; the managed saver above refuses it."""
    port.pause("unknown")
    port.resume("unknown")


def test_a_backup_pointer_may_point_into_an_allocation(port: ArenaPort) -> None:
    """A tensor is usually an interior part of an allocation."""
    address = address_of(port, "paused")
    first, inner = port.backup_pointer(address, 4096), port.backup_pointer(address + 100, 8)

    assert first is not None
    assert inner == first + 100
    assert port.backup_pointer(address_of(port, "active"), 8) is None


def test_the_arena_port_is_a_native_port(port: ArenaPort) -> None:
    """It has every method, and does nothing where host memory has nothing to do."""
    native: NativePort = port
    native.synchronize()
    with native.unmanaged():
        pass

    assert native.enabled()
    assert native.device_free_bytes() is None
