"""The whole turn: trainer to engines and back, in the right order, whatever happens inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lifecycle.config import LifecycleConfig
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS, RolloutEngine
from states import TrainerState


class Trainer(Protocol):
    """What a turn needs of the controller."""

    config: LifecycleConfig

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


@contextmanager
def handoff(trainer: Trainer, engines: Sequence[RolloutEngine]) -> Iterator[None]:
    """Give the device to the engines for the length of the block.

    The trainer sleeps and, if a target is set, offloads; the engines take their weights memory, get
    what changed, take their kv cache. After the block, or if anything fails, the engines release
    and the trainer wakes; the error of the block is the one that is raised.

    Where trainer and engines do not share the device, the engines keep their memory.
    """
    taken: list[RolloutEngine] = []
    try:
        _to_engines(trainer, engines, taken)
        yield
    except BaseException as error:
        for second in _back(trainer, taken):
            error.add_note(f"on the way back: {type(second).__name__}: {second}")
        raise
    failures = _back(trainer, taken)
    if failures:
        for second in failures[1:]:
            failures[0].add_note(f"and then: {type(second).__name__}: {second}")
        raise failures[0]


def _to_engines(trainer: Trainer, engines: Sequence[RolloutEngine], taken: list[RolloutEngine]) -> None:
    """The way there; *taken* gets the engines that took memory, as soon as they may have."""
    trainer.sleep()
    if trainer.config.offload_target is not None:
        trainer.offload()
    shares = trainer.config.colocate
    for engine in engines if shares else ():
        taken.append(engine)
        engine.resume((WEIGHTS,))
    trainer.update_weights(engines)
    for engine in engines if shares else ():
        engine.resume((KV_CACHE,))


def _back(trainer: Trainer, taken: Sequence[RolloutEngine]) -> list[Exception]:
    """Release every engine that took memory and wake the trainer; each is tried whatever the others do."""
    failures: list[Exception] = []
    for engine in taken:
        try:
            engine.release((KV_CACHE, WEIGHTS))
        except Exception as error:  # noqa: BLE001 - the others and the trainer still have to be seen to
            failures.append(error)
    if trainer.state not in {TrainerState.AWAKE, TrainerState.FAULTED}:
        try:
            trainer.wake_up()
        except Exception as error:  # noqa: BLE001 - reported with the others
            failures.append(error)
    return failures
