"""Where content groups lie is looked up when memory is laid out, and not in every event."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lifecycle import HostArena
from lifecycle.memory.homes import Homes
from lifecycle.saver import Backup
from tests.lifecycle.world import World, make_world


class Counting:
    """An arena that counts how often it is asked for a tensor's tag."""

    def __init__(self) -> None:
        self.arena = HostArena()
        self.asked = 0

    @property
    def generation(self) -> int:
        """The arena's."""
        return self.arena.generation

    def tag_of(self, tensor: Tensor) -> str | None:
        """The arena's, counted."""
        self.asked += 1
        return self.arena.tag_of(tensor)


@pytest.fixture
def saver() -> Counting:
    """An arena."""
    return Counting()


def test_a_group_lies_in_the_tags_of_its_tensors(saver: Counting) -> None:
    """Those without bytes lie nowhere, those outside any region under None."""
    placed, loose = torch.ones(4), torch.ones(4)
    saver.arena.place({"w": placed}, "actor/base", Backup.CPU)
    home = Homes(saver).of("frozen-base", {"w": placed, "loose": loose, "empty": torch.empty(0), "v": placed[1:]})

    assert home == {"actor/base": ("w", "v"), None: ("loose",)}


def test_a_group_is_looked_up_anew_only_when_regions_come_or_go(saver: Counting) -> None:
    """Pausing and resuming moves nothing."""
    one, other = {"w": torch.ones(4)}, {"w": torch.ones(4)}
    saver.arena.place(one, "actor/base", Backup.CPU)
    homes = Homes(saver)
    for _ in range(3):
        homes.of("frozen-base", one)
        saver.arena.pause("actor/base")
        saver.arena.resume("actor/base")
    assert saver.asked == 1
    saver.arena.place(other, "actor/other", Backup.CPU)
    homes.of("frozen-base", one)
    assert saver.asked == 2

    saver.arena.release("actor/base")
    assert homes.of("frozen-base", one) == {None: ("w",)}


def test_a_group_with_other_tensors_is_looked_up_anew(saver: Counting) -> None:
    """An adapter of the same name may lie in another slot."""
    one, other = {"w": torch.ones(4)}, {"w": torch.ones(4)}
    saver.arena.place(one, "actor/one", Backup.CPU)
    saver.arena.place(other, "actor/other", Backup.CPU)
    homes = Homes(saver)

    assert list(homes.of("adapter/A", one)) == ["actor/one"]
    assert list(homes.of("adapter/A", other)) == ["actor/other"]


def tags_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the size of each tensor of which the saver is asked for the tag."""
    asked: list[int] = []
    tag_of = world.arena.tag_of

    def counted(tensor: Tensor) -> str | None:
        asked.append(tensor.numel())
        return tag_of(tensor)

    monkeypatch.setattr(world.arena, "tag_of", counted)
    return asked


def test_an_event_does_not_ask_for_every_tensors_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an event costs does not depend on how many tensors the base has."""
    world = make_world()
    world.train("A")
    asked = tags_asked(world, monkeypatch)
    world.train("A")
    world.trainer.reconcile_adapters()
    world.weights()
    world.trainer.sleep()
    world.trainer.wake_up()

    assert asked == []


def test_a_weight_that_was_pointed_at_other_memory_is_seen_before_memory_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An offload and a question look at every tensor."""
    world = make_world()
    world.model.up.data = world.model.up.data.clone()

    (base,) = [one for one in world.trainer.facts().contents if one.group == "frozen-base"]
    assert base.backup == "cpu"
    assert None in world.trainer._parts.layout.homes.of(
        "frozen-base", world.trainer._parts.inventory.base["frozen-base"]
    )
    asked = tags_asked(world, monkeypatch)
    world.trainer.sleep(offload=True)
    assert len(asked) >= len(world.trainer._parts.inventory.tensors())
