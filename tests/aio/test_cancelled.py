"""A cancellation never interrupts an event half-way, and never leaves a block open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

import pytest

from lifecycle import LifecycleError, Moved, TrainerState, TransitionFailed
from lifecycle.aio import AsyncLifecycle
from states import Effect
from tests.aio.gates import Gate, events, in_loop, turns
from tests.lifecycle.world import FakeEngine, World, make_world


async def cancelled(task: asyncio.Task[Any]) -> bool:
    """Whether the task ended as cancelled."""
    await asyncio.wait((task,))
    return task.cancelled()


def test_an_event_that_is_under_way_ends_before_its_await_is_cancelled() -> None:
    """Its outcome is on the record, and who awaited it does not go on in the middle of it."""

    async def under_way(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world)
        asleep = asyncio.create_task(aio.sleep())
        await gate.reached()
        asleep.cancel()
        await turns()
        asleep.cancel()  # once more: it changes nothing
        await turns()
        assert not asleep.done()
        gate.open()
        assert await cancelled(asleep)
        assert aio.state is TrainerState.SLEEPING
        return events(world)

    assert in_loop(under_way) == [("began", "sleep"), ("moved", "sleep")]


def test_the_next_event_waits_for_one_whose_await_was_cancelled() -> None:
    """The order stays that of the calls."""

    async def both(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world)
        asleep = asyncio.create_task(aio.sleep())
        await gate.reached()
        awake = asyncio.create_task(aio.wake_up())
        asleep.cancel()
        await turns()
        assert not awake.done()
        gate.open()
        assert isinstance(await awake, Moved)
        assert await cancelled(asleep)
        return events(world)

    assert in_loop(both) == [("began", "sleep"), ("moved", "sleep"), ("began", "wake_up"), ("moved", "wake_up")]


def test_a_call_that_has_not_begun_is_dropped_and_never_runs() -> None:
    """At once, while another event is under way; those around it run."""

    async def dropped(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world)
        tasks = [asyncio.create_task(one) for one in (aio.sleep(), aio.wake_up(), aio.sleep(offload=True))]
        await gate.reached()
        tasks[1].cancel()
        assert await cancelled(tasks[1])
        assert not tasks[0].done()
        gate.open()
        await asyncio.gather(tasks[0], tasks[2])
        return events(world)

    assert [trigger for _, trigger in in_loop(dropped)] == ["sleep", "sleep", "sleep", "offload", "offload"]


def test_a_timeout_ends_with_the_event() -> None:
    """``asyncio.timeout`` reports it when the event is over."""

    async def late(world: World, aio: AsyncLifecycle) -> TrainerState:
        gate = Gate(world)
        asyncio.get_running_loop().call_later(0.05, gate.open)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await aio.sleep()
        return aio.state

    assert in_loop(late) is TrainerState.SLEEPING


def test_an_event_that_fails_under_a_cancelled_await_is_told_with_the_cancellation() -> None:
    """The cancellation is raised, from the event's error; the trainer is as it was."""

    async def failing(world: World, aio: AsyncLifecycle) -> BaseException | None:
        gate = Gate(world)
        gate.fails = OSError("the driver is gone")
        caught: list[BaseException] = []

        async def asleep() -> None:
            try:
                await aio.sleep()
            except asyncio.CancelledError as error:
                caught.append(error)
                raise

        task = asyncio.create_task(asleep())
        await gate.reached()
        task.cancel()
        await turns()
        gate.open()
        assert await cancelled(task)
        assert aio.state is TrainerState.AWAKE
        return caught[0].__cause__

    assert isinstance(in_loop(failing), TransitionFailed)


def test_a_loop_that_ends_waits_for_the_event_under_way() -> None:
    """``asyncio.run`` cancels what is left: the trainer is in no state between two."""
    world = make_world()
    gate, aio = Gate(world), AsyncLifecycle(world.trainer)

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, gate.open)
        task = asyncio.create_task(aio.sleep())
        await gate.reached()
        assert not task.done()

    asyncio.run(main())

    assert world.trainer.state is TrainerState.SLEEPING
    assert events(world) == [("began", "sleep"), ("moved", "sleep")]


