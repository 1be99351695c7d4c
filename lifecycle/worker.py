"""One thread that runs what coroutines hand it, in order, and never half of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from lifecycle.errors import LifecycleError, ReentrantEvent

T = TypeVar("T")


@dataclass(slots=True)
class _UnderWay:
    """A call as what runs inside it sees it, through the context variables that it hands on.

    Attributes:
        name: of the call.
        now: whether it has not ended.
    """

    name: str
    now: bool = True


_WITHIN: ContextVar[_UnderWay | None] = ContextVar("lifecycle_call", default=None)


class _Call:
    """Work in the line, with the context variables of who asked for it.

    Attributes:
        future: what it comes to.
    """

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.future: Future[Any] = Future()
        self._work = work
        self._mark = _UnderWay(name)
        self._context = copy_context()
        self._context.run(_WITHIN.set, self._mark)

    def run(self) -> None:
        """On the thread: all of it, and its result or its error into the future."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._context.run(self._work)
        except StopIteration as error:  # a future cannot carry it, as a coroutine cannot
            self._mark.now = False
            self.future.set_exception(RuntimeError(f"{self._mark.name} raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
            self._mark.now = False
            self.future.set_exception(error)
        else:
            self._mark.now = False
            self.future.set_result(result)
        finally:
            del self  # the error holds this frame: if that held the error too, what the work had in hand would stay


class Worker:
    """A thread of its own, on the CUDA device of the thread that makes this. It ends with the last reference to it.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._line: deque[_Call] = deque()
        self._last: _Call | None = None
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_enter, initargs=(device,))

    @property
    def closed(self) -> bool:
        """Whether it was told to end: it takes no more calls."""
        return self._last is not None

    async def call(
        self,
        name: str,
        work: Callable[[], T],
        *,
        must: bool = False,
        first: bool = False,
        on_cancel: Callable[[], None] | None = None,
    ) -> T:
        """Run *work* on the thread after what was called before.

        When the await is cancelled before the work has begun, it never runs. When it has begun, it ends first: whatever
        it came to, the cancellation is raised after that, so nobody goes on while an event of theirs is under way.

        Args:
            name: for messages.
            work: takes nothing; runs in a copy of the caller's context variables.
            must: it runs also when the await is cancelled before it has begun.
            first: it is next, before what waits already.
            on_cancel: called at each cancellation of the await, in the loop's thread.

        Raises:
            LifecycleError: the thread was told to end.
            ReentrantEvent: the caller runs, directly or through the loop, inside a call that is under way: each would
                wait for the other.
        """
        if self.closed:
            raise LifecycleError(f"{name} was called after aclose(); wrap the controller again to go on")
        result: T = await _ended(self._put(name, work, first=first), must=must, on_cancel=on_cancel)
        return result

    async def aclose(self) -> None:
        """End the thread after what was called before. Idempotent; a cancellation is raised after the end.

        Raises:
            ReentrantEvent: called from inside a call that is under way.
        """
        if self._last is None:
            self._last = self._put("aclose", _nothing)
        try:
            await _ended(self._last, must=True)
        finally:
            self._pool.shutdown()

    def _put(self, name: str, work: Callable[[], Any], *, first: bool = False) -> _Call:
        within = _WITHIN.get()
        if within is not None and within.now:
            raise ReentrantEvent(f"{name} was called from inside {within.name}; call it after that has returned")
        call = _Call(name, work)
        (self._line.appendleft if first else self._line.append)(call)
        self._pool.submit(self._next)
        return call

    def _next(self) -> None:
        self._line.popleft().run()


async def _ended(call: _Call, *, must: bool = False, on_cancel: Callable[[], None] | None = None) -> Any:
    """What the call comes to, once it has ended; see :meth:`Worker.call`."""
    waited = asyncio.wrap_future(call.future)
    cancelled: asyncio.CancelledError | None = None
    try:
        while not waited.done():
            try:
                await asyncio.wait((waited,))
            except (asyncio.CancelledError, GeneratorExit) as error:
                if on_cancel is not None:
                    on_cancel()
                if (not must and call.future.cancel()) or isinstance(error, GeneratorExit):
                    raise
                cancelled = error
        if cancelled is not None:
            raise cancelled from waited.exception()
        return waited.result()
    finally:
        del waited, cancelled, call  # as in _Call.run


def _nothing() -> None:
    """The last call: when it has run, all before it have."""


def _enter(device: int | None) -> None:
    """The current CUDA device belongs to a thread; a new one starts with the first device of the process."""
    if device is not None:
        torch.cuda.set_device(device)
