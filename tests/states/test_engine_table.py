"""Each error that the tables of an engine can have is found on import, and the message names the row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from states import TableError
from states.engine_guards import it_admits_none
from states.engine_memory import EngineEvent, EngineState, TagState
from states.engine_table import ENGINE_TABLE, TAG_TABLE, EngineRow, TagRow, check_engine_tables

MOVE = next(row for row in ENGINE_TABLE if row.event is EngineEvent.PAUSE)
SETTLED = next(row for row in ENGINE_TABLE if row.settled)
PROBE = next(row for row in ENGINE_TABLE if row.event is EngineEvent.PROBE)


def _replaced(old: EngineRow, new: EngineRow) -> tuple[EngineRow, ...]:
    return tuple(new if row is old else row for row in ENGINE_TABLE)


def test_the_tables_of_the_library_pass() -> None:
    """The control for every test below."""
    check_engine_tables(ENGINE_TABLE, TAG_TABLE)


@pytest.mark.parametrize(
    "twin",
    [
        replace(MOVE, target=EngineState.LOST),
        replace(MOVE, when=(it_admits_none,)),
        replace(PROBE),
        replace(PROBE, when=()),
    ],
    ids=["no selectors", "one selector", "the same selectors", "selectors taken away"],
)
def test_two_rows_that_must_hold_together_are_found(twin: EngineRow) -> None:
    """Of rows that share state and event each needs selectors of its own."""
    with pytest.raises(TableError, match="whenever another row") as caught:
        check_engine_tables((*ENGINE_TABLE, twin), TAG_TABLE)

    assert caught.value.row == twin.name


@pytest.mark.parametrize("new", [replace(SETTLED, guards=(it_admits_none,)), replace(SETTLED, target=EngineState.LOST)])
def test_a_settled_row_that_asks_or_moves_is_found(new: EngineRow) -> None:
    """What holds already needs nothing and goes nowhere."""
    with pytest.raises(TableError, match="neither asks nor moves") as caught:
        check_engine_tables(_replaced(SETTLED, new), TAG_TABLE)

    assert caught.value.row == new.name


@pytest.mark.parametrize("event", EngineEvent)
def test_an_event_without_a_row_is_found(event: EngineEvent) -> None:
    """It could never be asked."""
    with pytest.raises(TableError, match="no row takes the event") as caught:
        check_engine_tables(tuple(row for row in ENGINE_TABLE if row.event is not event), TAG_TABLE)

    assert caught.value.row == event


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("state", EngineState)
def test_a_state_that_is_not_reached_or_not_left_is_found(state: EngineState, end: str) -> None:
    """Every move into it, or out of it, is made to stay where it is."""
    other = "target" if end == "source" else "source"
    rows = tuple(
        replace(row, **{other: state}) if getattr(row, end) is state else row  # type: ignore[arg-type]
        for row in ENGINE_TABLE
    )
    kept = {(row.source, row.event, row.when): row for row in rows}  # the rows that now coincide, once

    with pytest.raises(TableError, match="not reached, or not left") as caught:
        check_engine_tables(tuple(kept.values()), TAG_TABLE)

    assert caught.value.row == state


@pytest.mark.parametrize("twin", [TAG_TABLE[0], replace(TAG_TABLE[0], mirrored=None), replace(TAG_TABLE[-1])])
def test_a_move_of_a_tag_that_stands_twice_is_found(twin: TagRow) -> None:
    """Also if one of the two is for every tag and the other for those with a mirror."""
    with pytest.raises(TableError, match="stands twice") as caught:
        check_engine_tables(ENGINE_TABLE, (*TAG_TABLE, twin))

    assert caught.value.row == twin.name


def test_a_move_of_a_tag_that_goes_nowhere_is_found() -> None:
    """Leaving a tag as it is takes no row."""
    nowhere = TagRow(TagState.RESIDENT, EngineEvent.RESUME, TagState.RESIDENT)
    with pytest.raises(TableError, match="needs no row") as caught:
        check_engine_tables(ENGINE_TABLE, (*TAG_TABLE, nowhere))

    assert caught.value.row == nowhere.name
