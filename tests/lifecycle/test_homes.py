"""Where content groups lie is looked up when memory is laid out, and not in every event."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from lifecycle import EventRefused, HostArena
from lifecycle.memory.homes import Homes, Standing
from lifecycle.saver import Backup, TagInfo
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

    @property
    def revision(self) -> int:
        """The arena's."""
        return self.arena.revision

    def tags(self) -> Mapping[str, TagInfo]:
        """The arena's."""
        return self.arena.tags()


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
    world.trainer.sleep()
    with pytest.raises(EventRefused, match="nothing-strays"):
        world.trainer.offload()
    assert len(asked) >= len(world.trainer._parts.inventory.tensors())


def test_a_group_stands_as_the_books_say(saver: Counting) -> None:
    """Live, paused in the host, back again; one tensor on its own tag is paused without its bytes."""
    both = {"w": torch.ones(4), "v": torch.ones(4)}
    saver.arena.place({"w": both["w"]}, "actor/base", Backup.CPU)
    saver.arena.place({"v": both["v"]}, "actor/lost", Backup.NONE)
    homes = Homes(saver)
    seen = [homes.standing("frozen-base", both)]
    saver.arena.pause("actor/lost")
    seen.append(homes.standing("frozen-base", both))
    saver.arena.pause("actor/base")
    seen.append(homes.standing("frozen-base", {"w": both["w"]}))
    saver.arena.resume("actor/base")
    seen.append(homes.standing("frozen-base", {}))

    assert seen == [
        Standing(is_live=True, is_readable=False, is_retained=False, backup="none", lost=()),
        Standing(is_live=False, is_readable=False, is_retained=False, backup="none", lost=("v",)),
        Standing(is_live=False, is_readable=True, is_retained=False, backup="cpu", lost=()),
        Standing(is_live=True, is_readable=True, is_retained=False, backup="unplaced", lost=()),
    ]


def test_a_retained_backup_counts_only_where_every_tensor_has_one() -> None:
    """The saver keeps the host copy of the last pause; memory that was never paused has none."""
    arena = HostArena(retain_host_backup=True)
    held = {"w": torch.ones(4)}
    arena.place(held, "actor/base", Backup.CPU)
    homes = Homes(arena)
    before = homes.standing("frozen-base", held).is_retained
    arena.pause("actor/base")
    paused = homes.standing("frozen-base", held).is_retained
    arena.resume("actor/base")

    assert [before, paused, homes.standing("frozen-base", held).is_retained] == [False, False, True]
    assert not homes.standing("adapter/A", {**held, "loose": torch.ones(1)}).is_retained
