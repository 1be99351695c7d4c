"""Buckets of time whose width doubles."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle.report.buckets import SMALLEST_S, Buckets


def join(earlier: dict[str, float], later: dict[str, float]) -> None:
    """Add the amounts."""
    for name, amount in later.items():
        earlier[name] += amount


def buckets(most: int = 8) -> Buckets[dict[str, float]]:
    """Of amounts."""
    return Buckets(most, lambda: defaultdict(float), join)


SPANS = st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 100)), min_size=1, max_size=20)


@settings(deadline=None)
@given(SPANS)
def test_no_time_is_lost_and_there_is_a_bound(spans: list[tuple[float, float]]) -> None:
    """However long the run is."""
    held = buckets()
    for began_s, lasted_s in spans:
        for cell, part_s in held.over(began_s, began_s + lasted_s):
            cell["awake"] += part_s

    cells = held.cells()

    spent_s = sum(cell["awake"] for cell in cells.values())
    assert abs(spent_s - sum(lasted_s for _, lasted_s in spans)) < 1e-6
    assert not cells or max(cells) - min(cells) < 8
    assert all(cell["awake"] <= held.width_s * len(spans) + 1e-6 for cell in cells.values())


def test_a_short_run_is_drawn_in_the_smallest_buckets() -> None:
    """Until it is longer than there are of them; then each is twice as wide."""
    held = buckets(4)
    for at in range(4):
        held.at(at * SMALLEST_S)["x"] += 1
    narrow_s = held.width_s
    held.at(4 * SMALLEST_S)["x"] += 1

    assert (narrow_s, held.width_s) == (SMALLEST_S, 2 * SMALLEST_S)
    assert {at: cell["x"] for at, cell in held.cells().items()} == {0: 2, 1: 2, 2: 1}


def test_buckets_are_widened_to_those_of_another_lane() -> None:
    """Numbers of buckets of the same width mean the same time."""
    one, other = buckets(), buckets()
    one.at(1000.0)["x"] += 1
    other.at(10.0)["x"] += 1
    other.at(1000.0)["x"] += 1

    one.widen(other.width_s)

    assert one.width_s == other.width_s
    assert max(one.cells()) == max(other.cells())
