"""Ctrl-C, and the signal before a kill, at every moment of an event: it has happened whole, or not at all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lifecycle.audit import AuditLog
from lifecycle.auditing import audit_logs
from lifecycle.errors import TransitionFailed
from lifecycle.uninterrupted import SIGNALS, uninterrupted
from states import TrainerEvent, TrainerState
from tests.auditing.runs import record
from tests.lifecycle.world import World, make_world

SLOT = {"lora_a.2", "lora_b.2"}
"""What another adapter is written into."""
EVENTS = ("sleep", "offload", "wake_up", "reconcile_adapters")


class Killed(BaseException):
    """What a program's own handler raises."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Handlers that raise, as a training program has them."""

    def raise_killed(*_: object) -> None:
        raise Killed

    before = [signal.signal(one, raise_killed) for one in SIGNALS]
    yield
    for one, handler in zip(SIGNALS, before, strict=True):
        signal.signal(one, handler)


def moments(world: World) -> list[tuple[Any, str]]:
    """What the runner calls in its own part of an event, where no effect runs."""
    runner = world.trainer._runner
    return [
        (runner.machine, "take"), (runner.recorder, "began"), (runner.recorder, "moved"), (runner.recorder, "failed"),
        (runner._ranks, "acted"), (runner._ranks, "undone"),
    ]  # fmt: skip


def pressed_at(call: Callable[..., object], number: int, *, after: bool) -> Callable[..., object]:
    """The call, and a signal just before or after it."""

    def pressing(*arguments: object, **keywords: object) -> object:
        if not after:
            signal.raise_signal(number)
        result = call(*arguments, **keywords)
        if after:
            signal.raise_signal(number)
        return result

    return pressing


def arrive(world: World, event: str) -> None:
    """Where the event leaves from."""
    trainer = world.trainer
    for one in EVENTS[: EVENTS.index(event)] if event != "reconcile_adapters" else ():
        getattr(trainer, one)()
    if event == "reconcile_adapters":
        world.host.register("C", 2)


def disagree(error: BaseException | None = None, **_: object) -> None:
    """The ranks do not agree: everything that the effects did is undone."""
    if error is None:
        raise OSError("disagreed")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("moment", range(6))
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("event", EVENTS)
def test_a_signal_leaves_a_trainer_that_its_log_explains(
    tmp_path: Path, event: str, moment: int, number: int, *, after: bool, fails: bool
) -> None:
    """In no state but where the event left or was to lead, with the bytes of before, and free for the next event."""
    world = make_world()
    log = AuditLog(tmp_path / "audit.jsonl")
    record(world, log)
    before = world.all_bytes()
    arrive(world, event)
    source = world.trainer.state
    owner, name = moments(world)[moment]
    with pytest.MonkeyPatch.context() as patched:
        if fails:
            patched.setattr(world.trainer._runner._ranks, "acted", disagree)
        patched.setattr(owner, name, pressed_at(getattr(owner, name), number, after=after))
        with suppress(Killed, TransitionFailed):
            getattr(world.trainer, event)()

    assert world.trainer.state in {source, _target(event, source)}
    assert world.trainer.state is not TrainerState.FAULTED
    world.trainer.wake_up()
    now = world.all_bytes()
    assert {name for name in before if now[name] != before[name]} <= (SLOT if event == "reconcile_adapters" else set())
    log.close()
    assert list(audit_logs([log.path])) == []


def _target(event: str, source: TrainerState) -> TrainerState:
    targets = {"sleep": TrainerState.SLEEPING, "offload": TrainerState.OFFLOADED_CPU, "wake_up": TrainerState.AWAKE}
    return targets.get(TrainerEvent(event), source)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_comes_at_once_while_an_effect_runs(number: int) -> None:
    """An effect may take minutes. What it did is undone, and what the handler raises goes on."""
    world = make_world()
    world.trainer.sleep()
    pause, seen = world.arena.pause, []

    def slow(tag: str) -> None:
        signal.raise_signal(number)
        seen.append(tag)
        pause(tag)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.arena, "pause", slow)
        with pytest.raises(Killed):
            world.trainer.offload()

    assert seen == []
    assert world.trainer.state is TrainerState.SLEEPING


def test_a_signal_comes_while_a_subscriber_is_told() -> None:
    """It is somebody else's code, and may never return."""
    world, reached = make_world(), []
    world.trainer.subscribe(lambda _: signal.raise_signal(signal.SIGINT) or reached.append(1))

    with pytest.raises(Killed):
        world.trainer.sleep()

    assert reached == []
    assert world.trainer.state is TrainerState.SLEEPING


def test_what_waits_is_delivered_once_and_the_handlers_are_those_of_before() -> None:
    """Also around another block, and when the block has raised."""
    came: list[int] = []
    handler = lambda number, _: came.append(number)  # noqa: E731
    signal.signal(signal.SIGINT, handler)

    with suppress(ValueError), uninterrupted(), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        assert came == []
        raise ValueError

    assert came == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_handler_that_is_set_inside_stays() -> None:
    """A callback may set one: it is not ours to take back."""
    came: list[int] = []

    with uninterrupted():
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    signal.raise_signal(signal.SIGINT)

    assert came == [signal.SIGINT]


def test_in_another_thread_nothing_is_held() -> None:
    """No handler runs there, and none can be set."""
    raised: list[BaseException] = []

    def block() -> None:
        try:
            with uninterrupted() as held, held.let_through():
                pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, there is to be none
            raised.append(error)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()

    assert raised == []
