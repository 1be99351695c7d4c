"""Events of a coroutine: the loop goes on, their order is that of the calls, outcomes and errors are their own."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from threading import current_thread, get_ident

import pytest
import structlog
import torch

from lifecycle import (
    ConfigError,
    EventRefused,
    LifecycleError,
    Moved,
    ReentrantEvent,
    TrainerState,
    TransitionFailed,
    Unchanged,
)
from lifecycle.aio import AsyncLifecycle
from lifecycle.worker import Worker
from states import Facts, Step, TrainerEvent, decide
from tests.aio.gates import Gate, edge, events, in_loop, turns
from tests.lifecycle.world import FakeEngine, World, make_world


def test_a_turn_of_a_training_loop_is_awaited_event_by_event() -> None:
    """Sleep, offload, push, wake, train, switch, reconcile: the outcomes are those of the controller."""

    async def turn(world: World, aio: AsyncLifecycle) -> list[str]:
        world.trainer.keep_model("ref")
        found = [await aio.sleep(), await aio.offload(), await aio.update_weights([FakeEngine()]), await aio.wake_up()]
        world.host.register("C", 2)
        found += [await aio.reconcile_adapters(), await aio.begin_step(["A"]), await aio.trained()]
        found += [await aio.switch_model("ref"), await aio.switch_model()]
        return [one.event for one in found if isinstance(one, Moved)]

    assert in_loop(turn) == [
        "sleep", "offload", "update_weights", "wake_up", "reconcile_adapters", "begin_step", "trained",
        "switch_model", "switch_model",
    ]  # fmt: skip


def test_what_already_holds_is_unchanged_and_an_option_is_handed_on() -> None:
    """``sleep(offload=True)`` twice; ``partial="keep"`` is seen by the reconcile."""

    async def twice(world: World, aio: AsyncLifecycle) -> tuple[object, object]:
        first = await aio.sleep(offload=True)
        with pytest.raises(ConfigError, match="partial"):
            await aio.reconcile_adapters(partial="some")
        return edge(first), await aio.offload()

    first, second = in_loop(twice)

    assert first == "offloads-to-cpu"
    assert isinstance(second, Unchanged)


def test_the_loop_goes_on_while_an_event_is_under_way() -> None:
    """A heartbeat ticks a hundred times between the middle of an event and its end."""

    async def beats(world: World, aio: AsyncLifecycle) -> tuple[int, TrainerState]:
        gate, ticks = Gate(world), 0
        asleep = asyncio.create_task(aio.sleep())
        await gate.reached()
        while ticks < 100:
            ticks += 1
            await asyncio.sleep(0)
        in_the_middle = aio.state
        assert not asleep.done()
        gate.open()
        await asleep
        return ticks, in_the_middle

    assert in_loop(beats) == (100, TrainerState.AWAKE)


def test_calls_that_are_gathered_run_in_the_order_in_which_they_are_named() -> None:
    """Four events, each possible only after the one before it."""

    async def gathered(world: World, aio: AsyncLifecycle) -> list[str]:
        return [edge(one) for one in await asyncio.gather(aio.sleep(), aio.offload(), aio.wake_up(), aio.sleep())]

    world = make_world()
    found = in_loop(gathered, world)

    assert found == ["quiesces", "offloads-to-cpu", "resumes-from-cpu", "quiesces"]
    assert [trigger for kind, trigger in events(world) if kind == "moved"] == ["sleep", "offload", "wake_up", "sleep"]


def test_a_call_waits_for_those_of_other_tasks_that_came_before() -> None:
    """The first one is in its middle when the others are made."""

    async def three(world: World, aio: AsyncLifecycle) -> list[str]:
        gate = Gate(world)
        tasks = [asyncio.create_task(aio.sleep())]
        await gate.reached()
        tasks += [asyncio.create_task(aio.wake_up()), asyncio.create_task(aio.sleep(offload=True))]
        await turns()
        assert not any(task.done() for task in tasks)
        gate.open()
        return [edge(one) for one in await asyncio.gather(*tasks)]

    assert in_loop(three) == ["quiesces", "wakes", "offloads-to-cpu"]


def test_a_refusal_comes_back_as_itself_and_the_next_call_runs() -> None:
    """An error belongs to the call that made it."""

    async def refused(world: World, aio: AsyncLifecycle) -> list[object]:
        return await asyncio.gather(aio.offload(), aio.sleep(), return_exceptions=True)

    error, outcome = in_loop(refused)

    assert isinstance(error, EventRefused)
    assert error.event == "offload"
    assert isinstance(outcome, Moved)


def test_a_failure_comes_back_with_its_cause() -> None:
    """The typed error of the controller, not one about threads."""

    async def failing(world: World, aio: AsyncLifecycle) -> None:
        gate = Gate(world)
        gate.fails = OSError("the driver is gone")
        gate.open()
        await aio.sleep()

    with pytest.raises(TransitionFailed, match="the driver is gone") as failed:
        in_loop(failing)

    assert isinstance(failed.value.__cause__, OSError)


class Held:
    """What an error's frame holds."""


