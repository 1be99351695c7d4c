"""The address index of the books, against a plain list."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from lifecycle.saver.books import Ranges
from lifecycle.saver.views import span_bytes

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=12)


@given(RANGES, st.integers(0, 12), st.integers(0, 70), st.integers(1, 9))
def test_ranges_find_and_overlap_as_a_plain_search_does(
    wanted: list[tuple[int, int]], removed: int, address: int, size_bytes: int
) -> None:
    """Whatever was added and removed."""
    ranges: Ranges[int] = Ranges()
    model: dict[int, int] = {}
    for start, size in wanted:
        taken = any(start < other + held and other < start + size for other, held in model.items())
        assert ranges.overlaps(start, size) is taken
        if not taken:
            ranges.add(start, size, start)
            model[start] = size
    for start in sorted(model)[:removed]:
        ranges.remove(start)
        del model[start]

    found = [start for start, size in model.items() if start <= address < start + size]
    taken = any(start < address + size_bytes and address < start + size for start, size in model.items())
    assert ranges.find(address) == (found[0] if found else None)
    assert ranges.overlaps(address, size_bytes) is taken


@given(RANGES, st.integers(0, 70))
def test_around_an_address_lies_its_range_or_the_gap_up_to_the_next(
    wanted: list[tuple[int, int]], address: int
) -> None:
    """Every address of the answer has the same answer."""
    ranges: Ranges[int] = Ranges()
    for start, size in wanted:
        if not ranges.overlaps(start, size):
            ranges.add(start, size, start)
    begin, end, value = ranges.around(address)

    assert begin <= address < end
    assert {ranges.find(one) for one in range(begin, min(end, 80))} == {value}
    assert begin == 0 or ranges.find(begin - 1) != value or value is None
    assert all(ranges.around(one) == (begin, end, value) for one in range(begin, min(end, 80)))


@given(st.integers(0, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_the_span_of_a_view_ends_behind_its_last_element(start: int, step: int, rows: int, columns: int) -> None:
    """Strided views span more bytes than they have."""
    whole = torch.arange(8 * 16).view(8, 16)
    view = whole[start : start + rows, : columns * step : step]
    last = (int(view.max()) - int(view.min()) + 1) * whole.element_size()

    assert span_bytes(view) == last
