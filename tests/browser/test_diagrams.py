"""The pictures in a browser, with the fonts that it has: what the geometry promises holds on the screen."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from states.draw_adapters import adapters_drawing
from states.draw_engine import engine_drawing, tag_drawing
from states.draw_run import run_drawing
from states.draw_shapes import Drawing, Look, Rect
from states.draw_svg import svg
from states.draw_trainer import trainer_drawing
from tests.browser.chromium import Chromium, Tab
from tests.states.test_draw_run import EVERYTHING

DRAWINGS = {
    "adapters": adapters_drawing(),
    "engine": engine_drawing(),
    "engine-tag": tag_drawing(),
    "run": run_drawing(EVERYTHING),
    "trainer": trainer_drawing(),
}
TEXTS = """Array.from(document.querySelectorAll("text")).map((one) => {
  const box = one.getBBox();
  return [one.textContent, box.x, box.y, box.x + box.width, box.y + box.height];
})"""
GROUNDS = """getComputedStyle(document.querySelector("svg > rect")).fill"""
LEADING = 2.0
"""Boxes of texts have some room above and below the letters, in which lines of one label may meet."""


def texts(tab: Tab) -> list[tuple[str, Rect]]:
    """What is written, and where it really is."""
    return [
        (text, Rect(left, top + LEADING, right, bottom - LEADING))
        for text, left, top, right, bottom in tab.value(TEXTS)
    ]


def states_of(drawing: Drawing) -> list[tuple[str, Rect]]:
    """The boxes of states."""
    return [(box.name, box.rect) for box in drawing.boxes if box.look is not Look.GROUP]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_legible_with_the_fonts_of_a_browser(
    name: str, chromium: Chromium, screenshots: Path, tmp_path: Path, *, dark: bool
) -> None:
    """No text meets another one or a box that is not its own, none leaves the picture, and nothing else is loaded."""
    drawing = DRAWINGS[name]
    path = tmp_path / f"{name}.svg"
    path.write_text(svg(drawing), encoding="utf-8")
    tab = Tab(chromium, drawing.width, drawing.height, dark=dark)
    try:
        tab.open(path)
        found = texts(tab)
        assert [(a, b) for (a, one), (b, other) in combinations(found, 2) if one.meets(other)] == []
        boxes = states_of(drawing)
        assert [(a, b) for a, one in found for b, box in boxes if a != b and one.meets(box)] == []
        assert [a for a, one in found if one.left < 0 or one.right > drawing.width] == []
        assert [
            a for a, one in found for b, box in boxes if a == b and one.right - one.left > box[2] - box[0] - 8
        ] == []
        assert tab.value(GROUNDS) == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
        assert len(tab.events("Network.requestWillBeSent")) == 1
        tab.picture(screenshots / f"diagram-{name}-{'dark' if dark else 'light'}.png")
    finally:
        tab.close()
