"""Whatever belongs to a slot begins with its tenant, in every layout and every resting state (FB-36, FB-44)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lifecycle import TrainerFaulted, TrainerState
from lifecycle.memory.main_copies import MAIN
from tests.lifecycle.slot_world import COUNTS, LAYOUTS, RESTING, SlotWorld, bits, make, make_for, same

OFFLOADED = TrainerState.OFFLOADED_CPU


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("state", RESTING)
def test_the_second_tenant_of_a_slot_steps_bit_by_bit_as_in_a_fresh_trainer(
    state: TrainerState, counts: str, layout: str, tmp_path: Path
) -> None:
    """Weights, main copies, moments, counts, learning rate and schedule after each step, wherever it was loaded."""
    used, fresh = (make_for(state, tmp_path, layout=layout, counts=counts, slots=1) for _ in range(2))
    used.host.registry.register("first", seed=1)
    used.trainer.reconcile_adapters()
    used.train("first", 3)
    used.host.registry.deregister("first")
    used.rest(state)
    used.trainer.reconcile_adapters()
    for world in (used, fresh):
        world.host.registry.register("second", seed=2)
        world.trainer.reconcile_adapters()
        world.wake()
    for _ in range(3):
        used.train("second")
        fresh.train("second")

        assert same(used.slot_state(0), fresh.slot_state(0))


def test_a_slot_really_has_all_of_it() -> None:
    """What the other tests compare is there and moves: a comparison of nothing with nothing shows nothing."""
    world = make("bf16 and main copies", "a number a group", slots=1)
    world.host.registry.register("A", seed=1)
    world.trainer.reconcile_adapters()
    before = world.slot_state(0)
    world.train("A", 2)
    after = world.slot_state(0)
    kinds = {key.rpartition("#")[2] for key in after if "#" in key}

    assert kinds == {"exp_avg", "exp_avg_sq", "main"}
    assert after["steps"] == [2]
    assert after["schedule"]["last_epoch"] == 2
    assert after["settings"][0]["lr"] == pytest.approx(0.01 * 0.5**2)
    assert [key for key in after if same(before[key], after[key])] == ["numbers"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("counts", ["a tensor a parameter", "a number a group"])
def test_adapters_trained_in_turns_are_what_each_is_trained_alone(counts: str, layout: str) -> None:
    """Six steps each, a sleep or an offload between any two of them, an accumulation carried through one of these."""
    both = make(layout, counts)
    for seed, name in enumerate(("A", "B")):
        both.host.registry.register(name, seed=seed)
    both.trainer.reconcile_adapters()
    for turn in range(6):
        for name in ("A", "B"):
            train_through_a_sleep(both, name, offload=bool(turn % 2))
    for seed, name in enumerate(("A", "B")):
        alone = make(layout, counts, slots=1)
        alone.host.registry.register(name, seed=seed)
        alone.trainer.reconcile_adapters()
        for _ in range(6):
            train_through_a_sleep(alone, name, offload=None)

        assert same(alone.slot_state(0), both.slot_state(both.host.slot_of(name)))


def train_through_a_sleep(world: SlotWorld, name: str, *, offload: bool | None) -> None:
    """Two batches for one step; between them the trainer sleeps, or stays awake when *offload* is None."""
    with world.trainer.step([name]) as step:
        world.clear_gradients(name)
        world.backward(name)
        step.accumulated()
    if offload is not None:
        world.trainer.sleep(offload=offload)
        world.trainer.wake_up()
    world.trained[name] = world.trained.get(name, 0) + 1
    with world.trainer.step([name]) as step:
        world.backward(name)
        world.step(name)
        step.stepped()


def factors_of(world: SlotWorld) -> dict[str, torch.Tensor]:
    """Random fp32 tensors for every module of a slot, which bf16 would round."""
    generator = torch.Generator().manual_seed(3)
    names = {key.replace(".slot_0.", "."): one for key, one in world.host.slot_tensors(0).items()}
    return {key: torch.randn(one.shape, generator=generator) for key, one in names.items()}


@pytest.mark.parametrize("state", RESTING)
def test_a_step_without_gradient_leaves_the_adapter_as_it_was_loaded(state: TrainerState, tmp_path: Path) -> None:
    """Main copies hold the source before rounding, parameters are rounded from them (FB-44)."""
    world = make_for(state, tmp_path, layout="bf16 and main copies", slots=1)
    world.host.registry.register("other", seed=9)
    world.trainer.reconcile_adapters()
    world.train("other", 2)
    world.host.registry.deregister("other")
    world.rest(state)
    world.trainer.reconcile_adapters()
    source = factors_of(world)
    world.host.registry.register("L", tensors=source, rank=4)
    world.trainer.reconcile_adapters()
    world.wake()
    loaded = {name: bits(one) for name, one in world.host.slot_tensors(0).items()}
    with world.trainer.step(["L"]) as step:
        world.clear_gradients("L")
        world.step("L")
        step.stepped()

    assert {name: bits(one) for name, one in world.host.slot_tensors(0).items()} == loaded
    for name, parameter in world.host.slot_tensors(0).items():
        exact = source[name.replace(".slot_0.", ".")]
        assert torch.equal(world.mains[name], exact)
        assert torch.equal(parameter, exact.bfloat16())
        assert not torch.equal(parameter.float(), exact)


def test_a_checkpoint_that_is_loaded_into_parameters_reaches_their_main_copies() -> None:
    """The step after it starts from the checkpoint and not from the old main copy (FB-44)."""
    world = make("bf16 and main copies", slots=1)
    world.host.registry.register("A", seed=1)
    world.trainer.reconcile_adapters()
    world.train("A")
    with world.trainer.loading_checkpoint(), torch.no_grad():
        name, parameter = next(iter(world.host.slot_tensors(0).items()))
        parameter.fill_(0.5)
    untouched = {key: bits(one) for key, one in world.mains.items() if key != name}

    assert bool((world.mains[name] == 0.5).all())
    assert {key: bits(one) for key, one in world.mains.items() if key != name} == untouched
    moved = [one for one in world.audit.records if one["event"] == "lifecycle.moved"][-1]
    assert moved["details"]["main_copies_refreshed"] == [name]


def test_main_copies_lie_in_a_region_of_their_own_and_come_back_bit_for_bit() -> None:
    """With a backup as moments have, counted under their tag, of exactly their size."""
    world = make("bf16 and main copies")
    world.host.registry.register("A", seed=1)
    world.trainer.reconcile_adapters()
    world.train("A")
    before = {name: bits(one) for name, one in world.mains.items()}
    world.trainer.sleep(offload=True)
    held, moments = world.trainer.ledger.held.saver_host, world.trainer._parts.moments
    world.trainer.wake_up()

    assert {name: bits(one) for name, one in world.mains.items()} == before
    assert {world.arena.tag_of(one) for one in world.mains.values()} == {"actor/main"}
    assert held["actor/main"] >= sum(one.nbytes for one in world.mains.values())
    assert {f"{name}#{MAIN}" for name in world.mains} <= moments.tensors().keys()


def test_wrong_bytes_in_a_main_copy_are_found_at_the_wake() -> None:
    """They are compared across a pause like the moments."""
    world = make("bf16 and main copies", slots=1)
    world.host.registry.register("A", seed=1)
    world.trainer.reconcile_adapters()
    world.trainer.sleep(offload=True)
    name, main = next(iter(world.mains.items()))
    world.trainer._parts.door.own_bytes(name, main).fill_(7.0)

    with pytest.raises(TrainerFaulted, match="adapter-moments/slot 0"):
        world.trainer.wake_up()


def test_a_schedule_that_is_declared_as_shared_goes_on_from_tenant_to_tenant() -> None:
    """``schedulers={slot: None}`` says that the progress is the run's."""
    world = make(slots=1, schedulers={0: None})
    world.host.registry.register("A")
    world.trainer.reconcile_adapters()
    world.train("A", 2)
    world.host.registry.deregister("A")
    world.trainer.reconcile_adapters()

    assert world.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**2)
