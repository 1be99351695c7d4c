"""What the arena does with pages: given back when paused, poisoned, bounded, and all returned at the end."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
import torch

from lifecycle.errors import ConfigError, SaverError, SaverMisuse
from lifecycle.saver import pages
from lifecycle.saver.arena import HostArena
from lifecycle.saver.protocol import Backup, Usage
from lifecycle.testing import TAG, bits, random_tensor
from tests.saver.proc import descriptors, mappings, pss_bytes, run_child

MIB = 1 << 20
REGION_BYTES = 128 * MIB
TOLERANCE_BYTES = 32 * MIB


def placed(arena: HostArena, backup: Backup, size_bytes: int = MIB) -> torch.Tensor:
    """A tensor of ones in the arena."""
    tensor = torch.ones(size_bytes // 4)
    arena.place({"tensor": tensor}, TAG, backup)
    return tensor


@pytest.mark.parametrize(("backup", "left"), [(Backup.NONE, 0), (Backup.DISK, 0), (Backup.CPU, REGION_BYTES)], ids=str)
def test_a_pause_gives_the_pages_back_to_the_system(backup: Backup, left: int, tmp_path: Path) -> None:
    """After a pause the process holds the host backup and nothing else of the region."""
    arena = HostArena(disk_dir=str(tmp_path))
    before = pss_bytes()
    tensor = placed(arena, backup, REGION_BYTES)
    active = pss_bytes()
    arena.pause(TAG)
    paused = pss_bytes()
    assert tensor[:: 4096 // 4].isnan().all()
    read = pss_bytes()
    arena.close()

    assert abs(active - before - REGION_BYTES) < TOLERANCE_BYTES
    assert abs(paused - before - left) < TOLERANCE_BYTES
    assert abs(read - before - left) < TOLERANCE_BYTES


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2],
    ids=str,
)
def test_reading_a_paused_float_gives_nan(dtype: torch.dtype) -> None:
    """Freed memory must not look like zeros, in any of the usual float formats."""
    arena = HostArena()
    tensor = random_tensor(dtype, 2 * pages.POISON_BYTES // dtype.itemsize + 5)
    arena.place({"tensor": tensor}, TAG, Backup.CPU)

    arena.pause(TAG)

    assert tensor.to(torch.float64).isnan().all()


def test_reading_a_paused_integer_gives_minus_one() -> None:
    """Integers have no NaN; their poison is -1."""
    arena = HostArena()
    tensor = torch.zeros(7, dtype=torch.int64)
    arena.place({"tensor": tensor}, TAG, Backup.CPU)

    arena.pause(TAG)

    assert tensor.tolist() == [-1] * 7


def test_writing_a_paused_tensor_is_a_segmentation_fault() -> None:
    """A write into freed memory ends the process; it does not vanish."""
    program = """
