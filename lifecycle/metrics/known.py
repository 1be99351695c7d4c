"""Every count that the transition table lets happen: 0 until it does, so that its first time is an increase."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lifecycle.metrics.families import FAILURES, REFUSALS, TRANSITIONS, UNCHANGED, Family
from states import TABLE, Row, RowKind, TrainerEvent

Key = tuple[Family, tuple[str, ...]]
"""A metric, and the values of its labels."""


def _of(row: Row) -> Iterator[Key]:
    event = row.event.value
    if row.kind is RowKind.SETTLED:
        yield UNCHANGED, (event,)
    if row.kind is RowKind.MOVE:
        yield TRANSITIONS, (event, row.edge)
    yield from ((REFUSALS, (event, guard.name)) for guard in row.guards)
    yield from ((FAILURES, (event, effect.value)) for effect in row.effects)


def _known() -> tuple[Key, ...]:
    rows = sorted(TABLE, key=lambda row: list(TrainerEvent).index(row.event))
    return tuple(dict.fromkeys(key for row in rows for key in _of(row)))


KNOWN: Final = _known()
"""In the order of the events. What is counted besides (calls that are no events) comes when it happens."""
