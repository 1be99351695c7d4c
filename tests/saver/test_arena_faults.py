"""A fault at any native operation leaves every byte, address and book as before, and the next try succeeds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lifecycle.errors import SaverError
from lifecycle.saver import pages, placement
from lifecycle.saver.arena import HostArena
from lifecycle.saver.blocks import Block
from lifecycle.saver.protocol import Backup
from lifecycle.testing import TAG, bits, random_tensor

BACKUPS = [Backup.NONE, Backup.CPU, Backup.DISK]


class Faults:
    """Fails the n-th call of one operation, once."""

    def __init__(self) -> None:
        self.operation = ""
        self.countdown = 0

    def arm(self, operation: str, nth: int = 1) -> None:
        """Let the n-th call from now fail."""
        self.operation, self.countdown = operation, nth

    def __call__(self, operation: str, tag: str) -> None:
        """Asked before each native operation."""
        if operation == self.operation and self.countdown:
            self.countdown -= 1
            if self.countdown == 0:
                raise OSError(errno.EIO, f"injected at {operation}")


class World:
    """An arena with one tag of three allocations, and a copy of what is in it."""

    def __init__(self, folder: Path, backup: Backup, *, retain: bool = False) -> None:
        self.faults = Faults()
        self.folder = folder
        self.backup = backup
        self.arena = HostArena(1 << 24, str(folder), retain_host_backup=retain, faults=self.faults)
        self.tensors = {f"t{index}": random_tensor(torch.bfloat16, 3000 + index) for index in range(3)}
        for name, tensor in self.tensors.items():
            self.arena.place({name: tensor}, TAG, backup)

    def live(self) -> dict[str, tuple[int, bytes]]:
        """Address and bits of every tensor."""
        return {name: (tensor.data_ptr(), bits(tensor)) for name, tensor in self.tensors.items()}

    def backed_up(self) -> list[bytes | None]:
        """Bits of every host backup."""
        found = [self.arena.host_backup(tensor) for tensor in self.tensors.values()]
        return [None if tensor is None else bits(tensor) for tensor in found]

    def books(self) -> object:
        """Books and files."""
        files = {path.name: path.stat().st_size for path in self.folder.iterdir()}
        return dict(self.arena.tags()), self.arena.usage(), files, self.arena.device_free_bytes()


@pytest.mark.parametrize("backup", BACKUPS)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("operation", ["backup_write", "pause"])
@pytest.mark.parametrize("cycles", [0, 1])
def test_a_failed_pause_leaves_the_tag_active_and_unharmed(
    operation: str, nth: int, backup: Backup, cycles: int, tmp_path: Path
) -> None:
    """Also when it fails at the second or third allocation, and without a backup to read from (FB-20)."""
    world = World(tmp_path, backup)
    for _ in range(cycles):
        world.arena.pause(TAG)
        world.arena.resume(TAG)
    live, books, backed_up = world.live(), world.books(), world.backed_up()
    world.faults.arm(operation, nth)

    with pytest.raises(SaverError, match="injected"):
        world.arena.pause(TAG)

    assert world.live() == live
    assert world.backed_up() == backed_up
    assert world.books() == books
    world.arena.pause(TAG)
    assert world.arena.tags()[TAG].paused


@pytest.mark.parametrize("backup", BACKUPS)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("operation", ["resume", "backup_read"])
def test_a_failed_resume_leaves_the_tag_paused_and_its_backup_unharmed(
    operation: str, nth: int, backup: Backup, tmp_path: Path
) -> None:
    """Also when it fails at the second or third allocation."""
    world = World(tmp_path, backup)
    live = world.live()
    world.arena.pause(TAG)
    paused, books = world.live(), world.books()
    world.faults.arm(operation, nth)

    with pytest.raises(SaverError, match="injected"):
        world.arena.resume(TAG)

    assert world.live() == paused
    assert world.books() == books
    if backup is Backup.CPU:
        assert world.backed_up() == [content for _, content in live.values()]
    world.arena.resume(TAG)
    assert backup is Backup.NONE or world.live() == live


def test_a_failed_pause_leaves_a_retained_backup_as_old_as_the_last_pause(tmp_path: Path) -> None:
    """A version that the books give to the retained bytes stays true."""
    world = World(tmp_path, Backup.CPU, retain=True)
    world.arena.pause(TAG)
    world.arena.resume(TAG)
    retained = world.backed_up()
    for tensor in world.tensors.values():
        tensor.zero_()
    world.faults.arm("pause", 3)

    with pytest.raises(SaverError):
        world.arena.pause(TAG)

    assert world.backed_up() == retained


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_resume_whose_last_step_fails_is_taken_back(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the system refuses to move a page after others have moved."""
    world = World(tmp_path, Backup.CPU)
    live = world.live()
    world.arena.pause(TAG)
    paused = world.live()
    settle: Callable[[Block], None] = Block.settle
    calls: list[Block] = []

    def fail(block: Block) -> None:
        calls.append(block)
        if len(calls) == failing:
            raise OSError(errno.ENOMEM, "injected")
        settle(block)

    monkeypatch.setattr(Block, "settle", fail)
    with pytest.raises(SaverError):
        world.arena.resume(TAG)
    monkeypatch.undo()

    assert world.live() == paused
    assert world.arena.tags()[TAG].paused
    world.arena.resume(TAG)
    assert world.live() == live


