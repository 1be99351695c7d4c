"""The rules that the transition table must obey, checked when it is imported."""

from __future__ import annotations

from collections.abc import Iterable

from states.effects import REVERSAL
from states.errors import TableError
from states.names import RESTING, TrainerEvent, TrainerState
from states.row import Row, RowKind


def check_table(table: tuple[Row, ...]) -> None:
    """Check names, reachability, leavability, completeness and the order of effects.

    Raises:
        TableError: naming the row that breaks a rule.
    """
    for row in table:
        _check_row(row)
    _check_unique(table)
    _check_connected(table)
    _check_complete(table)


def _check_row(row: Row) -> None:
    if not row.edge:
        raise TableError(row.name, "the edge has no name")
    reversals = [REVERSAL[effect] for effect in row.effects]
    if reversals != sorted(reversals):
        raise TableError(row.name, "effects must stand in the order undoable, compensated, final")
    if row.kind is not RowKind.MOVE and (row.effects or row.source is not row.target):
        raise TableError(row.name, f"a {row.kind} row neither acts nor moves")
    if row.kind is RowKind.REFUSING and not row.remedy:
        raise TableError(row.name, "a refusing row says what to do instead")


def _check_unique(table: tuple[Row, ...]) -> None:
    seen: set[tuple[object, ...]] = set()
    for row in table:
        key = (row.source, row.event, row.edge, row.target)
        if key in seen:
            raise TableError(row.name, "the edge stands twice in the table")
        seen.add(key)
    selectors: set[tuple[object, ...]] = set()
    for row in table:
        choice = (row.source, row.event, row.when)
        if choice in selectors:
            raise TableError(row.name, "two rows of one state and event have the same selectors")
        selectors.add(choice)


def _closure(start: TrainerState, edges: Iterable[tuple[TrainerState, TrainerState]]) -> set[TrainerState]:
    pairs = list(edges)
    reached = {start}
    grew = True
    while grew:
        found = {target for source, target in pairs if source in reached}
        grew = not found <= reached
        reached |= found
    return reached


def _check_connected(table: tuple[Row, ...]) -> None:
    moves = [(row.source, row.target) for row in table if row.kind is RowKind.MOVE]
    forwards = _closure(TrainerState.AWAKE, moves)
    backwards = _closure(TrainerState.AWAKE, [(target, source) for source, target in moves])
    for state in TrainerState:
        if state not in forwards:
            raise TableError(state, "the state cannot be reached from awake")
        if state not in backwards:
            raise TableError(state, "the state cannot get back to awake")


def _check_complete(table: tuple[Row, ...]) -> None:
    named = {(row.source, row.event) for row in table}
    for state in TrainerState:
        if state in RESTING:
            continue
        for event in TrainerEvent:
            if (state, event) not in named:
                raise TableError(f"{state}/{event}", "an activity or a fault has a row for every event")