def test_a_coroutine_that_is_thrown_away_drops_its_call_or_lets_it_end() -> None:
    """Closed without a loop that could wait: nothing hangs, nothing is half done."""

    async def thrown(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world)
        first, second = aio.sleep(), aio.wake_up()
        first.send(None)
        second.send(None)
        await gate.reached()
        second.close()
        first.close()
        gate.open()
        await aio.run(int)
        return events(world)

    assert in_loop(thrown) == [("began", "sleep"), ("moved", "sleep")]


# blocks


def version(world: World) -> int:
    """The version of adapter A: a step that was aborted has taken a new one."""
    found = world.trainer.facts().content("adapter/A")
    assert found is not None
    return found.version


def test_a_block_whose_opening_is_cancelled_in_the_middle_is_closed_before_the_next_event() -> None:
    """Nobody holds the step: what waited behind it finds none in flight."""

    async def opening(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world, Effect.OPEN_STEP)
        entering = asyncio.create_task(aio.step(["A"]).__aenter__())
        await gate.reached()
        asleep = asyncio.create_task(aio.sleep())
        entering.cancel()
        await turns()
        gate.open()
        assert isinstance(await asleep, Moved)
        assert await cancelled(entering)
        assert not world.trainer.facts().step_open
        return [one for one in events(world) if one[0] == "moved"]

    assert in_loop(opening) == [("moved", "begin_step"), ("moved", "sleep")]


def test_a_block_whose_opening_is_cancelled_when_it_has_just_ended_is_closed_next() -> None:
    """The cancellation comes between its end on the thread and the loop's hearing of it."""

    async def just_ended(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world, Effect.OPEN_STEP)
        entering = asyncio.create_task(aio.step(["A"]).__aenter__())
        await gate.reached()
        gate.open()
        aio._worker._pool.submit(int).result(20)  # waited for in the loop's thread: it hears of nothing meanwhile
        assert world.trainer.facts().step_open
        entering.cancel()
        assert await cancelled(entering)
        assert not world.trainer.facts().step_open
        return events(world)

    assert in_loop(just_ended) == [("began", "begin_step"), ("moved", "begin_step")]


def test_a_block_that_cannot_be_left_when_its_opening_was_cancelled_says_so_with_the_cancellation() -> None:
    """The cancellation is what is raised; why it could not be left is noted at it."""

    @contextmanager
    def stuck() -> Iterator[None]:
        try:
            yield
        finally:
            raise OSError("the engine is gone")

    async def just_ended(world: World, aio: AsyncLifecycle) -> list[str]:
        told: list[str] = []

        async def enter() -> None:
            try:
                await aio.within(stuck).__aenter__()
            except asyncio.CancelledError as error:
                told.extend(error.__notes__)
                raise

        entering = asyncio.create_task(enter())
        await asyncio.sleep(0)
        aio._worker._pool.submit(int).result(20)
        entering.cancel()
        assert await cancelled(entering)
        return told

    assert in_loop(just_ended) == ["leaving stuck: OSError: the engine is gone"]


def test_a_block_that_waits_in_line_is_dropped() -> None:
    """It never opens, and holds up no closing of the wrapper."""

    async def waiting(world: World, aio: AsyncLifecycle) -> list[object]:
        gate = Gate(world)
        asleep = asyncio.create_task(aio.sleep())
        await gate.reached()
        entering = asyncio.create_task(aio.step(["A"]).__aenter__())
        await turns()
        with pytest.raises(LifecycleError, match="a block is open: step"):
            await aio.aclose()
        entering.cancel()
        assert await cancelled(entering)
        gate.open()
        await asleep
        return [trigger for _, trigger in events(world)]

    assert in_loop(waiting) == ["sleep", "sleep"]


def test_a_cancellation_inside_a_step_aborts_it() -> None:
    """Its bytes count as changed; the block leaves no step open."""

    async def inside(world: World, aio: AsyncLifecycle) -> tuple[int, int, bool]:
        before, within = version(world), asyncio.Event()

        async def train() -> None:
            async with aio.step(["A"]):
                within.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(train())
        await within.wait()
        task.cancel()
        assert await cancelled(task)
        return before, version(world), world.trainer.facts().step_open

    before, after, is_open = in_loop(inside)

    assert after > before
    assert not is_open


