"""The pictures of the machines: they show the tables, whole, and nothing in them lies on anything else."""

from __future__ import annotations

import re

import pytest

from states import TABLE, RowKind
from states.adapters import ADAPTER_TABLE
from states.draw_adapters import adapters_drawing
from states.draw_colours import COLOURS
from states.draw_engine import engine_drawing, tag_drawing
from states.draw_machine import machine_drawing
from states.draw_shapes import Anchor, Box, Drawing, Look, Part, Rect, Text
from states.draw_svg import plain, svg
from states.draw_trainer import trainer_drawing
from states.engine_table import ENGINE_TABLE, TAG_TABLE
from states.errors import TableError
from states.names import RESTING
from tests.states.pictures import SVG, ends_of, overlaps, parsed

DRAWINGS = {
    "trainer": trainer_drawing(),
    "adapters": adapters_drawing(),
    "engine": engine_drawing(),
    "engine-tag": tag_drawing(),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_nothing_in_a_picture_lies_on_anything_else(name: str) -> None:
    """No text on a box, on a line or on another text, no line through a box, and all of it inside."""
    assert overlaps(DRAWINGS[name]) == []


def test_what_lies_on_something_is_found() -> None:
    """A text on a box, a line through a text, and what leaves the picture."""
    box = Box.around("b", (50, 50), 40)
    text = Text(50, 50, Anchor.MIDDLE).saying([(Part("over", Look.EVENT),)])
    drawing = machine_drawing("d", (60, 100), {"b": box}, {}, {})
    found = overlaps(Drawing("d", "", 60, 100, drawing.boxes, (), (text,)))

    assert found == [
        "the text 'over' at 50, 50 lies on the box b",
        "the text 'over' at 50, 50 leaves the picture",
        "the box b leaves the picture",
    ]


@pytest.mark.parametrize("name", DRAWINGS)
def test_an_arrow_leaves_and_ends_at_the_edge_of_the_boxes_that_it_names(name: str) -> None:
    """Where it leads is where it seems to lead."""
    for arrow in DRAWINGS[name].arrows:
        source, target = re.match(r"From (.+?) to (\S+?)[:.]", arrow.told).groups()  # type: ignore[union-attr]
        leaves, ends = ends_of(DRAWINGS[name], arrow)
        assert ("" if source == "the start" else source) in leaves, arrow.told
        assert target in ends, arrow.told


def _arrows(name: str) -> set[tuple[str, str, str, str]]:
    """(source, target, event, edge) of every line of every label."""
    found = set()
    for arrow in DRAWINGS[name].arrows:
        source, target = re.match(r"From (.+?) to (\S+?)[:.]", arrow.told).groups()  # type: ignore[union-attr]
        event = ""
        for line in arrow.label.lines:
            (part,) = line
            event, edge = (part.text, "") if part.look is Look.EVENT else (event, part.text)
            found.add((source, target, event, edge))
    return found


def test_the_picture_of_the_trainer_has_the_moves_of_the_table_and_no_others() -> None:
    """The box opened. A line of an event alone is the head of its edges."""
    drawn = {
        (one, event, edge, other)
        for source, target, event, edge in _arrows("trainer")
        if edge
        for one in (RESTING if source == "resting" else (source,))
        for other in (RESTING if target == "resting" else (target,))
    }

    assert drawn == {(row.source, row.event, row.edge, row.target) for row in TABLE if row.kind is RowKind.MOVE}


def test_the_picture_of_an_adapter_has_the_moves_of_the_table_and_no_others() -> None:
    """And says which of them a frozen one does not take."""
    drawn = _arrows("adapters")

    assert {(source, event, target) for source, target, event, _ in drawn} == {
        (row.source or "the start", row.event, row.target) for row in ADAPTER_TABLE
    }
    trainable = {(source, event) for source, _, event, edge in drawn if edge == "if trainable"}
    assert trainable == {(row.source, row.event) for row in ADAPTER_TABLE if row.needs_trainable}


def test_the_picture_of_an_engine_has_the_moves_of_the_table_and_no_others() -> None:
    """It begins lost, and what is settled is left out."""
    assert {(source, event, target) for source, target, event, _ in _arrows("engine")} == {
        (row.source, row.event, row.target) for row in ENGINE_TABLE if not row.settled
    }
    assert "From the start to lost." in DRAWINGS["engine"].description


def test_the_picture_of_a_tag_has_the_moves_of_the_table_and_no_others() -> None:
    """With the kind of tag where it makes a difference."""
    mirror = {True: "with a mirror", False: "without a mirror", None: ""}
    drawn = _arrows("engine-tag")

    assert {(row.source, row.target, row.event, mirror[row.mirrored]) for row in TAG_TABLE} <= drawn
    assert {one[:3] for one in drawn} == {(row.source, row.target, row.event) for row in TAG_TABLE}


def test_an_arrow_of_the_table_that_has_no_way_in_the_picture_is_an_error() -> None:
    """It names the arrow, and is not left out."""
    with pytest.raises(TableError, match="awake --> asleep: the arrow has no way"):
        machine_drawing("d", (10, 10), {}, {}, {("awake", "asleep"): [("sleep", "")]})


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_can_be_read_aloud(name: str) -> None:
    """It is one image with a title, and a description that has every arrow; each arrow says what it is."""
    root = parsed(svg(DRAWINGS[name]))

    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == DRAWINGS[name].title
    description = root.findtext(f"{SVG}desc") or ""
    titles = [one.text or "" for one in root.iterfind(f"{SVG}g/{SVG}title")]
    assert titles == [one.told for one in DRAWINGS[name].arrows]
    assert [one for one in titles if one not in description] == []


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_file_brings_all_that_it_needs(name: str) -> None:
    """Nothing is loaded, and every class has a rule for who likes it dark."""
    text = svg(DRAWINGS[name])
    classes = {one for found in re.findall(r'class="([^"]+)"', text) for one in found.split()}

    assert "prefers-color-scheme: dark" in text
    assert [one for one in classes if f".{one}{{" not in text] == []
    assert re.findall(r"href|url\(|<script|@import", text) == []


def test_on_a_page_a_picture_takes_the_colours_of_the_page() -> None:
    """It brings no style sheet, no class and no id that could meet another one there."""
    text = svg(DRAWINGS["trainer"], standalone=False)

    assert re.findall(r"<style|class=|style=| id=|xmlns", text) == []
    assert 'fill="currentColor"' in text
    assert "var(--diagram-activity, " in text


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(scheme: str) -> None:
    """By 4.5 to 1, as the guidelines for accessible content ask."""
    colours = {role: getattr(one, scheme) for role, one in COLOURS.items()}
    grounds = {"activity": ("activity-node",), "fault": ("fault-node",), "ink": ("node", "group", "ground")}

    for role in ("ink", "quiet", "count", "failed", "refused", "activity", "fault"):
        for ground in grounds.get(role, ("group", "ground")):
            assert _contrast(colours[role], colours[ground]) >= 4.5, (role, ground)


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_box_is_drawn_where_it_lies(name: str) -> None:
    """In its order, a beginning as a circle; the first rectangle is the ground of the file."""
    root = parsed(svg(DRAWINGS[name]))
    drawn = [[int(one.get(key, "")) for key in ("x", "y", "width", "height")] for one in root.findall(f"{SVG}rect")[1:]]
    begins = [[int(one.get(key, "")) for key in ("cx", "cy", "r")] for one in root.iterfind(f"{SVG}circle")]
    boxes = DRAWINGS[name].boxes

    assert drawn == [[one.left, one.top, one.width, one.height] for one in boxes if one.look is not Look.START]
    assert begins == [[one.left + 9, one.top + 9, 9] for one in boxes if one.look is Look.START]


def test_what_says_nothing_is_not_written() -> None:
    """Such as the note of a group that has none: a reader would stop at an empty text."""
    group = Box("all", 0, 0, 100, 80, Look.GROUP)

    assert [one.text for one in parsed(svg(Drawing("d", "", 100, 80, (group,), ()))).iterfind(f"{SVG}text")] == ["all"]


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_head_of_an_arrow_ends_where_it_leads_and_lies_on_its_last_piece(name: str) -> None:
    """Upwards, downwards, to the left and to the right; the line ends in the middle of its base."""
    root = parsed(svg(DRAWINGS[name]))
    for arrow, drawn in zip(DRAWINGS[name].arrows, root.iterfind(f"{SVG}g"), strict=True):
        line, head = ([*map(_point, _PAIR.findall(one.get("d", "")))] for one in drawn.iterfind(f"{SVG}path"))
        tip, one, other = head
        (x0, y0), (x1, y1) = arrow.points[-2:]
        length = 7 + arrow.width
        middle = (one[0] + other[0]) / 2, (one[1] + other[1]) / 2

        assert tip == (x1, y1)
        assert middle == line[-1] == (x1 - length * _sign(x1 - x0), y1 - length * _sign(y1 - y0))
        assert abs(one[0] - other[0]) + abs(one[1] - other[1]) == pytest.approx(length, abs=0.2)


_PAIR = re.compile(r"(-?[0-9.]+) (-?[0-9.]+)")


def _point(pair: tuple[str, str]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def _sign(value: int) -> int:
    return 0 if not value else value // abs(value)


@pytest.mark.parametrize(("anchor", "left"), [(Anchor.START, 100.0), (Anchor.MIDDLE, 88.9), (Anchor.END, 77.8)])
@pytest.mark.parametrize(("grows_up", "top"), [(False, 50), (True, 20)])
def test_the_room_of_a_text_is_that_of_its_longest_line_and_of_all_lines(
    anchor: Anchor,
    left: float,
    grows_up: bool,  # noqa: FBT001 - drawn
    top: int,
) -> None:
    """Else nothing would be found to lie on it."""
    text = Text(100, 50, anchor, grows_up).saying([(Part("a", Look.EVENT), Part("bc", Look.COUNT)), ()])

    assert text.rect == pytest.approx((left, top, left + 22.2, top + 30))


def test_a_text_cannot_leave_its_element() -> None:
    """Markup is escaped; characters that XML does not have, or that control a terminal, are replaced."""
    nasty = "</text><script>\x1b[31m\x00\ud800"
    text = Text(0, 0).saying([(Part(nasty, Look.EVENT),)])
    box = Box(nasty, 0, 0, 100, 40)
    drawing = Drawing(nasty, nasty, 100, 40, (box,), (), (text,))
    told = svg(drawing)

    assert parsed(told).findtext(f"{SVG}title") == plain(nasty)
    assert "<script" not in told
    assert plain("a\x1bb\x00c\x9d") == "a�b�c�"


def test_a_rectangle_meets_what_has_a_point_in_common_with_it() -> None:
    """Edges that touch do not count."""
    assert Rect(0, 0, 10, 10).meets(Rect(9, 9, 20, 20))
    assert not Rect(0, 0, 10, 10).meets(Rect(10, 0, 20, 10))
    assert not Rect(10, 0, 20, 10).meets(Rect(0, 0, 10, 10))
    assert not Rect(0, 10, 10, 20).meets(Rect(0, 0, 10, 10))
    assert not Rect(0, 0, 10, 10).meets(Rect(0, 10, 10, 20))
