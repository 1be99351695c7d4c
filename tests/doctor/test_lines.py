"""Which lines count against the exit code."""

from __future__ import annotations

import pytest

from lifecycle.doctor.lines import Line, Status, wanting
from lifecycle.errors import ConfigError

LINES = [
    Line("ray", Status.MISSING, "not installed", "install it"),
    Line("tms", Status.OK, "0.0.10"),
    Line("tms/hook", Status.BROKEN, "it does not load", "mend it"),
    Line("tmsx", Status.BROKEN, "another"),
    Line("shm", Status.WARNING, "little room", "more"),
]


@pytest.mark.parametrize(
    ("required", "wanted"),
    [
        ([], []),
        (["shm"], []),
        (["ray"], ["ray"]),
        (["tms"], ["tms/hook"]),
        (["tms/hook", "ray"], ["ray", "tms/hook"]),
    ],
)
def test_what_is_required_is_wanting_if_it_is_missing_or_broken(required: list[str], wanted: list[str]) -> None:
    """A name stands for what is below it; a warning can be used; what nobody requires does not count."""
    assert [line.check for line in wanting(LINES, required)] == wanted


def test_a_check_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    """A spelling mistake must not pass for a requirement that is met."""
    with pytest.raises(ConfigError, match=r"no check 'rai'; the checks are: ray, shm, tms, tms/hook, tmsx"):
        wanting(LINES, ["ray", "rai"])


def test_a_line_as_json_has_four_texts() -> None:
    """In this order."""
    assert list(LINES[0].told().items()) == [
        ("check", "ray"),
        ("status", "missing"),
        ("found", "not installed"),
        ("todo", "install it"),
    ]
