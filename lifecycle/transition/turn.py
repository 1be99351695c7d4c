"""One event at a time, to completion."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import TIMEOUT_MAX, Condition, get_ident

from lifecycle.errors import BusyError, ReentrantEvent
from states import TrainerEvent


class Turn:
    """Serialises events. Other threads wait up to a timeout; the same thread is refused at once."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._free = Condition()
        self._owner: int | None = None
        self._event = ""

    def is_mine(self) -> bool:
        """Whether this thread is inside an event now."""
        return self._owner == get_ident()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Hold the turn for a look; inside an event of this thread, such as a subscriber's, just look.

        Raises:
            BusyError: another thread's event did not end in time.
        """
        if self.is_mine():
            yield
        else:
            with self.of("a question"):
                yield

    @contextmanager
    def of(self, event: TrainerEvent | str) -> Iterator[None]:
        """Hold the turn while *event* is decided, done and committed.

        Raises:
            ReentrantEvent: this thread is still inside another event.
            BusyError: another thread's event did not end in time.
        """
        if self._owner == get_ident():
            raise ReentrantEvent(f"{event} was sent from inside {self._event}; send it after that has returned")
        try:
            # Inside the try: an interrupt may come right after the lock was taken, and it must not stay so.
            if not self._take(event):
                raise BusyError(f"{event} waited {self._timeout_s} s for {self._event} of another thread")
            yield
        finally:
            self._give_up()

    @contextmanager
    def at_once(self) -> Iterator[bool]:
        """Hold the turn if nobody has it, and say whether it is held; never waits."""
        mine = False
        try:
            with self._free:
                if self._owner is None:
                    self._event, self._owner, mine = "a step of an optimizer", get_ident(), True
            yield mine
        finally:
            if mine:
                self._give_up()

    def _take(self, event: TrainerEvent | str) -> bool:
        deadline = time.monotonic() + self._timeout_s
        with self._free:
            while self._owner is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._free.wait(min(left, TIMEOUT_MAX)):
                    return False
            self._event, self._owner = str(event), get_ident()
        return True

    def _give_up(self) -> None:
        """Only what is this thread's: its own event has ended, or it never got the turn."""
        with self._free:
            if self._owner == get_ident():
                self._owner, self._event = None, ""
                self._free.notify()
