"""Sleep tears down the process groups that the user listed, wake builds them again (FB-47)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lifecycle import Moved, ProcessGroups, TrainerState, TransitionFailed, Unchanged
from tests.lifecycle.world import World, make_world


@pytest.fixture
def gloo(tmp_path: Path) -> Iterator[None]:
    """A default group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def world_with(names: tuple[str, ...]) -> tuple[World, ProcessGroups]:
    """A world whose trainer lists these groups."""
    world, groups = make_world(), ProcessGroups()
    for name in names:
        groups.add(name, lambda: dist.new_group([0]))
    world.trainer._parts.groups = groups
    return world, groups


def works(groups: ProcessGroups, name: str) -> bool:
    """A collective on the group."""
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=groups.get(name))
    return bool(tensor.item() == 1)


@pytest.mark.usefixtures("gloo")
def test_a_group_that_is_down_already_does_not_stop_the_others() -> None:
    """Teardown reads what is there; the odd one is noted; all are up again after waking."""
    world, groups = world_with(("one", "two", "three"))
    dist.destroy_process_group(groups.get("two"))
    outcome = world.trainer.sleep()

    assert isinstance(outcome, Moved)
    noted = dict(outcome.details)["groups"]
    assert noted["one"] == noted["three"] == "down"  # type: ignore[index]
    assert noted["two"] != "down"  # type: ignore[index]
    assert isinstance(world.trainer.sleep(), Unchanged)
    world.trainer.wake_up()
    assert all(works(groups, name) for name in groups.names)


@pytest.mark.usefixtures("gloo")
def test_a_group_that_cannot_be_built_again_undoes_the_wake_and_is_named() -> None:
    """The trainer is asleep as before, the groups are down as before, and waking later succeeds."""
    world, groups = world_with(("one", "two"))
    before = world.all_bytes()
    world.trainer.sleep(offload=True)
    entry = groups._entries["two"]
    build = entry.build
    entry.build = lambda: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(TransitionFailed, match="two"):
        world.trainer.wake_up()
    assert world.trainer.state is TrainerState.OFFLOADED_CPU

    entry.build = build
    world.trainer.wake_up()
    assert all(works(groups, name) for name in groups.names)
    assert world.all_bytes() == before
