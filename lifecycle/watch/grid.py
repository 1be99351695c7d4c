"""Tables that fit: columns that a narrow terminal has no room for are left out, and a row is a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from lifecycle.watch.text import shown

GAP: Final = 2
"""Columns between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        from_width: columns that a terminal has at least where it is shown.
        is_number: it stands on the right.
        most: the longest text that is shown whole.
        shrinks: it gives way where the terminal is narrow; what does not is whole.
    """

    name: str
    from_width: int = 0
    is_number: bool = False
    most: int = 40
    shrinks: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and how it is drawn. What it says is made harmless when it is drawn.

    Attributes:
        text: as it stands in the log.
        style: rich's; a colour never says what the text does not.
    """

    text: str
    style: str = ""


Row = Sequence[Cell | str]


def grid(title: str, columns: Sequence[Column], rows: Iterable[Row], width: int) -> Table:
    """A table of those columns for which there is room, and in which something stands.

    Args:
        title: what it is.
        columns: all of them.
        rows: a cell for each column.
        width: of the terminal; columns.
    """
    drawn = [[_drawn(cell, one.most) for cell, one in zip(row, columns, strict=True)] for row in rows]
    kept = [at for at, one in enumerate(columns) if width >= one.from_width and any(row[at] for row in drawn)]
    needs = {at: max(map(cell_len, (columns[at].name, *(row[at].plain for row in drawn)))) for at in kept}
    widths = _fitted(needs, {at: cell_len(columns[at].name) for at in kept if columns[at].shrinks}, width)
    table = Table(
        title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False, padding=(0, GAP, 0, 0)
    )
    for at in kept:
        justify: Literal["left", "right"] = "right" if columns[at].is_number else "left"
        table.add_column(
            Text(columns[at].name, style="dim"), justify=justify, no_wrap=True, overflow="ellipsis", width=widths[at]
        )
    for row in drawn:
        table.add_row(*(row[at] for at in kept))
    return table


def _fitted(needs: Mapping[int, int], least: Mapping[int, int], width: int) -> dict[int, int]:
    """Column to its width: those that shrink give way, always the widest of them, until all fit or none can."""
    widths = dict(needs)
    while sum(widths.values()) + GAP * (len(widths) - 1) > width:
        widest = max(least, key=lambda at: widths[at] - least[at], default=None)
        if widest is None or widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return widths


def _drawn(cell: Cell | str, most: int) -> Text:
    one = cell if isinstance(cell, Cell) else Cell(cell)
    return Text(shown(one.text, most), style=one.style)