import torch
from lifecycle.saver.arena import HostArena
arena = HostArena()
tensor = torch.zeros(8)
arena.place({"tensor": tensor}, "tag", "cpu")
arena.pause("tag")
print("paused", flush=True)
tensor.fill_(1.0)
print("written", flush=True)
"""
    child = run_child(program)

    assert child.stdout == "paused\n"
    assert child.returncode == -signal.SIGSEGV


def test_a_region_without_backup_comes_back_as_nan() -> None:
    """Lost values must not look like values (FB-12)."""
    arena = HostArena()
    tensor = placed(arena, Backup.NONE)
    arena.pause(TAG)
    arena.resume(TAG)

    assert tensor.isnan().all()


def test_addresses_and_bits_are_the_same_over_a_hundred_cycles() -> None:
    """Pointers never change, so graphs that were captured with them stay valid."""
    arena = HostArena()
    tensors = {f"t{index}": random_tensor(torch.bfloat16, 513, index + 1) for index in range(8)}
    arena.place(tensors, TAG, Backup.CPU)
    before = {name: (tensor.data_ptr(), bits(tensor)) for name, tensor in tensors.items()}

    for _ in range(100):
        arena.pause(TAG)
        arena.resume(TAG)

    assert {name: (tensor.data_ptr(), bits(tensor)) for name, tensor in tensors.items()} == before


def test_allocating_beyond_the_capacity_is_refused() -> None:
    """The device is full: the tensor stays where it is."""
    arena = HostArena(capacity_bytes=MIB)
    tensor = torch.ones(MIB)
    address = tensor.data_ptr()

    with pytest.raises(SaverError, match="pause or release another tag"):
        arena.place({"tensor": tensor}, TAG, Backup.CPU)

    assert tensor.data_ptr() == address
    assert arena.tags() == {}
    assert arena.device_free_bytes() == MIB


def test_a_resume_without_room_leaves_the_tag_paused_and_its_backup_readable() -> None:
    """Where the library ends the process, the arena raises, and a later resume succeeds."""
    arena = HostArena(capacity_bytes=2 * MIB)
    tensor = placed(arena, Backup.CPU)
    arena.pause(TAG)
    arena.place({"other": torch.ones(2 * MIB // 4)}, "other", Backup.NONE)

    with pytest.raises(SaverError, match="free device memory first"):
        arena.resume(TAG)

    backup = arena.host_backup(tensor)
    assert backup is not None
    assert backup.eq(1).all()
    assert arena.tags()[TAG].paused
    arena.pause("other")
    arena.resume(TAG)
    assert tensor.eq(1).all()


def test_the_port_checks_the_capacity_itself() -> None:
    """The guard above it is not the only one."""
    arena = HostArena(capacity_bytes=MIB)
    tensor = placed(arena, Backup.CPU)
    arena.pause(TAG)
    arena.allocate(MIB, "other", Backup.NONE)

    with pytest.raises(SaverError):
        arena.port.resume(TAG)

    assert arena.port.describe(tensor.data_ptr(), tensor.nbytes) == (TAG, Backup.CPU, True)


def test_a_disk_backup_is_private_whole_and_kept_until_release(tmp_path: Path) -> None:
    """One file an allocation, 0600, raw bytes; it stays while the tag is active and goes with the tag."""
    arena = HostArena(disk_dir=str(tmp_path))
    tensor = random_tensor(torch.float32, 1000)
    arena.place({"tensor": tensor}, TAG, Backup.DISK)
    before = bits(tensor)
    arena.pause(TAG)
    (file,) = tmp_path.iterdir()

    assert file.read_bytes()[: len(before)] == before
    assert file.stat().st_mode & 0o777 == 0o600
    arena.resume(TAG)
    assert list(tmp_path.iterdir()) == [file]
    arena.pause(TAG)
    assert list(tmp_path.iterdir()) == [file]
    arena.release(TAG)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_damaged_disk_backup_fails_the_resume_and_nothing_else(damage: str, tmp_path: Path) -> None:
    """A file that is gone or cut leaves the tag paused."""
    arena = HostArena(disk_dir=str(tmp_path))
    tensor = placed(arena, Backup.DISK)
    arena.pause(TAG)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.unlink() if damage == "missing" else os.truncate(file, 100)

    with pytest.raises(SaverError):
        arena.resume(TAG)

    assert arena.tags()[TAG].paused
    assert tensor.isnan().all()
    file.write_bytes(whole)
    arena.resume(TAG)
    assert tensor.eq(1).all()


def test_released_ranges_stay_reserved_until_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is used after release meets no other tensor's bytes; close gives the range back."""
    arena = HostArena()
    tensor = placed(arena, Backup.CPU)
    address = tensor.data_ptr()
    unmapped: list[int] = []
    unmap = pages.unmap
    monkeypatch.setattr(pages, "unmap", lambda start, size: (unmapped.append(start), unmap(start, size)))

    arena.release(TAG)
    assert address not in unmapped
    arena.close()

    assert address in unmapped


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    """Neither mappings, descriptors nor files are left, and tensors that outlive the arena may die."""
    gc.collect()
    before = (mappings(), descriptors())
    arena = HostArena(disk_dir=str(tmp_path), retain_host_backup=True)
    tensors = {tag: torch.ones(3 * MIB) for tag in ("cpu", "disk", "none", "again")}
    for tag, backup in (("cpu", Backup.CPU), ("disk", Backup.DISK), ("none", Backup.NONE), ("again", Backup.CPU)):
        arena.place({"tensor": tensors[tag]}, tag, backup)
        arena.pause(tag)
    arena.resume("again")
    arena.place({"x": torch.ones(3)}, "released", Backup.CPU)
    arena.release("released")
    assert mappings() > before[0]

    arena.close()
    arena.close()

    assert list(tmp_path.iterdir()) == []
    assert arena.usage() == Usage(0, 0, 0)
    tensors.clear()
    gc.collect()
    assert descriptors() == before[1]
    assert mappings() <= before[0] + 2  # the heap may have grown by an arena of its own


