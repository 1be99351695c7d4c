"""How old a sample is, counted in versions of what it was generated with."""

from __future__ import annotations

import pytest

from states import StalenessError, staleness

KNOWN = {"frozen-base": (3,), "adapter/A": (4, 7, 9), "adapter/B": (5, 8)}


@pytest.mark.parametrize(
    ("sample", "behind"),
    [
        ({}, 0),
        ({"adapter/A": 9}, 0),
        ({"adapter/A": 7}, 1),
        ({"frozen-base": 3, "adapter/A": 4, "adapter/B": 8}, 2),
        ({"adapter/A": 9, "adapter/B": 5}, 1),
        ({"adapter/A": 2}, 3),
    ],
)
def test_a_sample_is_as_old_as_what_is_oldest_in_it(sample: dict[str, int], behind: int) -> None:
    """Versions of the group are counted, not ids: other groups take ids in between."""
    assert staleness(sample, KNOWN) == behind


@pytest.mark.parametrize(
    ("group", "version", "newest", "why"),
    [
        ("adapter/A", 10, 9, "a sample cannot be newer than the trainer"),
        ("adapter/A", 8, 9, "the group never had that version"),
        ("adapter/Z", 1, None, "the trainer has no such group"),
    ],
)
def test_a_sample_of_a_version_that_was_never_given_out_is_an_error(
    group: str, version: int, newest: int | None, why: str
) -> None:
    """Negative staleness is no small staleness (FB-52)."""
    with pytest.raises(StalenessError, match=why) as raised:
        staleness({"frozen-base": 3, group: version}, KNOWN)

    assert (raised.value.group, raised.value.version, raised.value.newest) == (group, version, newest)
