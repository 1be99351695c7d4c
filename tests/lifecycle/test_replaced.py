"""A model that has other tensors than were attached is noticed before they are trained, served or paused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from lifecycle import EventRefused
from lifecycle.errors import ConfigError
from tests.lifecycle.world import FakeEngine, World, content_of, make_world

REPLACEMENTS: dict[str, Callable[[World], None]] = {
    "bias": lambda world: setattr(world.model, "bias", world.model.bias * 0 + 5),
    "up": lambda world: setattr(world.model, "up", nn.Parameter(world.model.up + 1, requires_grad=False)),
    "lora_a.0": lambda world: world.model.lora_a.__setitem__(0, nn.Parameter(world.model.lora_a[0] + 1)),
}


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_a_step_that_replaced_a_tensor_is_not_committed(name: str) -> None:
    """The old object would be served as the new version: the commit is refused, and says what to do."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    with pytest.raises(EventRefused, match=rf"nothing-was-replaced: .*{name}.*in place"):
        _replace_in_a_step(world, name)

    assert not world.trainer.facts().step_open
    with pytest.raises(EventRefused, match=name):
        world.trainer.begin_step(["A"])


def _replace_in_a_step(world: World, name: str) -> None:
    with world.trainer.step(["A"]) as step:
        REPLACEMENTS[name](world)
        step.stepped()


def test_a_checkpoint_that_is_assigned_instead_of_copied_is_not_committed() -> None:
    """``assign=True`` puts other objects into the model; copied, the engine gets the new bytes."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    state = {name: one.clone() + 1 for name, one in world.model.state_dict().items()}
    original = dict(world.model.named_parameters())
    with pytest.raises(EventRefused, match="nothing-was-replaced"):
        _load(world, state, assign=True)
    for name, one in original.items():
        owner = world.model.get_submodule(name.rpartition(".")[0])
        owner._parameters[name.rpartition(".")[2]] = one
    world.model.head = world.model.embed
    buffer = world.trainer._parts.inventory.base["buffers"]["bias"]
    world.model._buffers["bias"] = buffer
    _load(world, state, assign=False)
    world.trainer.update_weights([engine])

    base = {name: getattr(world.model, name) for name in ("embed", "up", "down")}
    assert engine.digests["frozen-base"] == content_of(base)


def _load(world: World, state: dict[str, torch.Tensor], *, assign: bool) -> None:
    with world.trainer.loading_checkpoint():
        world.model.load_state_dict(state, assign=assign)


def test_an_offload_that_would_leave_a_moved_tensor_behind_is_refused() -> None:
    """``param.data = ...`` takes it out of its region: it would stay on the device, served from nowhere (FB-01)."""
    world = make_world()
    world.model.up.data = world.model.up.data.clone()
    world.trainer.sleep()
    with pytest.raises(EventRefused, match=r"nothing-strays: .*up"):
        world.trainer.offload()


def test_a_checkpoint_that_is_loading_is_committed_by_its_block_alone() -> None:
    """What is loaded after an early commit would belong to no step."""
    world = make_world()
    with world.trainer.loading_checkpoint(), pytest.raises(EventRefused, match="no-checkpoint-is-loaded"):
        world.trainer.trained()

    assert not world.trainer.facts().step_open


def test_an_interrupt_right_after_a_step_was_opened_does_not_leave_it_open() -> None:
    """A subscriber is interrupted before the block has begun: nobody else could close the step."""
    world = make_world()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    world.trainer.subscribe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.trainer.step(["A"]).__enter__()
    world.trainer._runner.subscribers.clear()

    world.trainer.sleep()


@pytest.mark.parametrize("tag", [None, 3, "", []])
def test_what_is_no_name_of_a_snapshot_is_refused_before_anything_is_stored(tag: object) -> None:
    """A tag that cannot be compared with the others would stop every event after it."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    store = world.trainer.snapshots
    for call in (
        lambda: store.backup(tag),  # type: ignore[arg-type]
        lambda: store.copy(src_tag="ref", dst_tag=tag),  # type: ignore[arg-type]
        lambda: store.get(tag),  # type: ignore[arg-type]
        lambda: store.release(tag),  # type: ignore[arg-type]
        lambda: world.trainer.keep_model(tag),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match="is no tag"):
            call()

    assert store.backup_tags == ("ref",)
    world.trainer.sleep()


@pytest.mark.parametrize("tensors", [[1], {3: torch.ones(1)}, "up", {"up": torch.ones(1, device="meta")}, {"up": 4}])
def test_a_model_to_keep_is_a_mapping_of_names_to_tensors_with_values(tensors: object) -> None:
    """Bad input is a clear error, whatever its kind."""
    world = make_world(with_ref=True)
    with pytest.raises(ConfigError):
        world.trainer.keep_model("ref", tensors)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [None, "AB", [1, "A"], [["A"]], 3])
def test_adapters_and_groups_are_lists_of_names(names: object) -> None:
    """A single string is not taken apart into letters."""
    world = make_world()
    for call in (world.trainer.begin_step, lambda given: world.trainer.weights(groups=given or 3)):
        with pytest.raises(ConfigError):
            call(names)  # type: ignore[operator]


def test_a_subscriber_can_be_called() -> None:
    """Whoever cannot be told is refused when it subscribes."""
    with pytest.raises(ConfigError, match="cannot be called"):
        make_world().trainer.subscribe(None)  # type: ignore[arg-type]
