"""The whole turn: trainer to engines and back, planned before its first step, whatever happens inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import ConfigError
from states import TrainerState
from states.handover import HandoverOrder, HandoverPlan, HandoverStep

_UP = (TrainerState.AWAKE, TrainerState.FAULTED)


class Trainer(Protocol):
    """What a turn needs of the controller."""

    @property
    def state(self) -> TrainerState:
        """The state the trainer is in."""

    def sleep(self) -> object:
        """Quiesce."""

    def offload(self) -> object:
        """Give the device memory back."""

    def wake_up(self) -> object:
        """Take it again."""

    def update_weights(self, engines: Sequence[RolloutEngine]) -> object:
        """Send what the engines lack."""


def checked_order(order: str | None) -> HandoverOrder | None:
    """The order that is asked for by name.

    Raises:
        ConfigError: there is no such order.
    """
    if order is None:
        return None
    try:
        return HandoverOrder(order)
    except ValueError as error:
        raise ConfigError(f"order is {order!r}; use one of {', '.join(HandoverOrder)}, or None") from error


@contextmanager
def handoff(trainer: Trainer, engines: Sequence[RolloutEngine], plan: Callable[[], HandoverPlan]) -> Iterator[None]:
    """Give the device to the engines for the length of the block.

    The trainer sleeps and, if a target is set, offloads; the engines take their weights memory, get
    what changed, take their kv cache. After the block, or if anything fails, the engines release
    and the trainer wakes; the error of the block is the one that is raised.

    Where trainer and engines do not share the device, the engines keep their memory.

    Args:
        trainer: the controller.
        engines: who serves.
        plan: asked once, before the first step: the order of the steps, there and back. If it raises, nothing is done.
    """
    chosen = plan()
    taken: dict[str, RolloutEngine] = {}
    try:
        for step in chosen.there.steps:
            _go(trainer, engines, step, taken)
        yield
    except BaseException as error:
        for second in _return(trainer, chosen, taken):
            error.add_note(f"on the way back: {type(second).__name__}: {second}")
        raise
    failures = _return(trainer, chosen, taken)
    if failures:
        for second in failures[1:]:
            failures[0].add_note(f"and then: {type(second).__name__}: {second}")
        raise failures[0]


def _go(
    trainer: Trainer, engines: Sequence[RolloutEngine], step: HandoverStep, taken: dict[str, RolloutEngine]
) -> None:
    """One step of the way there; *taken* gets an engine as soon as it may have taken memory."""
    if step.engine:
        engine = next(one for one in engines if one.name == step.engine)
        taken[step.engine] = engine
        engine.resume(step.tags)
    elif step.does == "update_weights":
        trainer.update_weights(engines)
    elif step.does == "offload":
        trainer.offload()
    else:
        trainer.sleep()


def _return(trainer: Trainer, plan: HandoverPlan, taken: dict[str, RolloutEngine]) -> list[Exception]:
    """Every engine that took memory releases it and the trainer wakes; each is tried whatever the others do."""
    failures: list[Exception] = []
    asleep: list[Exception] = []
    for step in plan.back.steps:
        engine = taken.get(step.engine)
        if engine is not None:
            _try(partial(engine.release, step.tags), failures)
        elif not step.engine:
            _wake(trainer, asleep)
    if asleep and plan.back.order is HandoverOrder.DEVICE_PEAK and trainer.state not in _UP:
        asleep.clear()
        _wake(trainer, asleep)  # by now the engines have made room
    return failures + asleep


def _wake(trainer: Trainer, failures: list[Exception]) -> None:
    if trainer.state not in _UP:
        _try(trainer.wake_up, failures)


def _try(call: Callable[[], object], failures: list[Exception]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the others and the trainer still have to be seen to
        failures.append(error)
