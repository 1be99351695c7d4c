"""Blocks of the controller as ``async with``, and where the work inside them runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import pytest
import torch

from lifecycle import ConfigError, EventRefused, LifecycleError, TrainerState
from lifecycle.aio import AsyncLifecycle
from tests.aio.gates import events, in_loop
from tests.lifecycle.world import FakeEngine, World, make_world


def weights_after(world: World) -> torch.Tensor:
    """A copy of adapter A's second factor."""
    return world.model.lora_b[0].detach().clone()


def train_with_aio(on_thread: bool) -> torch.Tensor:  # noqa: FBT001 - the parameter of the test
    """One step of A, its work in the loop's thread or on the wrapper's."""

    async def train(world: World, aio: AsyncLifecycle) -> torch.Tensor:
        async with aio.step(["A"]) as step:
            if on_thread:
                await aio.run(world.backward, "A")
                await aio.run(world.optimizers[0].step)
            else:
                world.backward("A")
                world.optimizers[0].step()
            step.stepped()
        return weights_after(world)

    return in_loop(train)


@pytest.mark.parametrize("on_thread", [False, True])
def test_a_step_trains_the_same_wherever_its_work_runs(on_thread: bool) -> None:  # noqa: FBT001
    """Bit for bit what the controller does without a loop."""
    plain = make_world()
    plain.train("A")

    assert torch.equal(train_with_aio(on_thread), weights_after(plain))


def test_a_step_that_only_accumulated_says_so() -> None:
    """The block hands on what the body said."""

    async def accumulate(world: World, aio: AsyncLifecycle) -> object:
        async with aio.step(["A"]) as step:
            world.backward("A")
            step.accumulated()
        return world.records("noted")[-1]["groups"]

    assert in_loop(accumulate) == ["adapter/A"]


def test_the_low_level_calls_of_a_step_are_awaited_too() -> None:
    """Accumulated, trained and aborted, each with its step open."""

    async def low(world: World, aio: AsyncLifecycle) -> list[bool]:
        found = []
        for end in (aio.accumulated, aio.trained, aio.abort_step):
            await aio.begin_step(["A"])
            found.append(world.trainer.facts().step_open)
            await end()
            found.append(world.trainer.facts().step_open)
        return found

    assert in_loop(low) == [True, False] * 3


def test_an_error_in_a_step_aborts_it_and_comes_back_as_itself() -> None:
    """The step is closed, its adapter has a new version."""

    async def failing(world: World, aio: AsyncLifecycle) -> None:
        async with aio.step(["A"]):
            raise ValueError("the loss is not a number")

    world = make_world()
    with pytest.raises(ValueError, match="not a number"):
        in_loop(failing, world)

    assert not world.trainer.facts().step_open
    assert world.records("noted")[-1]["note"] == "a step was aborted"


def test_a_block_that_is_refused_was_never_entered() -> None:
    """Its body does not run, and the wrapper can be closed."""

    async def refused(world: World, aio: AsyncLifecycle) -> list[str]:
        reached = []
        await aio.sleep()
        with pytest.raises(EventRefused):
            async with aio.step(["A"]):
                reached.append("the body")
        return reached

    assert in_loop(refused) == []


def test_a_hand_over_serves_inside_and_the_trainer_is_awake_after_it() -> None:
    """Engines are called on the wrapper's thread; the body generates in the loop."""

    async def turn(world: World, aio: AsyncLifecycle) -> tuple[TrainerState, TrainerState, list[str]]:
        engine = FakeEngine(resident=set())
        async with aio.handoff([engine]):
            inside = aio.state
        return inside, aio.state, sorted(engine.versions)

    inside, after, versions = in_loop(turn)

    assert (inside, after) == (TrainerState.OFFLOADED_CPU, TrainerState.AWAKE)
    assert versions == ["adapter/A", "adapter/B", "buffers", "frozen-base"]


def test_an_error_in_a_hand_over_brings_the_trainer_back_first() -> None:
    """The body's error is raised when the trainer is awake."""

    async def failing(world: World, aio: AsyncLifecycle) -> None:
        async with aio.handoff([FakeEngine(resident=set())], memory_peak=None):
            raise ValueError("no prompt is left")

    world = make_world()
    with pytest.raises(ValueError, match="no prompt"):
        in_loop(failing, world)

    assert world.trainer.state is TrainerState.AWAKE


def test_a_hand_over_of_no_engines_is_refused_on_entering() -> None:
    """As itself, from the thread."""

    async def wrong(world: World, aio: AsyncLifecycle) -> None:
        async with aio.handoff([FakeEngine()], memory_peak="sideways"):
            pass

    with pytest.raises(ConfigError, match="sideways"):
        in_loop(wrong)


def test_any_other_block_of_the_controller_can_be_awaited() -> None:
    """A checkpoint that is loaded, on the thread, with what it gives and what its end swallows."""
    seen: list[int] = []

    @contextmanager
    def swallowing(number: int) -> Iterator[int]:
        seen.append(get_ident())
        try:
            yield number
        except KeyError:
            seen.append(get_ident())

    async def other(world: World, aio: AsyncLifecycle) -> tuple[int, bool]:
        async with aio.within(world.trainer.loading_checkpoint):
            await aio.run(torch.nn.init.zeros_, world.model.up)
        async with aio.within(swallowing, 7) as number:
            raise KeyError
        return number, set(seen) == {await aio.run(get_ident)}

    world = make_world()

    assert in_loop(other, world) == (7, True)
    assert ("moved", "trained") in events(world)
    assert not world.model.up.any()


def test_a_block_object_opens_once() -> None:
    """Each ``async with`` is given one of its own."""

    async def twice(world: World, aio: AsyncLifecycle) -> None:
        block = aio.step(["A"])
        async with block:
            pass
        with pytest.raises(LifecycleError, match="entered before"):
            await block.__aenter__()

    in_loop(twice)


def test_grad_mode_is_not_the_callers() -> None:
    """Torch keeps it by thread: what runs on the wrapper's thread sets it for itself."""

    async def modes(world: World, aio: AsyncLifecycle) -> tuple[bool, bool]:
        with torch.no_grad():
            return torch.is_grad_enabled(), await aio.run(torch.is_grad_enabled)

    assert in_loop(modes) == (False, True)


def test_a_piece_of_a_plain_loop_runs_on_the_thread_as_it_stands() -> None:
    """Events of the controller inside of it are no nested events: between them no event is under way."""

    def plain(world: World) -> TrainerState:
        world.train("A", "B")
        with world.trainer.handoff([FakeEngine()]):
            pass
        return world.trainer.state

    async def piece(world: World, aio: AsyncLifecycle) -> TrainerState:
        found, _ = await asyncio.gather(aio.run(plain, world), aio.sleep())
        return found

    assert in_loop(piece) is TrainerState.AWAKE