def test_a_pause_that_finds_no_room_for_its_mappings_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poison may be refused half-way through a range; the pages come back as they were."""
    world = World(tmp_path, Backup.NONE)
    live = world.live()

    def fail(address: int, size_bytes: int, descriptor: int) -> None:
        pages.reserve_in_place(address, pages.PAGE_BYTES)
        raise OSError(errno.ENOMEM, "injected")

    monkeypatch.setattr(pages, "map_poison", fail)
    with pytest.raises(SaverError, match="injected"):
        world.arena.pause(TAG)
    monkeypatch.undo()

    assert world.live() == live


@pytest.mark.parametrize("call", ["posix_fallocate", "write", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_full_or_broken_disk_leaves_no_file(
    call: str, number: int, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library ends the process there; here the tag is active and the folder empty (FB-20)."""
    world = World(tmp_path, Backup.DISK)
    live, books = world.live(), world.books()
    real = getattr(os, call)
    calls: list[object] = []

    def fail(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == nth:
            raise OSError(number, "injected")
        return real(*arguments)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(SaverError, match="make room or mend the disk"):
        world.arena.pause(TAG)
    monkeypatch.undo()

    assert world.live() == live
    assert world.books() == books
    assert list(tmp_path.iterdir()) == []


def test_a_failed_allocation_leaves_the_tensors_where_they_are(tmp_path: Path) -> None:
    """Placement allocates before it touches anything."""
    world = World(tmp_path, Backup.CPU)
    books = world.books()
    tensor = torch.ones(3)
    address = tensor.data_ptr()
    world.faults.arm("allocate")

    with pytest.raises(SaverError, match="injected"):
        world.arena.place({"tensor": tensor}, TAG, Backup.CPU)

    assert tensor.data_ptr() == address
    assert world.books() == books


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_placement_that_fails_half_way_is_taken_back(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was copied or made before, all tensors are as before and the allocation is freed."""
    world = World(tmp_path, Backup.CPU)
    books = world.books()
    tensors = {f"n{index}": torch.randn(4) for index in range(4)}
    before = {name: (tensor.data_ptr(), bits(tensor)) for name, tensor in tensors.items()}
    view_of_storage = placement.view_of_storage
    calls: list[object] = []

    def fail(*arguments: object) -> torch.Tensor:
        calls.append(arguments)
        if len(calls) == failing:
            raise RuntimeError("injected")
        return view_of_storage(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(placement, "view_of_storage", fail)
    with pytest.raises(RuntimeError, match="injected"):
        world.arena.place(tensors, TAG, Backup.CPU)
    monkeypatch.undo()

    assert {name: (tensor.data_ptr(), bits(tensor)) for name, tensor in tensors.items()} == before
    assert world.books() == books
    assert world.arena.tag_of(tensors["n0"]) is None


def test_a_failed_repointing_is_taken_back(tmp_path: Path) -> None:
    """A tensor that refuses new data does not leave the tensors before it moved."""

    class Stubborn(torch.Tensor):
        refuses = False

        def __setattr__(self, name: str, value: object) -> None:
            if name == "data" and Stubborn.refuses:
                Stubborn.refuses = False
                raise RuntimeError("injected")
            super().__setattr__(name, value)

    world = World(tmp_path, Backup.CPU)
    books = world.books()
    first, stubborn = torch.ones(3), torch.ones(3).as_subclass(Stubborn)
    addresses = (first.data_ptr(), stubborn.data_ptr())
    Stubborn.refuses = True

    with pytest.raises(RuntimeError, match="injected"):
        world.arena.place({"first": first, "stubborn": stubborn}, TAG, Backup.CPU)

    assert (first.data_ptr(), stubborn.data_ptr()) == addresses
    assert world.books() == books


def test_a_failed_free_can_be_tried_again(tmp_path: Path) -> None:
    """What was freed is out of the books, the rest is still in them."""
    world = World(tmp_path, Backup.CPU)
    world.faults.arm("free", 2)

    with pytest.raises(SaverError, match="injected"):
        world.arena.release(TAG)

    tags = [world.arena.tag_of(tensor) for tensor in world.tensors.values()]
    assert tags == [None, TAG, TAG]
    world.arena.release(TAG)
    assert world.arena.tags() == {}
