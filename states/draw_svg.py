"""Writes a drawing as SVG: the same bytes on every machine, in light and in dark, and without anything from elsewhere.

A file of its own brings both sets of colours, and its own ground. What is put into an HTML page takes the colours of
the page (``currentColor``, and variables ``--diagram-ROLE``) and brings no style sheet, so that a strict content
security policy lets it through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from states.draw_colours import dark_rules, paint
from states.draw_shapes import FONT_SIZE, LINE_HEIGHT, Arrow, Box, Drawing, Look, Point, Text

_CORNER: Final = 10
_FONT: Final = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_NO_XML: Final = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not have, or that control a terminal."""

_BOX: Final[Mapping[Look, tuple[str, str]]] = {
    Look.STATE: ("node", "ink"),
    Look.ACTIVITY: ("activity-node", "activity"),
    Look.FAULT: ("fault-node", "fault"),
    Look.GROUP: ("group", "rim"),
}
_TEXT: Final[Mapping[Look, str]] = {
    Look.STATE: "ink",
    Look.ACTIVITY: "activity",
    Look.FAULT: "fault",
    Look.EVENT: "ink",
    Look.EDGE: "quiet",
    Look.NOTE: "quiet",
    Look.COUNT: "count",
    Look.FAILED: "failed",
    Look.REFUSED: "refused",
}


def svg(drawing: Drawing, *, standalone: bool = True) -> str:
    """The drawing as one ``<svg>`` element.

    Args:
        drawing: what to draw.
        standalone: a file of its own; else it is to be put into an HTML page and takes its colours.
    """
    writer = _Writer(standalone=standalone)
    root = writer.begin(drawing)
    for box in drawing.boxes:
        writer.box(root, box)
    for arrow in drawing.arrows:
        writer.arrow(root, arrow)
    for text in (*(arrow.label for arrow in drawing.arrows), *drawing.texts):
        writer.text(root, text)
    for one in root:  # a line each; white space inside a text would be drawn
        one.tail = "\n"
    root.text = "\n"
    return ET.tostring(root, encoding="unicode") + "\n"


