"""A native call and the books of it are one: no interrupt comes between them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lifecycle.saver.books import Books


@contextmanager
def turning(books: Books) -> Iterator[None]:
    """The books change inside, also when it fails half-way. A ``KeyboardInterrupt`` waits for the end."""
    books.turned()
    try:
        with _uninterrupted():
            yield
    finally:
        books.turned()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Python runs signal handlers between any two lines of the main thread; SIGINT is delivered again at the end.

    In the middle of a pause it would leave pages that are in neither place, or memory that is paused and is booked as
    active: lost bytes, or the end of the process at the next call.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    pressed = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pressed.is_set():
            signal.raise_signal(signal.SIGINT)
