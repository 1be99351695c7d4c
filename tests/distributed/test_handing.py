"""What is handed over to a new process, in one process: the book, and bytes in chunks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lifecycle import HostArena
from lifecycle.distributed.errors import JoinRefused
from lifecycle.distributed.giving import told_of
from lifecycle.distributed.handed import SCHEMA, decode, encode
from lifecycle.distributed.handing import chunked, fill, loaded_own, render, unreadable_of
from lifecycle.transition.records import LogStanding
from tests.lifecycle.world import World, make_world

STANDING = LogStanding(7, {"adapter/A": 3}, 2)


@pytest.fixture
def world() -> World:
    """A trainer with adapters A and B that has trained, and keeps a model."""
    made = make_world(with_ref=True, trainable=True)
    made.train("A", steps=2)
    made.trainer.keep_model("ref")
    return made


def test_a_book_arrives_as_it_was_told(world: World) -> None:
    """All of it, in JSON."""
    told = told_of(world.trainer._parts, world.trainer.state, STANDING)

    assert decode(encode(told.book)) == told.book
    assert list(told.book.tensors) == list(told.tensors)
    assert {name.partition("/")[0] for name in told.tensors} >= {"slot 0", "slot 1", "trainable-base", "buffers"}
    assert not any("embed" in name for name in told.tensors)


@pytest.mark.parametrize("change", ["digest", "schema", "type", "tags", "cut"])
def test_a_book_that_is_damaged_or_of_another_library_is_refused(world: World, change: str) -> None:
    """Whatever is wrong with it."""
    content = encode(told_of(world.trainer._parts, world.trainer.state, STANDING).book)
    wrapped = json.loads(content)
    if change == "digest":
        wrapped["book"]["state"] = "sleeping"
    elif change == "schema":
        wrapped["schema"] = SCHEMA + "0"
    else:
        wrapped["book"]["copies"] = 3 if change == "type" else []
        body = json.dumps(wrapped["book"], separators=(",", ":")).encode()
        wrapped["sha256"] = hashlib.sha256(body).hexdigest()
    told = json.dumps(wrapped, separators=(",", ":")).encode()

    with pytest.raises(JoinRefused):
        decode(told[:-20] if change == "cut" else told)


def _tensors() -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    wide = torch.randn(40, 30, generator=draw)
    return [wide, wide.T, torch.arange(7), torch.tensor(2.5), torch.zeros(0), torch.randn(9, generator=draw).bfloat16()]


def test_tensors_arrive_in_chunks_bit_for_bit_whatever_their_strides() -> None:
    """A large one in parts, small ones together; what has no bytes takes none."""
    told = _tensors()
    taken = [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype) for one in told]
    here, there = list(chunked(taken, 512)), list(chunked(told, 512))
    for mine, theirs in zip(here, there, strict=True):
        fill(mine, render(theirs))

    assert len(there) > 10
    assert all(sum(one.numel() * one.element_size() for one in chunk) <= 512 for chunk in there)
    assert all(torch.equal(one, other) for one, other in zip(taken, told, strict=True))


@pytest.mark.parametrize("content", [b"", b"no safetensors", render([torch.zeros(3)]), render([torch.zeros(4)] * 2)])
def test_a_chunk_that_is_another_one_is_refused_and_nothing_is_written(content: bytes) -> None:
    """Of another size or number, or none at all."""
    taken = torch.ones(4)

    with pytest.raises(JoinRefused, match="admit again"):
        fill([taken], content)
    assert torch.equal(taken, torch.ones(4))


def test_what_lies_in_a_disk_backup_cannot_be_handed_over(tmp_path: Path) -> None:
    """It is named; awake it can be read."""
    made = make_world(trainable=True, offload_target="disk", arena=HostArena(disk_dir=str(tmp_path)))
    parts = made.trainer._parts
    assert unreadable_of(parts, loaded_own(parts)) == ()

    made.trainer.sleep()
    made.trainer.offload()
    assert "p#exp_avg is paused without a host backup" in unreadable_of(parts, loaded_own(parts))
    made.trainer.wake_up()
    assert unreadable_of(parts, loaded_own(parts)) == ()


def test_what_live_memory_holds_in_no_known_version_cannot_be_handed_over(world: World) -> None:
    """Lost bytes are nobody's to give."""
    parts = world.trainer._parts
    parts.versions.region["adapter/A"] = None

    assert unreadable_of(parts, loaded_own(parts)) == ("the newest adapter/A is not in the trainer's own memory",)


def test_an_optimizer_that_steps_what_nobody_knows_hands_nothing_over(world: World) -> None:
    """Its state would be left behind unseen."""
    parts = world.trainer._parts
    world.optimizers[0].add_param_group({"params": [torch.zeros(3, requires_grad=True)]})

    assert unreadable_of(parts, loaded_own(parts)) == (
        "an optimizer steps a tensor that is neither a parameter nor declared as a main copy",
    )
