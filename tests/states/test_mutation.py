"""A table cannot check itself: with any one guard or selector deleted from its row, the oracle objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from states import TABLE, Effect, Row, RowKind, TableError, TrainerEvent, guards, guards_memory
from states.check import check_table
from states.effects import REVERSAL
from states.verdict import Guard
from tests.states.agreement import answer, directed_cases, disagreement

Mutant = tuple[Row, str, Guard]


def _mutants() -> list[Mutant]:
    return [(row, part, guard) for row in TABLE for part in ("when", "guards") for guard in getattr(row, part)]


def _without(row: Row, part: str, guard: Guard) -> tuple[Row, ...]:
    kept = tuple(one for one in getattr(row, part) if one is not guard)
    changed: dict[str, tuple[Guard, ...]] = {part: kept}
    mutant = replace(row, **changed)  # type: ignore[arg-type]
    return tuple(mutant if one is row else one for one in TABLE)


def _objection(row: Row, table: tuple[Row, ...]) -> str:
    """The first case on which oracle and table disagree; empty when there is none."""
    cases = directed_cases(row.source, row.event)
    return next((found for case in cases if (found := disagreement(case, answer(case, table)))), "")


def _name(part: object) -> str:
    return part.name if isinstance(part, Row | Guard) else str(part)


@pytest.mark.parametrize(("row", "part", "guard"), _mutants(), ids=_name)
def test_no_guard_can_be_deleted(row: Row, part: str, guard: Guard) -> None:
    """Deleting it makes two rows hold at once, or lets an unsafe or wrong step through."""
    objection = _objection(row, _without(row, part, guard))

    assert objection.startswith(("ambiguous", "unsafe"))


def test_the_whole_table_meets_no_objection() -> None:
    """The control: on the same cases the table as it is agrees with the oracle everywhere."""
    rows = {(row.source, row.event): row for row in TABLE}.values()

    assert [row.name for row in rows if _objection(row, TABLE)] == []


@pytest.mark.parametrize("row", [row for row in TABLE if row.kind is RowKind.MOVE], ids=_name)
def test_no_move_can_be_deleted(row: Row) -> None:
    """Without the row something that is safe is refused, or ends elsewhere."""
    table = tuple(one for one in TABLE if one is not row)

    assert _objection(row, table)


@pytest.mark.parametrize("row", [row for row in TABLE if row.guards], ids=_name)
def test_no_guard_may_always_refuse(row: Row) -> None:
    """A guard that never holds would be as useless as one that always does: what is safe would be refused."""

    def never(_: object) -> tuple[bool, str, str]:
        return False, "it never holds", "there is none"

    blocked = replace(row, guards=(*row.guards, Guard(never, name="never", scope="shared")))
    table = tuple(blocked if one is row else one for one in TABLE)

    assert _objection(row, table).startswith("needlessly refused")


def _reordered() -> list[Row]:
    rows = [row for row in TABLE if len({REVERSAL[effect] for effect in row.effects}) > 1]
    sending = next(row for row in TABLE if row.event is TrainerEvent.UPDATE_WEIGHTS and row.effects)
    return [*rows, replace(sending, effects=(Effect.CLEAR_CACHES, *sending.effects))]


@pytest.mark.parametrize("row", _reordered(), ids=_name)
def test_effects_cannot_be_reordered(row: Row) -> None:
    """An effect that can be undone never stands behind one that cannot."""
    table = (*TABLE, replace(row, edge="reordered", effects=row.effects[::-1]))

    with pytest.raises(TableError, match="in the order undoable, compensated, final"):
        check_table(table)


@pytest.mark.parametrize(("row", "part", "guard"), _mutants(), ids=_name)
def test_a_mutant_lacks_one_guard_and_nothing_else(row: Row, part: str, guard: Guard) -> None:
    """A guard that stands in its row twice would leave with its twin, and a mutant that is no mutant says nothing."""
    before, after = ([_parts(one) for one in table] for table in (TABLE, _without(row, part, guard)))
    changed = [(was, now) for was, now in zip(before, after, strict=True) if was != now]

    assert [len(was) - len(now) for was, now in changed] == [1]


def _parts(row: Row) -> list[tuple[str, str]]:
    return [(part, guard.name) for part in ("when", "guards") for guard in getattr(row, part)]


def test_every_guard_that_is_defined_was_deleted_somewhere() -> None:
    """A guard that stands in no row guards nothing, and no mutant would show it."""
    defined = {one.name for module in (guards, guards_memory) for one in vars(module).values() if type(one) is Guard}
    deleted = {guard.name for _, _, guard in _mutants()}
    print(f"{len(_mutants())} guards and selectors were deleted, one at a time")

    assert defined - deleted == set()
    assert len(defined) >= 30
