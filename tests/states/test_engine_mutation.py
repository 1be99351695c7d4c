"""With any one guard, selector or row of the engine's tables deleted, the oracle objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from states import engine_guards
from states.engine_guards import EngineGuard
from states.engine_memory import EngineEvent
from states.engine_table import ENGINE_TABLE, TAG_TABLE, EngineRow, TagRow
from tests.states.engine_cases import cases
from tests.states.engine_oracle import objection

pytestmark = pytest.mark.timeout(300)

MUTANTS = [
    (row, part, guard)
    for row in ENGINE_TABLE
    for part in ("when", "guards")
    for guard in getattr(row, part)
]  # fmt: skip


def _replaced(row: EngineRow, *others: EngineRow) -> tuple[EngineRow, ...]:
    return tuple(one for was in ENGINE_TABLE for one in (others if was is row else (was,)))


def _objection(row: EngineRow, *others: EngineRow) -> str:
    """The first case on which oracle and table disagree, with the row replaced; empty when there is none."""
    table = _replaced(row, *others)
    return next((found for case in cases(row.source, row.event) if (found := objection(*case, table=table))), "")


def _name(part: object) -> str:
    return part.name if isinstance(part, EngineRow | EngineGuard) else str(part)


@pytest.mark.parametrize(("row", "part", "guard"), MUTANTS, ids=_name)
def test_no_guard_and_no_selector_can_be_deleted(row: EngineRow, part: str, guard: EngineGuard) -> None:
    """Deleting it makes two rows hold at once, or lets something unsafe through."""
    kept = tuple(one for one in getattr(row, part) if one is not guard)

    assert _objection(row, replace(row, **{part: kept})).startswith(("ambiguous", "unsafe"))  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ENGINE_TABLE, ids=_name)
def test_no_row_can_be_deleted(row: EngineRow) -> None:
    """Without it something that is safe is refused."""
    assert _objection(row).startswith("needlessly refused")


@pytest.mark.parametrize("row", ENGINE_TABLE, ids=_name)
def test_no_row_may_always_refuse(row: EngineRow) -> None:
    """A guard that never holds would refuse what is safe."""
    never = EngineGuard("never", "never", lambda _memory, _ask: (False, "it never holds", "there is none"))

    assert _objection(row, replace(row, guards=(*row.guards, never))).startswith("needlessly refused")


@pytest.mark.parametrize("row", [row for row in ENGINE_TABLE if row.settled], ids=_name)
def test_what_is_settled_is_not_sent(row: EngineRow) -> None:
    """A row that forgets that it is settled would send a call in vain."""
    objection_to = _objection(row, replace(row, settled=False))

    assert objection_to.startswith("sent in vain")


def _tag_name(row: TagRow) -> str:
    return f"{row.source} {row.event} {row.target}"


@pytest.mark.parametrize("row", TAG_TABLE, ids=_tag_name)
@pytest.mark.parametrize("change", ["deleted", "for every tag"])
def test_no_move_of_a_tag_can_be_changed(row: TagRow, change: str) -> None:
    """A tag that should move and does not, or one that loses or keeps its bytes against its kind, is noticed."""
    if change == "for every tag" and row.mirrored is None:
        row, others = TAG_TABLE[0], (replace(TAG_TABLE[0], mirrored=None),)
    else:
        others = () if change == "deleted" else (replace(row, mirrored=None),)
    table = tuple(one for was in TAG_TABLE for one in (others if was is row else (was,)))
    asked = [case for state in ("open", "paused") for case in cases(state, row.event)]  # type: ignore[arg-type]

    assert next((found for case in asked if (found := objection(*case, tag_table=table))), "")


def test_every_guard_that_is_defined_stands_in_a_row() -> None:
    """A guard that stands nowhere guards nothing, and no mutant would show it."""
    defined = {one.name for one in vars(engine_guards).values() if isinstance(one, EngineGuard)}
    print(f"{len(MUTANTS)} guards and selectors were deleted, one at a time")

    assert defined - {guard.name for _, _, guard in MUTANTS} == set()
    assert all(row.event in EngineEvent for row in ENGINE_TABLE)
