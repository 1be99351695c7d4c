"""The whole turn: trainer to engines and back, in the right order, whatever happens inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lifecycle.config import LifecycleConfig
from lifecycle.engines.protocol import RolloutEngine
from states import TrainerState

WEIGHTS, KV_CACHE = "weights", "kv_cache"


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
    shares = trainer.config.colocate
    try:
        _to_engines(trainer, engines, shares=shares)
        yield
    except BaseException as error:
        _back_after(trainer, engines, error, shares=shares)
        raise
    _back(trainer, engines, shares=shares)


def _to_engines(trainer: Trainer, engines: Sequence[RolloutEngine], *, shares: bool) -> None:
    trainer.sleep()
    if trainer.config.offload_target is not None:
        trainer.offload()
    if shares:
        for engine in engines:
            engine.resume((WEIGHTS,))
    trainer.update_weights(engines)
    if shares:
        for engine in engines:
            engine.resume((KV_CACHE,))


def _back(trainer: Trainer, engines: Sequence[RolloutEngine], *, shares: bool) -> None:
    if shares:
        for engine in engines:
            engine.release((KV_CACHE, WEIGHTS))
    trainer.wake_up()


def _back_after(
    trainer: Trainer, engines: Sequence[RolloutEngine], error: BaseException, *, shares: bool
) -> None:
    """Release every engine and wake the trainer; what fails on the way is noted on the first error."""
    for engine in engines if shares else ():
        try:
            engine.release((KV_CACHE, WEIGHTS))
        except Exception as second:  # noqa: BLE001 - the first error is the one to raise
            error.add_note(f"releasing engine {engine.name} failed too: {second}")
    if trainer.state in (TrainerState.AWAKE, TrainerState.FAULTED):
        return
    try:
        trainer.wake_up()
    except Exception as second:  # noqa: BLE001 - the first error is the one to raise
        error.add_note(f"waking the trainer failed too: {second}")
