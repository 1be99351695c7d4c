"""Every gradient of an accumulation survives a sleep, whatever it hangs at, and costs exactly its bytes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lifecycle import ConfigError, EventRefused, HostArena, TrainerState
from tests.lifecycle.slot_world import SlotWorld, bits, make
from tests.lifecycle.world import World, make_world


def accumulated(world: SlotWorld, name: str) -> None:
    """Two batches, no step."""
    for _ in range(2):
        with world.trainer.step([name]) as step:
            world.backward(name)
            step.accumulated()


def own_gradients(world: SlotWorld, name: str) -> list[Tensor]:
    """What autograd has written for an adapter."""
    return [one.grad for one in world.host.parameters_of(name) if one.grad is not None]


@pytest.mark.parametrize("offload", [False, True])
def test_the_extra_host_bytes_are_those_of_the_accumulated_gradients(*, offload: bool) -> None:
    """Of the adapter that accumulates and of no other, and nothing for gradients of main copies that are zero."""
    world = make("bf16 and main copies", slots=3)
    for seed, name in enumerate(("A", "B")):
        world.host.registry.register(name, seed=seed)
    world.trainer.reconcile_adapters()
    accumulated(world, "A")
    before = [bits(one) for one in own_gradients(world, "A")]
    world.trainer.sleep(offload=offload)
    held = world.trainer.ledger.held.kept_gradients
    world.trainer.wake_up()

    assert held == {"gradients": sum(len(one) for one in before)}
    assert [bits(one) for one in own_gradients(world, "A")] == before
    assert world.trainer.held_bytes()["kept_gradients"] == 0


def test_nothing_is_held_when_nothing_is_accumulated() -> None:
    """Also after a step that ended an accumulation."""
    world = make(slots=1)
    world.host.registry.register("A")
    world.trainer.reconcile_adapters()
    accumulated(world, "A")
    world.train("A")
    world.trainer.sleep(offload=True)

    assert world.trainer.held_bytes()["kept_gradients"] == 0


def test_what_is_accumulated_in_main_copies_survives_too() -> None:
    """Where a loop adds up in fp32 and lets go of the gradients of 16 bits."""
    world = make("bf16 and main copies", slots=1)
    world.host.registry.register("A", seed=1)
    world.trainer.reconcile_adapters()
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        for name, parameter in world.host.slot_tensors(0).items():
            assert parameter.grad is not None
            world.mains[name].grad = parameter.grad.float() / 3
            parameter.grad = None
        step.accumulated()
    before = {name: bits(one.grad) for name, one in world.mains.items() if one.grad is not None}
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()

    assert {name: bits(one.grad) for name, one in world.mains.items() if one.grad is not None} == before
    assert len(before) == len(world.mains)
    assert any(any(one) for one in before.values())


def with_main_grads(*, flat: bool) -> World:
    """A world whose parameters have a ``main_grad`` that a framework adds to, in one buffer or each its own."""
    buffer = torch.zeros(2 * 4 * 32)
    halves = list(buffer.split(4 * 32)) if flat else [torch.zeros(4 * 32) for _ in range(2)]
    world = make_world(adapters=(), slots=1)
    model = world.model
    model.lora_a[0].main_grad = halves[0].view(4, 32)  # type: ignore[attr-defined]
    model.lora_b[0].main_grad = halves[1].view(32, 4)  # type: ignore[attr-defined]
    return world


def test_a_main_grad_is_a_gradient_too() -> None:
    """It is in the region, is kept while it is accumulated, and is zero for the next tenant."""
    world = with_main_grads(flat=False)
    world.trainer.prepare_optimizer()
    world.host.register("A", 0)
    world.trainer.reconcile_adapters()
    main_grad = world.model.lora_a[0].main_grad  # type: ignore[attr-defined]
    assert world.arena.tag_of(main_grad) == "actor/gradients"
    with world.trainer.step(["A"]) as step:
        main_grad.fill_(2.5)
        step.accumulated()
    world.trainer.sleep(offload=True)
    held = world.trainer.held_bytes()["kept_gradients"]
    world.trainer.wake_up()

    assert bool((main_grad == 2.5).all())
    own = sum(one.nbytes for one in (world.model.lora_a[0], world.model.lora_b[0]))
    assert held == own + main_grad.nbytes
    world.host.deregister("A")
    world.trainer.reconcile_adapters()
    assert not main_grad.any()


def test_a_main_grad_that_is_part_of_a_flat_buffer_is_refused() -> None:
    """Whoever holds the buffer would go on with the old memory."""
    world = with_main_grads(flat=True)

    with pytest.raises(ConfigError, match=r"lora_a\.0\.main_grad.*flat buffer"):
        world.trainer.prepare_optimizer()


def test_a_gradient_that_would_be_lost_refuses_the_sleep_before_anything_is_paused() -> None:
    """One that hangs outside of its region cannot be copied from it: the tags and the gradient are as before."""
    world = make("bf16 and main copies", slots=1)
    world.host.registry.register("A")
    world.trainer.reconcile_adapters()
    accumulated(world, "A")
    stray = torch.ones_like(next(iter(world.mains.values())))
    next(iter(world.mains.values())).grad = stray
    tags = world.arena.tags()
    with pytest.raises(EventRefused, match="accumulated-gradients-can-be-kept"):
        world.trainer.sleep(offload=True)

    assert world.trainer.state is TrainerState.AWAKE
    assert world.arena.tags() == tags
    assert next(iter(world.mains.values())).grad is stray
    assert isinstance(world.arena, HostArena)


@pytest.mark.parametrize("state", [TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU])
def test_gradients_that_have_no_backup_are_zero_after_the_resume(state: TrainerState) -> None:
    """Retained ones of a tenant that was retired asleep, and of one that did not accumulate."""
    world = make("bf16 and main copies", slots=2)
    for seed, name in enumerate(("A", "B")):
        world.host.registry.register(name, seed=seed)
    world.trainer.reconcile_adapters()
    accumulated(world, "A")
    world.backward("B")
    world.rest(state)
    world.host.registry.deregister("A")
    world.trainer.reconcile_adapters()
    world.host.registry.register("C")
    world.trainer.reconcile_adapters()
    world.wake()

    assert not any(one.any() for name in ("B", "C") for one in own_gradients(world, name))
