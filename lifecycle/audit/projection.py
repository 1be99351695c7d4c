"""The canonical projection of a log: what ranks, or two runs of the same program, must have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from lifecycle.audit.read import Record

_COMPARED: Final = frozenset(
    {"lifecycle.began", "lifecycle.failed", "lifecycle.moved", "lifecycle.refused", "lifecycle.unchanged"}
)
_KEPT: Final = ("event", "transition", "trigger", "edge", "source", "target", "versions", "shared")


@dataclass(frozen=True, slots=True)
class Unlike:
    """Where two logs part.

    Attributes:
        index: which of the projected records, from 0.
        key: what differs in it, such as ``edge`` or ``versions.adapter/a``; empty where one log has no such record.
        one: the first log's value, None where it has none.
        other: the second log's.
    """

    index: int
    key: str
    one: object
    other: object

    def __str__(self) -> str:
        where = f"record {self.index}, {self.key}" if self.key else f"record {self.index}"
        return f"{where}: {self.one!r} and {self.other!r}"


def canonical(records: Iterable[Mapping[str, object]]) -> list[Record]:
    """What ranks, or two runs of the same program, have in common, record by record.

    Number of the transition, what was asked, the edge and the states, the shared facts and the
    versions; not times, bytes, local facts, hashes, restarts or notes. A projection's projection is itself.
    """
    return [_projected(record) for record in records if record.get("event") in _COMPARED]


def first_difference(one: Iterable[Mapping[str, object]], other: Iterable[Mapping[str, object]]) -> Unlike | None:
    """Where the canonical projections of two logs part first; None when they are equal.

    Args:
        one: the records of a log, or its projection.
        other: those to compare with.
    """
    for index, (left, right) in enumerate(zip_longest(canonical(one), canonical(other))):
        if left is None or right is None:
            return Unlike(index, "", left, right)
        found = _unlike(left, right)
        if found is not None:
            return Unlike(index, *found)
    return None


def _projected(record: Mapping[str, object]) -> Record:
    projected = {key: record[key] for key in _KEPT if key in record}
    facts = record.get("facts")
    if isinstance(facts, Mapping):
        projected["shared"] = facts.get("shared")
    return projected


def _unlike(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[str, object, object] | None:
    """The first key that differs, of mappings inside too, and both values."""
    if one == other:  # at once: they nearly always are
        return None
    for key in (*one, *(key for key in other if key not in one)):
        left, right = one.get(key), other.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found = _unlike(left, right)
            if found is not None:
                return f"{key}.{found[0]}", *found[1:]
        elif left != right or (key in one) != (key in other):
            return key, left, right
    return None
