"""A native call and the books of it are one: no interrupt comes between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lifecycle.saver.books import Books
from lifecycle.uninterrupted import uninterrupted


@contextmanager
def turning(books: Books) -> Iterator[None]:
    """The books change inside, also when it fails half-way. A ``KeyboardInterrupt`` waits for the end.

    In the middle of a pause it would leave pages that are in neither place, or memory that is paused and is booked as
    active: lost bytes, or the end of the process at the next call.
    """
    books.turned()
    try:
        with uninterrupted():
            yield
    finally:
        books.turned()
