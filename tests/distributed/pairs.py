"""Two ranks in two threads of one process: what each does, and meetings that need no network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier, BrokenBarrierError
from typing import Any

from lifecycle.errors import LifecycleError
from lifecycle.transition.ranks import Alone
from states.joining import Assembled

_PATIENCE_S = 30.0


@dataclass
class Table:
    """Where the two of them meet."""

    said: dict[int, Any] = field(default_factory=dict)
    barrier: Barrier = field(default_factory=lambda: Barrier(2, timeout=_PATIENCE_S))


class Other(LifecycleError):
    """The other one failed."""


class Half(Alone):
    """One of two ranks. Events are its own; it meets the other only to join, and to admit.

    Args:
        rank: 0 or 1.
        table: where they meet.
    """

    def __init__(self, rank: int, table: Table) -> None:
        self._rank = rank
        self._table = table
        self._is_joining = False

    def assembled(self, version: int, *, joins: bool) -> Assembled:
        """Rank 0 admits rank 1."""
        assert joins == (self._rank == 1)
        self._is_joining = True
        return Assembled(self._rank, max(self._exchanged(version).values()), (1,), (0,))

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:
        """What rank 0 says."""
        found: bytes = self._exchanged(payload)[by]
        return found

    def acted(self, error: BaseException | None = None, *, result: str = "") -> None:
        """At the end of a join; who failed ends the meetings of both."""
        if self._is_joining:
            self._is_joining = False
            if error is not None:
                self._table.barrier.abort()
            else:
                self._exchanged(None)

    def unbuilt(self, _error: BaseException) -> None:
        """It failed before they met."""
        self._table.barrier.abort()

    def _exchanged(self, said: Any) -> dict[int, Any]:
        try:
            self._table.said[self._rank] = said
            self._table.barrier.wait()
            found = dict(self._table.said)
            self._table.barrier.wait()
        except BrokenBarrierError as error:
            raise Other("it failed") from error
        return found


def both(admit: Callable[[], Any], join: Callable[[], Any]) -> tuple[Any, Any]:
    """What came of the two, each in a thread; what one raised in its place."""
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(one) for one in (admit, join)]
        found = [future.exception(_PATIENCE_S) or future.result() for future in futures]
    return found[0], found[1]
