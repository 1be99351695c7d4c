"""What must not be torn apart is not: a signal waits until the block has ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
"""Those that a program gives handlers which raise: Ctrl-C, and what a scheduler sends before it kills."""


class Held:
    """Signals that wait. Python runs their handlers between any two lines of the main thread."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._waiting: list[int] = []
        self._lets_through = False

    def hold(self) -> None:
        """From now on signals whose handlers are Python's wait. Elsewhere than in the main thread none comes."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._came)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self._lets_through:
            self._handlers[number](number, frame)
        else:
            self._waiting.append(number)

    def deliver(self) -> None:
        """What waits goes to its handler, which may raise: the others get theirs all the same."""
        if self._waiting:
            number = self._waiting.pop(0)
            try:
                self._handlers[number](number, None)
            finally:
                self.deliver()

    def release(self) -> None:
        """Handlers are back, but for those that somebody else has changed meanwhile, and what waits is delivered."""
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._came:
                signal.signal(number, handler)
        self.deliver()

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Signals come inside this block as ever: it may take long, and whoever is in it expects them."""
        self.deliver()
        try:
            self._lets_through = True
            yield
        finally:
            self._lets_through = False


@contextmanager
def uninterrupted() -> Iterator[Held]:
    """Signals wait for the end of the block; then they are delivered, also when it has raised.

    ``KeyboardInterrupt`` in the middle of an undo would leave bytes that are neither as before nor as they were to
    be, and a state that says otherwise.
    """
    held = Held()
    try:
        held.hold()
        yield held
    finally:
        held.release()