def plain(text: str) -> str:
    """The text without characters that XML does not have; a text of a log may hold any."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


class _Writer:
    """Elements with the colours of a file or of a page."""

    def __init__(self, *, standalone: bool) -> None:
        self._standalone = standalone

    def begin(self, drawing: Drawing) -> ET.Element:
        size = f"0 0 {drawing.width} {drawing.height}"
        root = ET.Element("svg", {"viewBox": size, "role": "img", "font-family": _FONT, "font-size": str(FONT_SIZE)})
        ET.SubElement(root, "title").text = plain(drawing.title)
        ET.SubElement(root, "desc").text = plain(drawing.description)
        if self._standalone:
            whole = {"width": str(drawing.width), "height": str(drawing.height)}
            root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", **whole}
            ET.SubElement(root, "style").text = dark_rules()
            ET.SubElement(root, "rect", {**whole, "rx": "12", **self._painted(fill="ground")})
        return root

    def _painted(self, **roles: str) -> dict[str, str]:
        """Attributes by what is painted with which role; classes are put together."""
        painted: dict[str, str] = {}
        for what, role in roles.items():
            one = paint(what, role, standalone=self._standalone)
            classes = [single["class"] for single in (painted, one) if "class" in single]
            painted |= one | ({"class": " ".join(classes)} if classes else {})
        return painted

    def box(self, root: ET.Element, box: Box) -> None:
        middle_x, middle_y = box.left + box.width // 2, box.top + box.height // 2
        if box.look is Look.START:
            circle = {"cx": str(middle_x), "cy": str(middle_y), "r": str(box.width // 2)}
            ET.SubElement(root, "circle", circle | self._painted(fill="ink"))
            return
        fill, stroke = _BOX[box.look]
        is_group = box.look is Look.GROUP
        place = {"x": box.left, "y": box.top, "width": box.width, "height": box.height, "rx": 14 if is_group else 9}
        shape = {name: str(one) for name, one in place.items()} | {"stroke-width": "1" if is_group else "1.5"}
        ET.SubElement(root, "rect", shape | self._painted(fill=fill, stroke=stroke))
        if is_group:
            self._written(root, (box.left + 14, box.top + 23), box.name, Look.NOTE, {"font-weight": "600"})
            self._written(root, (box.left + 14, box.top + 39), box.note, Look.NOTE, {"font-size": "11"})
        else:
            centred = {"font-size": "13", "font-weight": "600", "text-anchor": "middle"}
            self._written(root, (middle_x, middle_y + 4), box.name, box.look, centred)

    def _written(self, root: ET.Element, at: Point, text: str, look: Look, more: dict[str, str]) -> None:
        if text:
            place = {"x": str(at[0]), "y": str(at[1])}
            ET.SubElement(root, "text", place | more | self._painted(fill=_TEXT[look])).text = plain(text)

    def arrow(self, root: ET.Element, arrow: Arrow) -> None:
        refuses = arrow.look is Look.REFUSED
        role = "refused" if refuses else "line"
        group = ET.SubElement(root, "g", {"opacity": "0.35"} if arrow.faint else {})
        ET.SubElement(group, "title").text = plain(arrow.told)
        head = 7 + arrow.width
        points = arrow.points if refuses else (*arrow.points[:-1], _short_of(arrow.points[-2], arrow.points[-1], head))
        line = {"d": _rounded(points), "fill": "none", "stroke-width": _number(arrow.width)}
        line |= {"stroke-dasharray": "4 3"} if refuses else {}
        ET.SubElement(group, "path", line | self._painted(stroke=role))
        if refuses:
            self._cross(group, arrow.points[-1])
        else:
            corners = _head(arrow.points[-2], arrow.points[-1], head)
            ET.SubElement(group, "path", {"d": corners} | self._painted(fill=role))

    def _cross(self, group: ET.Element, at: Point) -> None:
        x, y = at
        round_ = {"cx": str(x), "cy": str(y), "r": "7", "stroke-width": "1.5"}
        ET.SubElement(group, "circle", round_ | self._painted(fill="fault-node", stroke="refused"))
        cross = f"M{x - 3} {y - 3}L{x + 3} {y + 3}M{x - 3} {y + 3}L{x + 3} {y - 3}"
        ET.SubElement(group, "path", {"d": cross, "stroke-width": "1.5"} | self._painted(stroke="refused"))

    def text(self, root: ET.Element, text: Text) -> None:
        for index, line in enumerate(text.lines):
            y = text.top + LINE_HEIGHT * index + FONT_SIZE - 1
            place = {"x": str(text.x), "y": str(y), "text-anchor": text.anchor.value}
            element = ET.SubElement(root, "text", place | {"xml:space": "preserve"})
            for part in line:
                weight = {"font-weight": "600"} if part.look is Look.EVENT else {}
                faint = {"opacity": "0.65"} if part.faint else {}
                painted = weight | faint | self._painted(fill=_TEXT[part.look])
                ET.SubElement(element, "tspan", painted).text = plain(part.text)


def _short_of(before: Point, end: Point, by: float) -> tuple[float, float]:
    """A point on the last piece, so far before its end."""
    (x0, y0), (x1, y1) = before, end
    return x1 - by * _sign(x1 - x0), y1 - by * _sign(y1 - y0)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _head(before: Point, end: Point, length: float) -> str:
    """The triangle at the end of an arrow."""
    (x, y), (back_x, back_y) = end, _short_of(before, end, length)
    half = length * 0.5
    across_x, across_y = (0.0, half) if back_y == y else (half, 0.0)
    corners = ((x, y), (back_x + across_x, back_y + across_y), (back_x - across_x, back_y - across_y))
    return "M" + "L".join(_pair(*one) for one in corners) + "Z"


def _rounded(points: Sequence[tuple[float, float]]) -> str:
    """A path along the points with round corners."""
    path = "M" + _pair(*points[0])
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_CORNER, _distance(before, corner) / 2, _distance(corner, after) / 2)
        path += (
            f"L{_pair(*_towards(corner, before, radius))}Q{_pair(*corner)} {_pair(*_towards(corner, after, radius))}"
        )
    return path + "L" + _pair(*points[-1])


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])  # pieces are upright or level


def _towards(corner: tuple[float, float], other: tuple[float, float], by: float) -> tuple[float, float]:
    return corner[0] + by * _sign(other[0] - corner[0]), corner[1] + by * _sign(other[1] - corner[1])


def _pair(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    """A coordinate with one place behind the point, and none where it is whole."""
    return f"{value:.1f}".removesuffix(".0")
