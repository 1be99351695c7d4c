"""Offloading to disk: one backup kind, a real disk with room, and nothing half done when a write fails (FB-20)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lifecycle import (
    Backup,
    BaseFileError,
    ConfigError,
    EventRefused,
    HostArena,
    SaverMisuse,
    TrainerState,
    TransitionFailed,
)
from lifecycle.memory import host
from lifecycle.saver import pages
from lifecycle.saver.blocks import Block
from lifecycle.saver.tms import PackagePort
from tests.lifecycle.world import World, make_world

BOTH = ("cpu+disk", "cpu,disk", ("cpu", "disk"), pytest.param(frozenset(Backup), id="a set"), True)


def disk_world(path: Path, *, arena: HostArena | None = None, **changes: object) -> World:
    """A world whose saver writes three files: the trainable base, its moments, and the buffers."""
    saver = arena if arena is not None else HostArena(disk_dir=str(path / "saver"))
    settings = {"strategy": "reference", "base_dir": str(path / "base"), "offload_target": "disk"} | changes
    world = make_world(arena=saver, trainable=True, **settings)
    world.train("A")
    return world


def on_disk(world: World) -> list[str]:
    """The tags that the saver writes to files."""
    return sorted(tag for tag, info in world.arena.tags().items() if info.backup is Backup.DISK)


@pytest.mark.parametrize("kind", BOTH, ids=str)
def test_a_region_with_two_kinds_of_backup_cannot_be_placed(kind: Any, tmp_path: Path) -> None:
    """One value, checked where the region is made (FB-20, scenario 1)."""
    arena, tensor = HostArena(disk_dir=str(tmp_path)), torch.ones(4)
    with pytest.raises(SaverMisuse, match="backup is one of none, cpu, disk"):
        arena.place({"tensor": tensor}, "actor/base", kind)

    assert arena.tags() == {}
    assert tensor.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", BOTH, ids=str)
def test_memory_with_two_kinds_of_backup_cannot_be_adopted(kind: Any, tmp_path: Path) -> None:
    """What a framework allocated is of one kind as well (FB-20, scenario 1)."""
    arena = HostArena(disk_dir=str(tmp_path))
    memory = arena.allocate(64, "actor/base", Backup.CPU)
    with pytest.raises(SaverMisuse, match="backup is one of none, cpu, disk"):
        arena.adopt({"memory": memory}, "actor/base", kind, paused=False)

    assert arena.tags() == {}


def test_a_tag_of_one_kind_takes_no_memory_of_another(tmp_path: Path) -> None:
    """Two regions cannot make the combination either (FB-20, scenario 1)."""
    arena = HostArena(disk_dir=str(tmp_path))
    arena.place({"first": torch.ones(4)}, "actor/base", Backup.CPU)
    with pytest.raises(SaverMisuse, match="the tag has backup kind cpu, not disk"):
        arena.place({"second": torch.ones(4)}, "actor/base", Backup.DISK)


@pytest.mark.parametrize("kind", list(Backup))
def test_the_package_is_never_asked_for_both(kind: Backup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its region has a flag for each kind, and the port sets at most one, always both by name (FB-20, scenario 1)."""
    asked: list[dict[str, object]] = []

    class Region:
        def __enter__(self) -> None:
            """Nothing to do."""

        def __exit__(self, *_: object) -> None:
            """The same."""

    def region(**flags: object) -> Region:
        asked.append(flags)
        return Region()

    port = object.__new__(PackagePort)
    port._saver = SimpleNamespace(region=region)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: torch.zeros(8))
    port.allocate(8, "actor/base", kind)

    wanted = {"enable_cpu_backup": kind is Backup.CPU, "enable_disk_backup": kind is Backup.DISK}
    assert asked == [{"tag": "actor/base", **wanted}]


def refused_asleep(world: World, match: str) -> None:
    """The offload is refused in ``sleeping``, and no byte has moved."""
    before = world.all_bytes()
    world.trainer.sleep()
    with pytest.raises(EventRefused, match=match):
        world.trainer.offload()

    assert world.trainer.state is TrainerState.SLEEPING
    assert world.all_bytes() == before
    assert not any(world.arena.tags()[tag].paused for tag in on_disk(world))
    world.trainer.wake_up()
    world.train("A")


