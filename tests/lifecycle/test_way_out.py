"""Bytes that are lost for good leave a way on: the error names it, and it works."""

from __future__ import annotations

import pytest

from lifecycle import HostArena, LifecycleConfig, Moved, TrainerFaulted, TrainerLifecycle, TrainerState
from tests.lifecycle.world import SlotHost, TinyModel, World, make_world


def lost_world() -> World:
    """The base changed while it was paused, and nobody has a copy."""
    world = make_world(verify="always")
    world.trainer.sleep(offload=True)
    backup = world.arena.host_backup(world.model.up)
    assert backup is not None
    backup.view(-1)[0] += 1
    del backup
    with pytest.raises(TrainerFaulted, match=r"call recover\(\)"):
        world.trainer.wake_up()
    return world


def controller(arena: HostArena, name: str) -> TrainerLifecycle:
    """A new one, on a new model."""
    model = TinyModel()
    return TrainerLifecycle(
        LifecycleConfig(model=name),
        saver=arena,
        model=model,
        optimizer=None,
        adapters=SlotHost(model),
        initial_state=TrainerState.AWAKE,
    )


def test_a_recovery_without_a_copy_says_how_to_go_on_in_this_process() -> None:
    """It does not advise itself for ever: another name, or the tags released."""
    world = lost_world()
    with pytest.raises(TrainerFaulted, match=r"no copy of it is kept.*another LifecycleConfig\(model=.*saver\.release"):
        world.trainer.recover()

    assert isinstance(controller(world.arena, "again").sleep(), Moved)
    for tag in [tag for tag in world.arena.tags() if tag.startswith("actor/")]:
        world.arena.release(tag)
    assert isinstance(controller(world.arena, "actor").sleep(), Moved)
