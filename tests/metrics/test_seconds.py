"""Durations in buckets."""

from __future__ import annotations

import pytest

from lifecycle.metrics.seconds import BOUNDS_S, Seconds


@pytest.mark.parametrize(("duration_s", "bucket"), [(0.0, 0), (0.001, 0), (0.0011, 1), (300.0, 11), (301.0, 12)])
def test_a_duration_is_in_the_first_bucket_that_holds_it(duration_s: float, bucket: int) -> None:
    """A bound belongs to its bucket; what is longer than all of them is in the last."""
    counts = Seconds().plus(duration_s).counts

    assert [at for at, count in enumerate(counts) if count] == [bucket]
    assert len(counts) == len(BOUNDS_S) + 1


def test_the_sum_is_of_all_and_the_last_is_the_last() -> None:
    """And what was read before does not change."""
    first = Seconds().plus(2.0)
    second = first.plus(0.5)

    assert (second.sum_s, second.last_s, sum(second.counts)) == (2.5, 0.5, 2)
    assert (first.sum_s, first.last_s, sum(first.counts)) == (2.0, 2.0, 1)


def test_bounds_grow() -> None:
    """Or a bucket would be of nothing."""
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
