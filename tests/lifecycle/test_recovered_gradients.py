"""Accumulated gradients survive whatever a recovery comes from."""

from __future__ import annotations

import pytest
import torch

from lifecycle import HostArena, SaverError, TrainerFaulted, TrainerState
from states import Effect
from tests.lifecycle.world import World, make_world


def faulted_in_a_wake(*, accumulate: bool) -> tuple[World, torch.Tensor]:
    """Waking failed after scratch was resumed, and pausing it again failed too."""
    broken = {"pause": False}

    def faults(operation: str, tag: str) -> None:
        if broken["pause"] and operation == "pause" and tag == "actor/gradients":
            raise SaverError(tag, "told to fail")

    world = make_world(arena=HostArena(faults=faults))
    if accumulate:
        with world.trainer.step(["A"]) as step:
            world.backward("A")
            step.accumulated()
    gradient = world.model.lora_b[0].grad
    assert gradient is not None
    before = gradient.clone()
    world.trainer.sleep(offload=True)
    effects, broken["pause"] = world.trainer._runner.effects, True
    original = effects[Effect.RESTORE_LOST]

    def fail(_: object, __: object) -> None:
        raise OSError("injected")

    effects[Effect.RESTORE_LOST] = fail  # type: ignore[assignment]
    with pytest.raises(TrainerFaulted):
        world.trainer.wake_up()
    effects[Effect.RESTORE_LOST], broken["pause"] = original, False
    return world, before


@pytest.mark.parametrize("accumulate", [True, False])
def test_a_recovery_writes_gradients_whose_region_came_back_without_values(*, accumulate: bool) -> None:
    """What was accumulated is as it was, everything else is zero and never noise."""
    world, before = faulted_in_a_wake(accumulate=accumulate)
    world.trainer.recover()
    if world.trainer.state is not TrainerState.AWAKE:
        world.trainer.wake_up()

    assert torch.equal(world.model.lora_b[0].grad, before)  # type: ignore[arg-type]
    assert bool(before.any()) is accumulate
