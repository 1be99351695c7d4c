"""A lease pins the versions it was opened on, whatever becomes of the tag, the file or another thread's step."""

from __future__ import annotations

import gc
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from lifecycle import EventRefused, HostArena, LifecycleConfig, LifecycleError, TrainerLifecycle, TrainerState
from lifecycle.base_file import BaseFileStore
from lifecycle.base_file import opened as opened_module
from lifecycle.errors import BaseFileError
from lifecycle.weights.digests import digest
from states import BUFFERS, FROZEN_BASE
from tests.lifecycle.world import FakeEngine, World, make_world


def test_a_lease_over_a_copy_goes_on_giving_the_version_it_was_opened_on() -> None:
    """A step replaces the copy in its tag; the reader keeps the one that was decided."""
    world = make_world(strategy="duplicate")
    world.train("A")
    world.trainer.sleep(offload=True)
    with world.trainer.weights("exporter", groups=["adapter/A"]) as lease:
        before = lease["lora_a.0"].clone()
        world.trainer.wake_up()
        world.train("A")

        assert not torch.equal(world.model.lora_a[0], before)
        assert torch.equal(lease["lora_a.0"], before)


def test_a_lease_over_the_base_file_stops_the_checkpoint_that_would_replace_it(tmp_path: Path) -> None:
    """The holder is named; once it is closed the checkpoint loads."""
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), frozen_base="file")
    world.trainer.sleep(offload=True)
    lease = world.trainer.weights("exporter", groups=[FROZEN_BASE])
    world.trainer.wake_up()
    with pytest.raises(EventRefused, match="exporter"):
        world.trainer.loading_checkpoint().__enter__()
    lease.close()
    with world.trainer.loading_checkpoint(), torch.no_grad():
        world.model.up += 1


def test_a_stray_write_into_the_mapped_base_stays_with_the_reader_that_made_it(tmp_path: Path) -> None:
    """It breaks the contract of a lease, and no engine gets the broken bytes."""
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), frozen_base="file")
    before = world.weights()
    world.trainer.sleep(offload=True)
    with world.trainer.weights("careless") as lease:
        lease["up"].view(-1)[0] = 7.0
    engine = FakeEngine()
    world.trainer.update_weights([engine])

    assert world.weights() == before
    world.trainer.wake_up()
    other = FakeEngine("E1")
    world.trainer.update_weights([other])
    assert other.digests == engine.digests


def test_a_step_of_another_thread_is_not_aborted_by_a_refusal() -> None:
    """B waits for A's turn, is refused because A's step is open, and leaves it alone."""
    world = make_world()
    inside, go_on = Event(), Event()
    raised: list[Exception] = []

    def hold() -> None:
        with world.trainer.step(["A"]) as step:
            inside.set()
            go_on.wait(30)
            step.stepped()

    def intrude() -> None:
        try:
            with world.trainer.step(["B"]):
                pass
        except LifecycleError as error:
            raised.append(error)

    first, second = Thread(target=hold), Thread(target=intrude)
    first.start()
    inside.wait(30)
    second.start()
    second.join(30)
    is_open = world.trainer.facts().step_open
    go_on.set()
    first.join(30)

    assert is_open
    assert [type(one) for one in raised] == [EventRefused]
    assert not world.trainer.facts().step_open


def test_loading_a_checkpoint_cannot_end_as_an_accumulation() -> None:
    """Bytes changed: they must not stay under their old version."""
    world = make_world()
    version = world.trainer.facts().content(FROZEN_BASE).version  # type: ignore[union-attr]
    with pytest.raises(EventRefused, match="no-checkpoint-is-loaded"):
        _accumulate_while_loading(world)

    assert world.trainer.facts().content(FROZEN_BASE).version > version  # type: ignore[union-attr]
    assert not world.trainer.facts().step_open
    world.train("A")


def _accumulate_while_loading(world: World) -> None:
    with world.trainer.loading_checkpoint(), torch.no_grad():
        world.model.up += 1
        world.trainer.accumulated()


def test_a_descriptor_is_closed_once_when_a_base_file_cannot_be_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be somebody else's by then."""
    tensors = {"x": torch.ones(4)}
    store = BaseFileStore(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    closed: list[int] = []
    close = opened_module.os.close
    monkeypatch.setattr(opened_module.mmap, "mmap", full)
    monkeypatch.setattr(opened_module.os, "close", lambda number: (closed.append(number), close(number)))
    with pytest.raises(BaseFileError, match="allocate memory"):
        store.obtain(tensors, digest(tensors))
    monkeypatch.undo()

    assert len(closed) == len(set(closed))


def test_a_new_controller_takes_over_the_model_of_one_that_is_gone() -> None:
    """Gradients and moments that the first one placed are the model's own."""
    world = make_world()
    world.train("A")
    before = world.all_bytes()
    del world.trainer
    gc.collect()
    world.trainer = TrainerLifecycle(
        LifecycleConfig(),
        saver=world.arena,
        model=world.model,
        optimizer=world.optimizers,
        adapters=world.host,
        initial_state=TrainerState.AWAKE,
    )
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()

    assert world.all_bytes() == before


def test_a_buffer_that_a_forward_pass_changed_is_another_version_and_no_fault() -> None:
    """Log-probability passes run outside of steps; the engine gets the new bytes."""
    world, engine = make_world(verify="always"), FakeEngine()
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    world.trainer.update_weights([engine])
    world.model.bias += 1
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    engine.calls.clear()
    world.trainer.update_weights([engine])

    assert world.trainer.state is TrainerState.AWAKE
    assert f"base:{BUFFERS}" in engine.calls
