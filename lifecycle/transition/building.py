"""What ranks do together outside of events, such as building trainers: what fails on one fails on all, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from lifecycle.errors import LifecycleError
from lifecycle.transition.ranks import Ranks
from lifecycle.weights.snapshots import SnapshotStore

T = TypeVar("T")


class Block:
    """What all ranks are in together. They meet in it once, before any of them does anything that others rely on.

    Attributes:
        has_begun: the meeting has begun: what failed in it, all ranks know.
        has_met: it came to its end.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.has_met = False

    def meet(self, meeting: Callable[[], T]) -> T:
        """Hold the meeting."""
        self.has_begun = True
        found = meeting()
        self.has_met = True
        return found


@contextmanager
def together(ranks: Ranks) -> Iterator[Block]:
    """All ranks come through the block, or none does.

    What fails before the meeting is told in it, what fails afterwards is told at the end. The rank on which it fails
    raises it, the others :class:`~lifecycle.distributed.RanksFailed`, which says who and why.

    Raises:
        RanksFailed: another rank failed.
        RanksDisagree, RanksMissing, RankFenced, StoreLost: at the end, as :meth:`Ranks.acted`.
    """
    block = Block()
    try:
        yield block
    except BaseException as error:
        if not block.has_begun:
            ranks.unbuilt(error)
        elif block.has_met:
            _failed(ranks, error)
        raise
    _came_through(ranks)


class Heard:
    """What the ranks do in a block of :func:`heard`.

    Attributes:
        result: what came of it, as far as it must be alike on all ranks.
    """

    def __init__(self) -> None:
        self.result = ""


@contextmanager
def heard(ranks: Ranks) -> Iterator[Heard]:
    """All ranks come through the block with one result, or all hear at its end which one did not.

    Raises:
        RanksFailed, RanksDisagree, RanksMissing, RankFenced, StoreLost: as :meth:`Ranks.acted`.
    """
    ranks.begins_apart()
    found = Heard()
    try:
        yield found
    except BaseException as error:
        _failed(ranks, error)
        raise
    _came_through(ranks, found.result)


def _came_through(ranks: Ranks, result: str = "") -> None:
    try:
        ranks.acted(result=result)
    except BaseException:
        _leave(ranks)
        raise


def _failed(ranks: Ranks, error: BaseException) -> None:
    with suppress(LifecycleError):
        ranks.acted(error)
    _leave(ranks)


def _leave(ranks: Ranks) -> None:
    """What failed is over on all ranks; nothing has to be undone. The first error is the one to raise."""
    with suppress(LifecycleError):
        ranks.undone()


@contextmanager
def store_freed(snapshots: SnapshotStore) -> Iterator[None]:
    """A trainer that could not be built leaves its store of snapshots to the next one."""
    was_free = snapshots.is_free
    try:
        yield
    except BaseException:
        if was_free:
            snapshots.disconnect()
        raise