def test_an_offload_into_memory_in_disguise_is_refused_with_all_tensors_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was a disk at attach and lies in memory now (FB-20, scenario 2)."""
    world = disk_world(tmp_path)
    monkeypatch.setattr(host, "is_real_disk", lambda _: False)
    refused_asleep(world, "lies in memory")


def test_an_offload_with_one_byte_too_little_room_is_refused_with_all_tensors_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is unmapped (FB-20, scenario 2)."""
    world = disk_world(tmp_path)
    need = sum(info.size_bytes for tag, info in world.arena.tags().items() if info.backup is Backup.DISK)
    assert need == world.trainer.facts().disk_need_bytes
    with monkeypatch.context() as patch:
        patch.setattr(host, "disk_free_bytes", lambda _: need - 1)
        refused_asleep(world, "disk: .* are needed")

    monkeypatch.setattr(host, "disk_free_bytes", lambda _: need)
    world.trainer.sleep(offload=True)
    assert world.trainer.state is TrainerState.OFFLOADED_DISK


def test_a_base_file_without_room_is_refused_at_attach_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written once, at attach; that is where the room must be (FB-20, scenario 2)."""
    full = OSError(errno.ENOSPC, "No space left on device")

    def no_room(*_: object) -> None:
        raise full

    monkeypatch.setattr("os.posix_fallocate", no_room)
    with pytest.raises(BaseFileError, match="No space left on device"):
        disk_world(tmp_path)

    assert [one for one in (tmp_path / "base").rglob("*") if one.is_file() and one.stat().st_size] == []


def test_a_base_file_in_memory_in_disguise_is_refused_at_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the memory that it is meant to free (FB-20, scenario 2)."""
    monkeypatch.setattr(host, "is_real_disk", lambda _: False)
    with pytest.raises(ConfigError, match=r"memory|tmpfs"):
        disk_world(tmp_path)


class Writes:
    """Counts what is written into backup files, and fails one of the writes."""

    def __init__(self) -> None:
        self.fails_at = 0
        self.seen = 0

    def due(self) -> bool:
        """Whether this one fails."""
        self.seen += 1
        return self.seen == self.fails_at


def fail_before(path: Path, writes: Writes, _: pytest.MonkeyPatch) -> HostArena:
    """An arena whose write fails before its first byte: an I/O error."""

    def faults(operation: str, tag: str) -> None:
        if operation == "backup_write" and arena.tags()[tag].backup is Backup.DISK and writes.due():
            raise OSError(errno.EIO, "Input/output error")

    arena = HostArena(disk_dir=str(path), faults=faults)
    return arena


def fail_within(path: Path, writes: Writes, monkeypatch: pytest.MonkeyPatch) -> HostArena:
    """An arena whose write ends half-way: the disk is full although the room was reserved."""
    original = Block._transfer

    def transfer(block: Block, descriptor: int, address: int, *, write: bool) -> None:
        if write and writes.due():
            os.write(descriptor, pages.memory(address, block.size_bytes)[: block.size_bytes // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        original(block, descriptor, address, write=write)

    monkeypatch.setattr(Block, "_transfer", transfer)
    return HostArena(disk_dir=str(path))


Broken = Callable[[Path, Writes, pytest.MonkeyPatch], HostArena]


@pytest.mark.parametrize("broken", [fail_before, fail_within])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_file_that_cannot_be_written_leaves_the_trainer_asleep_and_whole(
    broken: Broken, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State sleeping, every tensor bit-exact, no partial file; and the next attempt passes (FB-20, scenario 3)."""
    writes, folder = Writes(), tmp_path / "saver"
    world = disk_world(tmp_path, arena=broken(folder, writes, monkeypatch))
    assert on_disk(world) == ["actor/base-optimizer", "actor/buffers", "actor/trainable"]
    before = world.all_bytes()
    writes.fails_at = nth
    world.trainer.sleep()
    with pytest.raises(TransitionFailed, match="pause-weights"):
        world.trainer.offload()

    assert writes.seen == nth
    assert world.trainer.state is TrainerState.SLEEPING
    assert world.all_bytes() == before
    whole = [info.size_bytes for info in world.arena.tags().values() if info.backup is Backup.DISK]
    left = [one.stat().st_size for one in folder.iterdir()]
    assert len(left) == nth - 1
    assert set(left) <= set(whole)

    world.trainer.offload()
    world.trainer.wake_up()
    assert world.all_bytes() == before