def test_an_error_that_was_dealt_with_keeps_nothing_alive() -> None:
    """Without the garbage collector: a lease's tensors in its frames would keep the saver's backup in use."""
    seen: list[weakref.ref[Held]] = []

    def raising() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise ValueError("with a frame")

    async def caught(world: World, aio: AsyncLifecycle) -> bool:
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(ValueError, match="with a frame"):
                await aio.run(raising)
            await aio.run(int)  # the thread has let go of the call before
            return seen[0]() is None
        finally:
            gc.enable()

    assert in_loop(caught)


def test_an_error_that_no_future_can_carry_comes_back_all_the_same() -> None:
    """``StopIteration`` would leave its caller waiting for ever."""

    async def stopping(world: World, aio: AsyncLifecycle) -> None:
        await aio.run(next, iter(()))

    with pytest.raises(RuntimeError, match="next raised StopIteration"):
        in_loop(stopping)


def test_every_effect_runs_on_one_thread_that_is_not_the_loops() -> None:
    """What torch_memory_saver keeps by thread is the same for all of them."""

    async def threads(world: World, aio: AsyncLifecycle) -> set[int]:
        seen: set[int] = set()
        world.trainer.subscribe(lambda outcome: seen.add(get_ident()))
        for _ in range(3):
            await asyncio.gather(aio.sleep(), aio.wake_up())
            async with aio.step(["A"]):
                seen.add(await aio.run(get_ident))
        return seen - {get_ident()}

    assert len(in_loop(threads)) == 1


def test_the_thread_works_on_the_cuda_device_of_who_made_the_wrapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread would start with device 0, whatever the rank."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)

    async def main() -> str:
        worker = Worker("rank-3")
        name = await worker.call("name", lambda: current_thread().name)
        await worker.aclose()
        return name

    assert asyncio.run(main()).startswith("rank-3")
    assert chosen == [3]


def test_context_variables_are_those_of_the_caller() -> None:
    """Copied: also those of structlog, and each task has its own."""
    turn: contextvars.ContextVar[int] = contextvars.ContextVar("turn")

    async def bound(world: World, aio: AsyncLifecycle) -> list[tuple[int, object]]:
        async def one(number: int) -> tuple[int, object]:
            turn.set(number)
            structlog.contextvars.bind_contextvars(task=number)
            return await aio.run(turn.get), await aio.run(structlog.contextvars.get_contextvars)

        return await asyncio.gather(one(1), one(2))

    assert in_loop(bound) == [(1, {"task": 1}), (2, {"task": 2})]


def test_an_event_sent_by_a_subscriber_is_refused_as_without_the_wrapper() -> None:
    """It runs on the thread that is inside the event."""

    async def nested(world: World, aio: AsyncLifecycle) -> list[str]:
        world.trainer.subscribe(lambda outcome: world.trainer.wake_up())
        await aio.sleep()
        return [type(error).__name__ for error in world.trainer.callback_errors]

    assert in_loop(nested) == ["ReentrantEvent"]


def test_an_event_that_a_subscriber_sends_through_the_loop_and_waits_for_is_refused() -> None:
    """It would wait for the event that it is in, and that for it."""

    async def nested(world: World, aio: AsyncLifecycle) -> list[Exception]:
        loop = asyncio.get_running_loop()

        def wait_for_it(outcome: Moved) -> None:
            asyncio.run_coroutine_threadsafe(aio.wake_up(), loop).result(20)

        world.trainer.subscribe(wait_for_it)
        await aio.sleep()
        return list(world.trainer.callback_errors)

    (error,) = in_loop(nested)

    assert isinstance(error, ReentrantEvent)
    assert "wake_up was called from inside sleep" in str(error)


