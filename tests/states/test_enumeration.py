"""Every state, every event, every combination of facts that matters: one answer, a safe one, that explains itself."""

from __future__ import annotations

import pytest

from states import TABLE, RowKind, TrainerEvent, TrainerState
from tests.states.agreement import census

pytestmark = [pytest.mark.timeout(400), pytest.mark.no_cover]
"""The first test that asks for the census takes it: seconds. Coverage would double them; its lines have other tests."""


def test_at_most_one_row_holds_for_any_state_event_and_facts() -> None:
    """No facts make two rows of one state and event hold at once."""
    found = census()
    print(f"{found.cases} cases were asked")

    assert found.cases > 100_000
    assert found.wrong.get("ambiguous", [])[:3] == []


@pytest.mark.parametrize(
    "kind", ["unsafe", "wrong target", "wrong number of copies", "needlessly refused", "nothing was done"]
)
def test_table_and_oracle_agree(kind: str) -> None:
    """No step loses, overwrites or misreads bytes (sound), and no safe event is refused or skipped (complete)."""
    assert census().wrong.get(kind, [])[:3] == []


@pytest.mark.parametrize("event", TrainerEvent)
@pytest.mark.parametrize("state", TrainerState)
def test_every_state_answers_every_event(state: TrainerState, event: TrainerEvent) -> None:
    """Each pair of state and event was asked, and each answer was a step, a refusal or a no-op."""
    answers = census().answers[state, event]

    assert answers <= {"Step", "Refusal", "NoChange"}
    assert answers


def test_every_move_of_the_table_can_be_taken() -> None:
    """A row that no facts let through would be dead; there is none, and no step takes an edge without a row."""
    moves = {(row.source, row.event, row.edge, row.target) for row in TABLE if row.kind is RowKind.MOVE}

    assert census().taken == moves


def test_every_answer_explains_itself() -> None:
    """A refusal has failed guards that each give a reason and a remedy, a step has none, and its reads are true."""
    assert census().mute[:3] == []


def test_a_settled_event_has_no_effects() -> None:
    """What holds already is a no-op: it stays where it is and does nothing."""
    settled = [row for row in TABLE if row.kind is RowKind.SETTLED]

    assert settled
    assert all(row.effects == () and row.source is row.target for row in settled)
