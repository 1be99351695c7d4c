"""The controller for training loops that are coroutines; see docs/asyncio.md.

Every effect runs on one thread that belongs to the wrapper. Not on any thread that is free, as with
``asyncio.to_thread``: tag, region and backup kind of torch_memory_saver belong to a thread, and so does the current
CUDA device.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar
from weakref import WeakKeyDictionary, ref

from lifecycle.controller import TrainerLifecycle
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import ConfigError, LifecycleError
from lifecycle.outcome import Outcome
from lifecycle.transition.steps import TrainingStep
from lifecycle.worker import Worker
from states import ACTOR, TrainerState

P = ParamSpec("P")
T = TypeVar("T")

_wrapped: WeakKeyDictionary[TrainerLifecycle, ref[AsyncLifecycle]] = WeakKeyDictionary()
_wrapping = Lock()


class AsyncLifecycle:
    """Awaitable calls of a controller. The loop goes on while an event runs; events keep the order of the calls.

    A call takes its place in line when it is awaited, given to ``gather`` or made a task. It raises and returns what
    the controller's method does. An await that is cancelled before its event has begun drops the event. One that is
    cancelled later ends when the event has ended: the outcome is on the record, and the cancellation is raised then.

    Args:
        controller: from now on called through this wrapper; :meth:`run` calls what has no method here.

    Attributes:
        controller: the one that is wrapped.

    Raises:
        ConfigError: it is no controller, or another wrapper that is not closed has it.
    """

    def __init__(self, controller: TrainerLifecycle) -> None:
        if not isinstance(controller, TrainerLifecycle):
            raise ConfigError(f"{type(controller).__name__} is no TrainerLifecycle; build one and wrap that")
        with _wrapping:
            other = _wrapped[controller]() if controller in _wrapped else None
            if other is not None:
                because = "another AsyncLifecycle has this controller, with a thread of its own"
                raise ConfigError(f"{because}; use that one, or aclose() it first")
            _wrapped[controller] = ref(self)
        self.controller = controller
        self._worker = Worker(f"lifecycle-{controller.config.model}")
        self._blocks: list[str] = []

    @property
    def state(self) -> TrainerState:
        """The state the trainer is in, also while an event is under way."""
        return self.controller.state

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run *function* on the wrapper's thread, in its turn: forward and backward, or a method without one here.

        Context variables are those of the caller, copied. Grad mode and other settings that torch keeps by thread are
        not the caller's: set them inside.

        Raises:
            LifecycleError: the wrapper is closed.
            ReentrantEvent: called from inside a call that is under way.
        """
        name = getattr(function, "__name__", type(function).__name__)
        return await self._worker.call(name, partial(function, *args, **kwargs))

    # events

    async def sleep(self, *, offload: bool = False) -> Outcome:
        """See :meth:`TrainerLifecycle.sleep`."""
        return await self.run(self.controller.sleep, offload=offload)

    async def offload(self) -> Outcome:
        """See :meth:`TrainerLifecycle.offload`."""
        return await self.run(self.controller.offload)

    async def wake_up(self) -> Outcome:
        """See :meth:`TrainerLifecycle.wake_up`."""
        return await self.run(self.controller.wake_up)

    async def recover(self) -> Outcome:
        """See :meth:`TrainerLifecycle.recover`."""
        return await self.run(self.controller.recover)

    async def reconcile_adapters(self, *, partial: str | None = None) -> Outcome:
        """See :meth:`TrainerLifecycle.reconcile_adapters`."""
        return await self.run(self.controller.reconcile_adapters, partial=partial)

    async def update_weights(self, engines: Iterable[RolloutEngine]) -> Outcome:
        """See :meth:`TrainerLifecycle.update_weights`."""
        return await self.run(self.controller.update_weights, engines)

    async def switch_model(self, target: str = ACTOR) -> Outcome:
        """See :meth:`TrainerLifecycle.switch_model`."""
        return await self.run(self.controller.switch_model, target)

    async def begin_step(self, adapters: Iterable[str] = ()) -> Outcome:
        """See :meth:`TrainerLifecycle.begin_step`."""
        return await self.run(self.controller.begin_step, adapters)

    async def trained(self, adapters: Iterable[str] | None = None) -> Outcome:
        """See :meth:`TrainerLifecycle.trained`."""
        return await self.run(self.controller.trained, adapters)

    async def accumulated(self) -> None:
        """See :meth:`TrainerLifecycle.accumulated`."""
        await self.run(self.controller.accumulated)

    async def abort_step(self) -> None:
        """See :meth:`TrainerLifecycle.abort_step`."""
        await self.run(self.controller.abort_step)

    # blocks

    def step(self, adapters: Iterable[str] = ()) -> AbstractAsyncContextManager[TrainingStep]:
        """``async with``: see :meth:`TrainerLifecycle.step`. A cancellation inside aborts the step.

        The body runs where the loop runs; ``await run(...)`` inside takes work to the wrapper's thread.
        """
        return self.within(self.controller.step, adapters)

    def handoff(
        self, engines: Iterable[RolloutEngine], *, memory_peak: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        """``async with``: see :meth:`TrainerLifecycle.handoff`. A cancellation inside brings the trainer back first."""
        return self.within(self.controller.handoff, engines, memory_peak=memory_peak)

    def within(
        self, block: Callable[P, AbstractContextManager[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractAsyncContextManager[T]:
        """``async with``: any block of the controller, such as ``within(trainer.reference)``, on the wrapper's thread.

        A block that was entered is always left, whatever is cancelled when.

        Raises:
            LifecycleError: on entering, one that was entered before, or after ``aclose()``.
        """
        return _Block(
            self._worker, self._blocks, getattr(block, "__name__", "a block"), partial(block, *args, **kwargs)
        )

    # the end

    async def aclose(self) -> None:
        """End the wrapper's thread after the calls that were made before. Idempotent. The controller can be used on.

        Raises:
            LifecycleError: a block is open (or opening); its end would have no thread to run on.
        """
        if self._blocks:
            raise LifecycleError(f"aclose() while a block is open: {', '.join(self._blocks)}; leave it first")
        try:
            await self._worker.aclose()
        finally:
            with _wrapping:
                if self._worker.closed and self.controller in _wrapped and _wrapped[self.controller]() is self:
                    del _wrapped[self.controller]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._blocks:
            error.add_note(f"the AsyncLifecycle was not closed, a block is open: {', '.join(self._blocks)}")
        else:
            await self.aclose()


class _Block(Generic[T]):
    """A block of the controller, entered and left on the worker's thread; left whenever it was entered."""

    def __init__(
        self, worker: Worker, blocks: list[str], name: str, make: Callable[[], AbstractContextManager[T]]
    ) -> None:
        self._worker, self._blocks, self._name, self._make = worker, blocks, name, make
        self._lock = Lock()
        self._entered: AbstractContextManager[Any] | None = None
        self._used = self._abandoned = False

    async def __aenter__(self) -> T:
        if self._used:
            raise LifecycleError(f"this {self._name} block was entered before; make a new one for each async with")
        self._used = True
        self._blocks.append(self._name)
        try:
            return await self._worker.call(self._name, self._enter, on_cancel=self._abandon)
        except asyncio.CancelledError as error:
            await self._give_up(error)
            raise
        except BaseException:
            self._blocks.remove(self._name)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._left(error)

    async def _give_up(self, error: BaseException) -> None:
        """The await of entering it was cancelled; one that was entered by then is left before anything else runs."""
        if self._entered is None:
            self._blocks.remove(self._name)
            return
        try:
            await self._left(error, first=True)
        except BaseException as second:  # noqa: BLE001 - the cancellation is what is raised
            error.add_note(f"leaving {self._name}: {type(second).__name__}: {second}")

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True

    def _enter(self) -> T:
        block = self._make()
        value = block.__enter__()
        with self._lock:
            self._entered = block
            abandoned = self._abandoned
        if abandoned:  # nobody will use it: left before anything else runs
            self._leave(asyncio.CancelledError())
        return value

    async def _left(self, error: BaseException | None, *, first: bool = False) -> bool | None:
        try:
            return await self._worker.call(self._name, partial(self._leave, error), must=True, first=first)
        finally:
            self._blocks.remove(self._name)

    def _leave(self, error: BaseException | None) -> bool | None:
        block, self._entered = self._entered, None
        assert block is not None  # it was entered
        if error is None:
            return block.__exit__(None, None, None)
        return block.__exit__(type(error), error, error.__traceback__)
