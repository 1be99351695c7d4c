"""Time in equal buckets whose width doubles as a run goes on: memory and drawings have a bound, a run has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor
from typing import Final, Generic, TypeVar

SMALLEST_S: Final = 2.0**-10
"""Width of a bucket to begin with: about a millisecond. Widths are powers of two, so the buckets of lanes align."""

Cell = TypeVar("Cell")


class Buckets(Generic[Cell]):
    """Cells by bucket, of one lane.

    Args:
        most: how many buckets lie between the first and the last one, at most; at least 2.
        empty: makes the cell of a bucket.
        join: puts the cell of the later of two neighbours into that of the earlier one.

    Attributes:
        width_s: how long each bucket is.
    """

    def __init__(self, most: int, empty: Callable[[], Cell], join: Callable[[Cell, Cell], None]) -> None:
        self._most = most
        self._empty = empty
        self._join = join
        self._cells: dict[int, Cell] = {}
        self._first: int | None = None
        self._last = 0
        self.width_s = SMALLEST_S

    def at(self, time_s: float) -> Cell:
        """The cell of a moment. It is to be changed before the next call."""
        self._reach(time_s)
        return self._cell(floor(time_s / self.width_s))

    def over(self, began_s: float, ended_s: float) -> Iterator[tuple[Cell, float]]:
        """Each cell of a span, and for how long the span lies in it. Each is to be changed as it comes."""
        for moment_s in (began_s, ended_s):
            self._reach(moment_s)
        width_s = self.width_s
        for index in range(floor(began_s / width_s), floor(ended_s / width_s) + 1):
            lasted_s = min(ended_s, (index + 1) * width_s) - max(began_s, index * width_s)
            if lasted_s > 0:
                yield self._cell(index), lasted_s

    def widen(self, width_s: float) -> None:
        """Join neighbours until buckets are as wide: those of lanes that are drawn side by side."""
        while self.width_s < width_s:
            self._fold()

    def cells(self) -> dict[int, Cell]:
        """Number of the bucket, from 1970, to its cell, in order; buckets in which nothing was are left out."""
        return dict(sorted(self._cells.items()))

    def _cell(self, index: int) -> Cell:
        cell = self._cells.get(index)
        if cell is None:
            cell = self._cells[index] = self._empty()
        return cell

    def _reach(self, time_s: float) -> None:
        index = floor(time_s / self.width_s)
        if self._first is None:
            self._first = self._last = index
        self._first, self._last = min(self._first, index), max(self._last, index)
        while self._last - self._first >= self._most:
            self._fold()

    def _fold(self) -> None:
        folded: dict[int, Cell] = {}
        for index, cell in sorted(self._cells.items()):
            earlier = folded.get(index // 2)
            if earlier is None:
                folded[index // 2] = cell
            else:
                self._join(earlier, cell)
        self._cells, self.width_s = folded, self.width_s * 2
        self._first, self._last = (self._first or 0) // 2, self._last // 2