def test_a_step_that_ends_under_a_cancellation_is_committed() -> None:
    """The block had done its work: ``trained`` ends, then the cancellation is raised."""

    async def ending(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world, Effect.COMMIT_VERSIONS)

        async def train() -> None:
            async with aio.step(["A"]):
                pass

        task = asyncio.create_task(train())
        await gate.reached()
        task.cancel()
        await turns()
        assert not task.done()
        gate.open()
        assert await cancelled(task)
        return [one for one in events(world) if one[0] == "moved"]

    assert in_loop(ending) == [("moved", "begin_step"), ("moved", "trained")]


def test_the_end_of_a_block_that_waits_in_line_cannot_be_dropped() -> None:
    """The step is left, however often its await is cancelled before that has begun."""

    async def waiting(world: World, aio: AsyncLifecycle) -> bool:
        go_on = Event()
        step = aio.step(["A"])
        await step.__aenter__()
        other = asyncio.create_task(aio.run(go_on.wait, 20))
        await turns()
        leaving = asyncio.create_task(step.__aexit__(None, None, None))
        await turns()
        leaving.cancel()
        await turns()
        leaving.cancel()
        await turns()
        assert not leaving.done()
        go_on.set()
        assert await other
        assert await cancelled(leaving)
        return world.trainer.facts().step_open

    assert in_loop(waiting) is False


class CancelledAt:
    """A coroutine that is cancelled at its n-th suspension: as it begins to wait, or *delay_s* later.

    Attributes:
        points: how often it was suspended.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], point: int, delay_s: float) -> None:
        self.points = 0
        self._inner, self._point, self._delay_s = coroutine, point, delay_s

    def __await__(self) -> Generator[Any, Any, None]:
        inner = self._inner.__await__()
        task = asyncio.current_task()
        assert task is not None
        send: Callable[[], Any] = partial(next, inner)
        while True:
            try:
                waits_for = send()
            except StopIteration:
                return
            self.points += 1
            if self.points == self._point and self._delay_s:
                asyncio.get_running_loop().call_later(self._delay_s, task.cancel)
            elif self.points == self._point:
                task.cancel()
            try:
                send = partial(inner.send, (yield waits_for))
            except BaseException as error:  # noqa: BLE001 - handed to who waits inside
                send = partial(inner.throw, error)


async def whole_turn(world: World, aio: AsyncLifecycle) -> None:
    """A step with work on the thread, a hand-over, and three events at once."""
    async with aio.step(["A"]) as step:
        await aio.run(world.backward, "A")
        await aio.run(world.optimizers[0].step)
        step.stepped()
    async with aio.handoff([FakeEngine()]):
        await asyncio.sleep(0)
    await asyncio.gather(aio.reconcile_adapters(), aio.sleep(), aio.wake_up())


def cancel_at(point: int, delay_s: float) -> int:
    """A turn that is cancelled there, then a whole one. Returns how often the first was suspended."""

    async def both(world: World, aio: AsyncLifecycle) -> int:
        first = CancelledAt(whole_turn(world, aio), point, delay_s)
        task = asyncio.ensure_future(first)
        await asyncio.wait((task,))
        assert task.cancelled() or first.points < point or delay_s
        assert aio._blocks == []
        assert not world.trainer.facts().step_open
        await aio.wake_up()
        await whole_turn(world, aio)
        return first.points

    world = make_world()
    frozen = world.trainer.facts().content("frozen-base")
    points = in_loop(both, world)
    kinds = [kind for kind, _ in events(world)]
    assert world.trainer.state is TrainerState.AWAKE
    assert world.trainer.facts().content("frozen-base") == frozen
    assert kinds.count("began") == kinds.count("moved")
    return points


@pytest.mark.parametrize("delay_s", [0, 0.0005, 0.002])
def test_a_turn_that_is_cancelled_at_any_await_leaves_the_trainer_whole(delay_s: float) -> None:
    """Every event ended, no step and no block is open, the next turn passes."""
    point = 1
    while cancel_at(point, delay_s) >= point:
        point += 1

    assert point > 8
