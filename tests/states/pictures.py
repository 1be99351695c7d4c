"""What lies on what in a drawing, from its geometry."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

from states.draw_shapes import Arrow, Drawing, Look, Rect, Text

SVG = "{http://www.w3.org/2000/svg}"
"""How names of elements begin in a file of its own."""
MARK = 7
"""Radius of the mark at the end of a refusal."""
TITLE_HEIGHT = 44
"""Of what a group says at its upper edge."""
NOTE_WIDTH = 6.8
"""Of a character there."""


def parsed(text: str) -> ET.Element:
    """What was written, read back."""
    return ET.fromstring(text)  # noqa: S314 - it is our own


def overlaps(drawing: Drawing) -> list[str]:
    """Each pair of things that lie on each other and should not, in words."""
    named = [*_texts(drawing), *_states(drawing), *_titles(drawing)]
    found = [f"{one} lies on {other}" for (one, a), (other, b) in combinations(named, 2) if a.meets(b)]
    for name, piece in _pieces(drawing):
        found += [f"the arrow {name} crosses {other}" for other, rect in named if piece.meets(rect)]
    whole = Rect(0, 0, drawing.width, drawing.height)
    return found + [f"{name} leaves the picture" for name, rect in named if not _within(rect, whole)]


def _within(rect: Rect, whole: Rect) -> bool:
    return (
        whole.left <= rect.left and rect.right <= whole.right and whole.top <= rect.top and rect.bottom <= whole.bottom
    )


def _said(text: Text) -> str:
    return "/".join("".join(part.text for part in line) for line in text.lines)


def _texts(drawing: Drawing) -> Iterator[tuple[str, Rect]]:
    for text in (*(arrow.label for arrow in drawing.arrows), *drawing.texts):
        if text.lines:
            yield f"the text {_said(text)!r} at {text.x}, {text.y}", text.rect


def _states(drawing: Drawing) -> Iterator[tuple[str, Rect]]:
    yield from ((f"the box {box.name}", box.rect) for box in drawing.boxes if box.look is not Look.GROUP)


def _titles(drawing: Drawing) -> Iterator[tuple[str, Rect]]:
    for box in drawing.boxes:
        if box.look is Look.GROUP:
            left, top = box.left + 14, box.top
            width = NOTE_WIDTH * max(len(box.name), len(box.note))
            yield f"the title of {box.name}", Rect(left, top, left + width, top + TITLE_HEIGHT)


def _pieces(drawing: Drawing) -> Iterator[tuple[str, Rect]]:
    """The pieces of each arrow, as wide as they are drawn, and the marks at the ends of refusals."""
    for arrow in drawing.arrows:
        name = _said(arrow.label) or arrow.told
        for (x0, y0), (x1, y1) in pairwise(arrow.points):
            across, along = (0.0, arrow.width / 2) if y0 == y1 else (arrow.width / 2, 0.0)
            # its own end lies on the edge of the box, and the line is no box: it is a little shorter there
            yield name, Rect(min(x0, x1) - across + 0.1, min(y0, y1) - along + 0.1, max(x0, x1) + across - 0.1,
                             max(y0, y1) + along - 0.1)  # fmt: skip
        if arrow.look is Look.REFUSED:
            x, y = arrow.points[-1]
            yield name, Rect(x - MARK, y - MARK, x + MARK, y + MARK)


def ends_of(drawing: Drawing, arrow: Arrow) -> tuple[set[str], set[str]]:
    """The names of the boxes on whose edge an arrow leaves, and on whose it ends."""
    return tuple(
        {box.name for box in drawing.boxes if _is_on_the_edge(box.rect, *point)}
        for point in (arrow.points[0], arrow.points[-1])
    )  # type: ignore[return-value]


def _is_on_the_edge(rect: Rect, x: int, y: int) -> bool:
    across = rect.left <= x <= rect.right and y in (rect.top, rect.bottom)
    return across or (rect.top <= y <= rect.bottom and x in (rect.left, rect.right))
