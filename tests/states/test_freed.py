"""Whether a pause freed what it should, and whether residue grows: pure, for any numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from states.freed import RESIDUE_MARGIN_BYTES, freed_enough, residue_is_steady, tolerance_bytes

MIB = 2**20
TAGS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 2**40), min_size=1, max_size=6)


@given(expected=TAGS, before=st.integers(0, 2**42))
def test_a_pause_that_frees_nothing_is_never_enough(expected: dict[str, int], before: int) -> None:
    """Whatever the sizes: also of a single byte something has to go (FB-27)."""
    assert not freed_enough(expected, before, before)
    assert not freed_enough(expected, before, before + 1)


@given(expected=TAGS, before=st.integers(0, 2**42), more=st.integers(0, 2**30))
def test_a_pause_that_frees_what_was_expected_or_more_is_enough(
    expected: dict[str, int], before: int, more: int
) -> None:
    """The device maps in granules: it may free more than the books say (FB-27)."""
    after = before - sum(expected.values()) - more

    assert freed_enough(expected, before, after)


@given(expected=TAGS)
def test_what_may_be_missing_is_at_most_half_of_each_tag(expected: dict[str, int]) -> None:
    """And of a large one two in a hundred: the first byte beyond that is an error."""
    spare, wanted = tolerance_bytes(expected), sum(expected.values())

    assert spare <= wanted // 2
    assert freed_enough(expected, wanted, spare)
    assert not freed_enough(expected, wanted, spare + 1)
    assert tolerance_bytes({"base": 100 * 2**30}) == 2 * 2**30
    assert tolerance_bytes({"adapters": 50 * MIB}) == 2 * MIB


@pytest.mark.parametrize(("before", "after"), [(None, 5), (5, None), (None, None)])
def test_what_cannot_be_measured_passes(before: int | None, after: int | None) -> None:
    """A device that cannot be asked proves nothing, and the verdict says so."""
    verdict = freed_enough({"base": 10 * MIB}, before, after)

    assert verdict
    assert "cannot be asked" in verdict.because


def test_the_verdict_shows_what_was_expected_and_what_was_measured() -> None:
    """With both numbers, and what to do (FB-27, scenario 2)."""
    verdict = freed_enough({"base": 10 * MIB}, 12 * MIB, 11 * MIB)

    assert not verdict
    assert f"{10 * MIB} bytes were to be freed, {MIB} were" in verdict.because
    assert "configure_subprocess" in verdict.remedy


def test_nothing_paused_frees_nothing_and_that_is_right() -> None:
    """Everything was paused ahead of time."""
    assert freed_enough({}, 7, 7)


@pytest.mark.parametrize(
    ("readings", "steady"),
    [
        ([], True),
        ([MIB], True),
        ([MIB, 2 * MIB], True),
        ([MIB, 2 * MIB, 3 * MIB], False),
        ([9 * MIB, MIB, 2 * MIB, 3 * MIB], False),
        ([MIB, 2 * MIB, 3 * MIB, 3 * MIB], True),
        ([MIB, 3 * MIB, 2 * MIB, 4 * MIB], True),
        ([0, 200_000, 400_000], True),
        ([0, 200_000, 400_000, 600_000], False),
    ],
)
def test_growth_is_three_readings_in_a_row_and_more_than_a_margin(readings: list[int], steady: bool) -> None:  # noqa: FBT001
    """1 MB more in each cycle is flagged by the third; slow growth as soon as it adds up (FB-24, scenario 3)."""
    assert bool(residue_is_steady(readings)) is steady


@given(reading=st.integers(-(2**40), 2**40), count=st.integers(0, 30))
def test_a_residue_that_stays_the_same_is_never_flagged(reading: int, count: int) -> None:
    """The runtime of the device takes memory once."""
    assert residue_is_steady([reading] * count)


@given(readings=st.lists(st.integers(0, RESIDUE_MARGIN_BYTES)))
def test_growth_within_the_margin_is_never_flagged(readings: list[int]) -> None:
    """Fragments come and go."""
    assert residue_is_steady(readings)


def test_the_flag_says_by_how_much_it_grew() -> None:
    """In bytes, over how many cycles."""
    verdict = residue_is_steady([5, MIB, 2 * MIB, 3 * MIB])

    assert f"{3 * MIB} bytes stay in use" in verdict.because
    assert f"{3 * MIB - 5} more than 3 cycles before" in verdict.because
