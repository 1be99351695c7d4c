"""A machine as a picture: arrows from its table, on ways that were set by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from states.draw_shapes import Arrow, Box, Drawing, Line, Look, Part, Point, Route
from states.errors import TableError

Ends = tuple[str, str]
"""Where an arrow leaves, and where it leads."""
Labels = Mapping[Ends, Iterable[tuple[str, str]]]
"""What each arrow says: events, each with the name of its edge, which may be empty."""
START = ""
"""Where a machine begins, as an end of an arrow."""


def machine_drawing(
    title: str, size: Point, boxes: Mapping[str, Box], routes: Mapping[Ends, Route], labels: Labels
) -> Drawing:
    """The picture of a machine.

    Raises:
        TableError: an arrow has no way in the picture.
    """
    drawn = []
    for ends, edges in labels.items():
        route = route_of(ends, routes)
        drawn.append(Arrow(route.points, route.label.saying(lines_of(edges)), told(ends, edges)))
    return Drawing(title, " ".join(one.told for one in drawn), *size, tuple(boxes.values()), tuple(drawn))


def route_of(ends: Ends, routes: Mapping[Ends, Route]) -> Route:
    """The way of an arrow.

    Raises:
        TableError: the table has an arrow that has no place in the picture.
    """
    if ends not in routes:
        raise TableError(" --> ".join(ends), "the arrow has no way in the picture: give it one where the others are")
    return routes[ends]


def lines_of(edges: Iterable[tuple[str, str]]) -> list[Line]:
    """The label: each event, and below it the edges on which it is taken."""
    lines: list[Line] = []
    for event, same in groupby(edges, lambda one: one[0]):
        lines += [(Part(event, Look.EVENT),), *((Part(name, Look.EDGE),) for _, name in same if name)]
    return lines


def told(ends: Ends, edges: Iterable[tuple[str, str]]) -> str:
    """An arrow in one sentence."""
    events = ", ".join(f"{event} ({name})" if name else event for event, name in edges)
    return f"From {ends[0] or 'the start'} to {ends[1]}{f': {events}' if events else ''}."


def around(middle: int, edge: int, by: int) -> tuple[Point, ...]:
    """The way of an arrow that leads back to where it left: out of a level edge of the box and in again.

    Args:
        middle: x of the middle of the box.
        edge: y of its upper or lower edge.
        by: how far it goes, downwards or (less than 0) upwards.
    """
    return (middle - 20, edge), (middle - 20, edge + by), (middle + 20, edge + by), (middle + 20, edge)
