"""The picture as rich draws it, for a terminal of any width and height."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from lifecycle.report.human import when_text
from lifecycle.watch.attention import Concern, Level, Notice
from lifecycle.watch.picture import Picture
from lifecycle.watch.tables import adapters_table, bytes_table, engines_table, moved_text, ranks_table, recent_table
from lifecycle.watch.text import shown

ROWS: Final = 10
"""Rows of a table where there is room for them."""
_TABLES: Final = {
    "ranks": ranks_table,
    "transitions": recent_table,
    "engines": engines_table,
    "adapters": adapters_table,
    "bytes": bytes_table,
}
"""In the order in which they are needed."""
_ROOMS: Final = (
    (8, 5),
    (6, 5),
    (5, 5),
    (4, 5),
    (3, 5),
    (4, 4),
    (3, 4),
    (5, 3),
    (3, 3),
    (5, 2),
    (3, 2),
    (2, 2),
    (1, 2),
    (1, 1),
)
"""Rows, and how many of the tables, from a high terminal to a low one."""
_STYLES: Final = {Level.ERROR: "bold white on red", Level.WARNING: "bold yellow"}
_SAYS_MAX: Final = 400
"""Characters that are shown of what a notice says."""
_QUIET: Final = frozenset({Concern.WAITING, Concern.GONE})


def draw(picture: Picture, found: Sequence[Notice], width: int, rows: int = ROWS, tables: int = len(_TABLES)) -> Group:
    """Everything, one below the other; what there is nothing of is left out.

    Args:
        picture: the run.
        found: what is to be looked at.
        width: of the terminal; columns.
        rows: the most rows of a table.
        tables: how many of the tables there is room for; the others are named.
    """
    parts: list[RenderableType] = [_heading(picture, found)]
    notices_most = max(rows, 3)
    parts += [_notice(one) for one in found[:notices_most]]
    if len(found) > notices_most:
        parts.append(Text(f"and {len(found) - notices_most} more to look at", style="bold yellow"))
    names = list(_TABLES) if picture.ranks else []
    for name in names[:tables]:
        table = _TABLES[name](picture, rows, width)
        parts += [Text(), table] if table.row_count else []
    moved = moved_text(picture.ranks)
    parts += [Text(shown(moved))] if moved and tables >= len(names) else []
    parts += [Text(f"No room for: {', '.join(names[tables:])}", style="dim")] if names[tables:] else []
    return Group(*parts)


def fitted(picture: Picture, found: Sequence[Notice], console: Console, rows: int = ROWS) -> Group:
    """The same with as much as the terminal is high for."""
    width, height = console.size
    for room, tables in ((rows, len(_TABLES)), *(one for one in _ROOMS if one[0] < rows)):
        group = draw(picture, found, width, room, tables)
        if len(console.render_lines(group, pad=False)) < height:
            break
    return group


def _heading(picture: Picture, found: Sequence[Notice]) -> Text:
    runs = ", ".join(dict.fromkeys(one.whose.run for one in picture.ranks))
    models = ", ".join(dict.fromkeys(one.whose.model for one in picture.ranks))
    count = len(picture.ranks)
    errors = sum(one.level is Level.ERROR for one in found)
    text = Text()
    if errors:
        text.append(" NOT WELL ", "bold white on red")
    elif not picture.ranks:
        text.append("NOTHING YET", "bold yellow")
    else:
        text.append("WELL", "bold green")
    if found and not errors and picture.ranks:
        text.append(", with warnings", "bold yellow")
    if picture.ranks:
        text.append(shown(f"  {models}, {count} rank{'s' if count > 1 else ''}, run {runs}"))
    return text.append(f"  {when_text(picture.now_s)[:19]} UTC", "dim")


def _notice(one: Notice) -> Text:
    style = "dim" if one.concern in _QUIET else _STYLES[one.level]
    text = Text()
    text.append(f" {one.concern.upper()} ", style)
    text.append(f" {shown(one.who)}:" if one.who else "")
    says = one.says
    if len(says) > _SAYS_MAX:  # what to do stands at the end: what is too long goes from the middle
        says = f"{says[: _SAYS_MAX // 2]} … {says[-_SAYS_MAX // 2 :]}"
    return text.append(f" {shown(says, 2 * _SAYS_MAX)}")
