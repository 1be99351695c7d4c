"""The faults that the field knows by name: a full disk, a disk that fails, no memory, a base file that was cut off."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from lifecycle import EventRefused, HostArena, Moved, TrainerState, TransitionFailed
from lifecycle.base_file import disk
from lifecycle.errors import BaseFileError, SaverError
from tests.lifecycle.faulted_events import readable_bytes
from tests.lifecycle.test_lean import FROZEN_BYTES
from tests.lifecycle.world import World, content_of, make_world

PLACES = {"file": {"frozen_base": "file"}, "disk": {"offload_target": "disk"}}


def world_on(folder: Path, place: str, **changes: object) -> World:
    """A trained world whose base lies in a file."""
    world = make_world(arena=HostArena(disk_dir=str(folder)), **PLACES[place], **changes)
    world.train("A", "B")
    return world


def base_file(folder: Path) -> Path:
    """The one base file."""
    (path,) = folder.glob("base-*.safetensors")
    return path


def cut_off(path: Path) -> bytes:
    """Another program cuts the file off in the middle. What it was."""
    content = path.read_bytes()
    os.truncate(path, len(content) // 2)
    return content


@pytest.mark.parametrize("place", PLACES)
def test_a_base_file_cut_off_while_awake_is_noticed_and_the_base_is_copied_before_it_is_paused(
    place: str, tmp_path: Path
) -> None:
    """The live base is then the only one: it goes into a host copy at the sleep, and comes back from there."""
    world = world_on(tmp_path, place)
    before = world.all_bytes()
    cut_off(base_file(tmp_path))
    slept = world.trainer.sleep()
    assert isinstance(slept, Moved)
    assert dict(slept.moved)["snapshot"] == FROZEN_BYTES
    assert "frozen-base" in world.trainer.snapshots.versions("actor")

    world.trainer.offload()
    world.trainer.wake_up()
    assert world.all_bytes() == before


@pytest.mark.parametrize("place", PLACES)
def test_a_base_file_cut_off_between_sleep_and_offload_refuses_the_offload(place: str, tmp_path: Path) -> None:
    """Nobody would have the base any more: the message names the file, and a wake and a sleep make the copy."""
    world = world_on(tmp_path, place)
    before = world.all_bytes()
    world.trainer.sleep()
    cut_off(base_file(tmp_path))
    with pytest.raises(EventRefused, match="frozen-base"):
        world.trainer.offload()

    world.trainer.wake_up()
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    assert world.all_bytes() == before


@pytest.mark.parametrize("place", PLACES)
def test_a_base_file_cut_off_while_offloaded_refuses_the_wake_and_says_what_is_lost(place: str, tmp_path: Path) -> None:
    """It was the only copy of the base; nothing is woken with other bytes, and the adapters can still be read."""
    world = world_on(tmp_path, place)
    adapters = {name: one for name, one in world.weights().items() if name.startswith("lora")}
    world.trainer.sleep(offload=True)
    cut_off(base_file(tmp_path))
    with pytest.raises(EventRefused, match="frozen-base") as refused:
        world.trainer.wake_up()

    assert "bytes now and had" in str(refused.value)
    assert str(base_file(tmp_path)) in str(refused.value)
    assert world.trainer.state.startswith("offloaded")
    with world.trainer.weights("rescue", groups=["adapter/A", "adapter/B"]) as lease:
        assert {name: content_of({name: lease[name]}) for name in lease} == adapters


@pytest.mark.parametrize("place", PLACES)
def test_a_base_file_cut_off_during_the_wake_is_found_and_the_wake_is_undone(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read ends before its time: offloaded as before; with the file back in its place the wake succeeds."""
    world = world_on(tmp_path, place)
    before = readable_bytes(world)
    world.trainer.sleep(offload=True)
    real, content = disk.read_all, []

    def cutting(descriptor: int, into: memoryview, offset: int) -> int:
        if not content:
            content.append(cut_off(base_file(tmp_path)))
        return real(descriptor, into, offset + len(content[0]))

    monkeypatch.setattr(disk, "read_all", cutting)
    with pytest.raises(TransitionFailed, match="cut it off") as failed:
        world.trainer.wake_up()
    monkeypatch.undo()
    assert isinstance(failed.value.__cause__, BaseFileError)
    assert world.trainer.state.startswith("offloaded")
    base_file(tmp_path).write_bytes(content[0])

    assert isinstance(world.trainer.wake_up(), Moved)
    assert readable_bytes(world) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync"])
def test_a_disk_that_is_full_or_fails_while_another_base_is_written_undoes_the_commit_of_the_checkpoint(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left on the disk, what was loaded survives a cycle in a copy, and the next commit writes the file."""
    world = world_on(tmp_path, "disk")
    old = base_file(tmp_path)

    def failing(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)
    with (
        pytest.raises(TransitionFailed, match=os.strerror(number)),
        world.trainer.loading_checkpoint(),
        torch.no_grad(),
    ):
        world.model.up += 1
    monkeypatch.undo()
    loaded = world.model.up.detach().clone()

    assert [path.name for path in tmp_path.glob("base-*")] == [old.name]
    assert world.trainer.facts().contents[0].version != world.trainer._parts.file.version
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    assert torch.equal(world.model.up, loaded)
    with world.trainer.loading_checkpoint():
        pass
    assert world.trainer.facts().contents[0].version == world.trainer._parts.file.version
    assert len(list(tmp_path.glob("base-*"))) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_disk_that_is_full_or_fails_while_backups_are_written_undoes_the_offload(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asleep as before, no file is left of it, and the offload goes through once there is room."""
    world = world_on(tmp_path, "disk", trainable=True, strategy="reference")
    before = readable_bytes(world)
    world.trainer.sleep()

    def failing(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", failing)
    with pytest.raises(TransitionFailed, match=os.strerror(number)) as failed:
        world.trainer.offload()
    monkeypatch.undo()

    assert isinstance(failed.value.__cause__, SaverError)
    assert list(tmp_path.glob("tms_*")) == []
    assert world.trainer.state is TrainerState.SLEEPING
    world.trainer.offload()
    world.trainer.wake_up()
    assert readable_bytes(world) == before


def test_a_host_without_memory_for_a_copy_leaves_the_tag_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a kept model is none, also where it would replace one."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    before = world.trainer.snapshots.versions("ref")
    base = {name: one.detach() + 1 for name, one in world.trainer._parts.inventory.base["frozen-base"].items()}
    real, calls = torch.empty, []

    def full(*shape: object, **keywords: object) -> torch.Tensor:
        calls.append(shape)
        if len(calls) == 3:
            raise MemoryError
        return real(*shape, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(MemoryError):
        world.trainer.keep_model("ref", {**base, "bias": world.model.bias + 1})
    monkeypatch.undo()

    assert world.trainer.snapshots.versions("ref") == before
