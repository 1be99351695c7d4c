"""One event at a time, to completion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from lifecycle.errors import BusyError, ReentrantEvent
from states import TrainerEvent


class Turn:
    """Serialises events. Other threads wait up to a timeout; the same thread is refused at once."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = Lock()
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
        if not self._lock.acquire(timeout=self._timeout_s):
            raise BusyError(f"{event} waited {self._timeout_s} s for {self._event} of another thread")
        self._owner, self._event = get_ident(), str(event)
        try:
            yield
        finally:
            self._owner, self._event = None, ""
            self._lock.release()