def test_what_a_subscriber_hands_to_the_loop_is_sent_when_the_event_is_over() -> None:
    """A queue carries no context: who reads it is in no event."""

    async def by_queue(world: World, aio: AsyncLifecycle) -> str:
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Moved]()
        world.trainer.subscribe(lambda outcome: loop.call_soon_threadsafe(told.put_nowait, outcome) and None)

        async def follow() -> str:
            await told.get()
            return edge(await aio.wake_up())

        following = asyncio.create_task(follow())
        await aio.sleep()
        return await following

    assert in_loop(by_queue) == "wakes"


def test_a_second_wrapper_over_one_controller_is_refused_until_the_first_is_closed() -> None:
    """Two threads would break the order, and the one thread."""
    world = make_world()

    async def main() -> TrainerState:
        first = AsyncLifecycle(world.trainer)
        with pytest.raises(ConfigError, match="another AsyncLifecycle"):
            AsyncLifecycle(world.trainer)
        await first.aclose()
        async with AsyncLifecycle(world.trainer) as second:
            await first.aclose()  # does not give the second one's place away
            with pytest.raises(ConfigError, match="another AsyncLifecycle"):
                AsyncLifecycle(world.trainer)
            await second.sleep()
            return second.state

    assert asyncio.run(main()) is TrainerState.SLEEPING


def test_a_wrapper_that_is_gone_holds_no_place() -> None:
    """It need not have been closed."""
    world = make_world()
    first: AsyncLifecycle | None = AsyncLifecycle(world.trainer)
    with pytest.raises(ConfigError):
        AsyncLifecycle(world.trainer)
    del first
    gc.collect()

    assert AsyncLifecycle(world.trainer).state is TrainerState.AWAKE


def test_what_is_no_controller_is_refused() -> None:
    """At once, by its type."""
    with pytest.raises(ConfigError, match="str is no TrainerLifecycle"):
        AsyncLifecycle("trainer")  # type: ignore[arg-type]


def test_closing_lets_what_was_called_before_run_first() -> None:
    """And the thread ends after it."""

    async def closing(world: World, aio: AsyncLifecycle) -> tuple[str, bool]:
        gate = Gate(world)
        asleep, thread = asyncio.create_task(aio.sleep()), await aio.run(current_thread)
        await gate.reached()
        closed = [asyncio.create_task(aio.aclose()), asyncio.create_task(aio.aclose())]
        await turns()
        assert not any(task.done() for task in closed)
        gate.open()
        await asyncio.gather(*closed)
        return edge(await asleep), thread.is_alive()

    assert in_loop(closing) == ("quiesces", False)


def test_after_closing_every_call_is_refused() -> None:
    """Also one made while the last ones still run, and a block; closing again is no error."""

    async def closed(world: World, aio: AsyncLifecycle) -> list[tuple[str, object]]:
        gate = Gate(world)
        asleep = asyncio.create_task(aio.sleep())
        await gate.reached()
        closing = asyncio.create_task(aio.aclose())
        await turns()
        with pytest.raises(LifecycleError, match=r"wake_up was called after aclose\(\)"):
            await aio.wake_up()
        gate.open()
        await asyncio.gather(asleep, closing)
        with pytest.raises(LifecycleError, match=r"step was called after aclose\(\)"):
            await aio.step(["A"]).__aenter__()
        await aio.aclose()
        return events(world)

    assert in_loop(closed) == [("began", "sleep"), ("moved", "sleep")]


def test_an_error_that_leaves_a_block_open_is_not_hidden_by_the_closing() -> None:
    """It says that the wrapper was not closed, and is raised as itself."""

    async def broken(world: World, aio: AsyncLifecycle) -> None:
        await aio.step(["A"]).__aenter__()
        raise ValueError("the loop's own")

    with pytest.raises(ValueError, match="the loop's own") as error:
        in_loop(broken)

    assert error.value.__notes__ == ["the AsyncLifecycle was not closed, a block is open: step"]


def test_one_wrapper_serves_one_loop_after_the_other() -> None:
    """It belongs to its controller, not to a loop."""
    aio = AsyncLifecycle(make_world().trainer)
    asyncio.run(aio.sleep())
    asyncio.run(aio.wake_up())

    assert aio.state is TrainerState.AWAKE
    asyncio.run(aio.aclose())


def test_recover_is_awaited_too() -> None:
    """From a fault that an undo made."""

    async def mended(world: World, aio: AsyncLifecycle) -> TrainerState:
        fault = decide(TrainerState.AWAKE, TrainerEvent.FAIL, Facts())
        assert isinstance(fault, Step)
        world.trainer._runner.machine.take(fault)
        await aio.recover()
        return aio.state

    assert in_loop(mended) is TrainerState.AWAKE