def test_a_closed_arena_refuses_every_call() -> None:
    """The error says what to do."""
    arena = HostArena()
    arena.close()

    with pytest.raises(SaverMisuse, match="make a new one"):
        arena.place({"x": torch.ones(2)}, TAG, Backup.CPU)


def test_tensors_keep_the_memory_alive_when_the_arena_is_dropped() -> None:
    """A model that outlives the variable of its saver does not read unmapped memory."""
    arena = HostArena()
    tensor = placed(arena, Backup.CPU)
    view = tensor[5:]
    del arena, tensor
    gc.collect()

    assert view.eq(1).all()


def test_dropping_the_arena_and_its_tensors_gives_everything_back(tmp_path: Path) -> None:
    """Without close, the finalizer removes memory and files."""
    gc.collect()
    before = descriptors()
    arena = HostArena(disk_dir=str(tmp_path))
    tensor = placed(arena, Backup.DISK)
    arena.pause(TAG)
    assert descriptors() == before + 2, "the poison, and the lock of the backup file"
    del arena, tensor
    gc.collect()

    assert descriptors() == before
    assert list(tmp_path.iterdir()) == []


def test_disk_backups_are_removed_at_exit_but_not_by_a_forked_child(tmp_path: Path) -> None:
    """The library leaves them behind; the arena does not, and a child leaves its parent's files alone."""
    program = """
import os, sys, torch
from lifecycle.saver.arena import HostArena
arena = HostArena(disk_dir=sys.argv[1])
tensor = torch.ones(8)
arena.place({"tensor": tensor}, "tag", "disk")
arena.pause("tag")
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(len(os.listdir(sys.argv[1])))
"""
    child = run_child(program, str(tmp_path))

    assert (child.stdout, child.stderr, child.returncode) == ("1\n", "", 0)
    assert list(tmp_path.iterdir()) == []


def test_memory_of_another_place_cannot_be_adopted() -> None:
    """The arena, unlike the library, can tell what lies in it, and how."""
    arena = HostArena()
    memory = arena.allocate(4096, TAG, Backup.CPU)

    for tensor, backup, paused in (
        (torch.ones(3), Backup.CPU, False),
        (memory, Backup.NONE, False),
        (memory, Backup.CPU, True),
    ):
        with pytest.raises(SaverMisuse, match="do not lie in"):
            arena.adopt({"tensor": tensor}, TAG, backup, paused=paused)
    assert arena.tags() == {}


@pytest.mark.parametrize("arguments", [{"capacity_bytes": 0}, {"capacity_bytes": -1}, {"disk_dir": "/proc/nowhere"}])
def test_an_arena_that_cannot_work_is_refused(arguments: dict[str, object]) -> None:
    """A bad capacity or folder is an error of the configuration."""
    with pytest.raises(ConfigError):
        HostArena(**arguments)  # type: ignore[arg-type]


def test_a_kernel_that_cannot_move_pages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arena needs Linux 5.7; an older one gets an error with that remedy."""

    def refuse(address: int, size_bytes: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(pages, "move_away", refuse)

    with pytest.raises(ConfigError, match=r"Linux 5\.7"):
        HostArena()
