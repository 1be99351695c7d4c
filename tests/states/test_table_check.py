"""Each error that a table can have is found on import, and the message names the row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from states import RESTING, REVERSAL, TABLE, Effect, Row, RowKind, TableError, TrainerEvent, TrainerState
from states.check import check_table
from states.guards import no_step_in_flight

SLEEPS = next(row for row in TABLE if row.edge == "quiesces")
SETTLED = next(row for row in TABLE if row.kind is RowKind.SETTLED)
REFUSING = next(row for row in TABLE if row.kind is RowKind.REFUSING)


def _replaced(old: Row, new: Row) -> tuple[Row, ...]:
    return tuple(new if row is old else row for row in TABLE)


def test_the_table_of_the_library_passes() -> None:
    """The control for every test below."""
    check_table(TABLE)


def test_every_effect_says_how_it_is_taken_back() -> None:
    """Undoable, compensated or final: an effect without an entry could not be ordered."""
    assert REVERSAL.keys() == set(Effect)


def test_every_effect_stands_in_a_row() -> None:
    """An effect that no row names would never run."""
    assert {effect for row in TABLE for effect in row.effects} == set(Effect)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (SLEEPS, replace(SLEEPS, edge=""), "no name"),
        (SLEEPS, replace(SLEEPS, effects=(Effect.SEND_WEIGHTS, Effect.CLEAR_CACHES)), "undoable, compensated, final"),
        (SETTLED, replace(SETTLED, effects=(Effect.CLEAR_CACHES,)), "neither acts nor moves"),
        (SETTLED, replace(SETTLED, target=TrainerState.FAULTED), "neither acts nor moves"),
        (REFUSING, replace(REFUSING, effects=(Effect.CLEAR_CACHES,)), "neither acts nor moves"),
        (REFUSING, replace(REFUSING, remedy=""), "what to do instead"),
    ],
)
def test_a_row_that_is_wrong_in_itself_is_found(old: Row, new: Row, why: str) -> None:
    """No name, effects out of order, a no-op that acts or moves, a refusal that does not help."""
    with pytest.raises(TableError, match=why) as caught:
        check_table(_replaced(old, new))

    assert caught.value.row == new.name
    assert why in caught.value.why


def test_an_edge_that_stands_twice_is_found() -> None:
    """Same source, event, edge and target, even with other selectors."""
    twin = replace(SLEEPS, when=(no_step_in_flight,))

    with pytest.raises(TableError, match="stands twice") as caught:
        check_table((*TABLE, twin))

    assert caught.value.row == twin.name


def test_two_rows_with_the_same_selectors_are_found() -> None:
    """They would hold together under all facts."""
    twin = replace(SLEEPS, edge="quiesces-again")

    with pytest.raises(TableError, match="same selectors") as caught:
        check_table((*TABLE, twin))

    assert caught.value.row == twin.name


@pytest.mark.parametrize("state", [state for state in TrainerState if state is not TrainerState.AWAKE])
def test_a_state_that_cannot_be_reached_is_found(state: TrainerState) -> None:
    """Every row into the state is taken away; the others stay."""
    table = tuple(row for row in TABLE if row.source is state or row.target is not state)

    with pytest.raises(TableError, match="cannot be reached from awake") as caught:
        check_table(table)

    assert caught.value.row == state


@pytest.mark.parametrize("state", [state for state in TrainerState if state is not TrainerState.AWAKE])
def test_a_state_that_cannot_be_left_is_found(state: TrainerState) -> None:
    """Every row out of the state is taken away; the others stay."""
    table = tuple(row for row in TABLE if row.target is state or row.source is not state)

    with pytest.raises(TableError, match="cannot get back to awake") as caught:
        check_table(table)

    assert caught.value.row == state


@pytest.mark.parametrize("event", TrainerEvent)
@pytest.mark.parametrize("state", [state for state in TrainerState if state not in RESTING])
def test_an_event_without_a_row_in_an_activity_or_a_fault_is_found(state: TrainerState, event: TrainerEvent) -> None:
    """In ``adapter-reconciling`` and ``faulted`` nothing is left to a default."""
    kept = [row for row in TABLE if (row.source, row.event) != (state, event)]

    with pytest.raises(TableError, match="a row for every event") as caught:
        check_table((*kept, *_detours(state, event)))

    assert caught.value.row == f"{state}/{event}"


def _detours(state: TrainerState, missing: TrainerEvent) -> tuple[Row, ...]:
    """Moves on another event, so that the state stays connected without the missing one."""
    other = next(event for event in TrainerEvent if event is not missing)
    return (
        Row("detour", other, state, TrainerState.AWAKE, (no_step_in_flight,)),
        Row("detour", TrainerEvent.SLEEP, TrainerState.AWAKE, TrainerState.FAULTED, (no_step_in_flight,)),
    )
