"""Fields of a record of an untrusted log: of the kind that they are to be, or the record is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

NAME_MAX: Final = 300
"""Characters of a name that are kept."""
NUMBER_MAX: Final = 2**63
"""What no count of bytes or of anything else reaches."""


class NotOfARecordError(Exception):
    """A field is missing or of another kind. It does not leave this package."""


def text(told: object, length_max: int) -> str:
    """A text, cut off at that many characters."""
    if not isinstance(told, str):
        raise NotOfARecordError
    return told if len(told) <= length_max else told[: length_max - 1] + "…"


def count(told: object) -> int:
    """A whole number from 0."""
    if type(told) is not int or not 0 <= told < NUMBER_MAX:
        raise NotOfARecordError
    return told


def seconds(told: object) -> float:
    """A time that passed."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told < NUMBER_MAX:
        raise NotOfARecordError
    return float(told)


def mapping(told: object) -> Mapping[str, object]:
    """An object of JSON."""
    if not isinstance(told, dict):
        raise NotOfARecordError
    return told


def items(told: object) -> Sequence[object]:
    """An array of JSON."""
    if not isinstance(told, list):
        raise NotOfARecordError
    return told


def texts(told: object) -> tuple[str, ...]:
    """An array of names."""
    return tuple(text(one, NAME_MAX) for one in items(told))


def counts(told: object) -> dict[str, int]:
    """Name to a whole number from 0."""
    return {text(name, NAME_MAX): count(one) for name, one in mapping(told).items()}


def versions(told: object) -> dict[str, int | None]:
    """Content group to its version, None where it is gone."""
    return {text(group, NAME_MAX): None if one is None else count(one) for group, one in mapping(told).items()}
