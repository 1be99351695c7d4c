"""The states of a registration: every pair of state and event, and the checks of the table."""

from __future__ import annotations

from itertools import product

import pytest

from states import (
    ADAPTER_TABLE,
    AdapterEvent,
    AdapterRefusal,
    AdapterRow,
    AdapterState,
    TableError,
    decide_adapter,
)
from states.adapters import check_adapter_table

S, E = AdapterState, AdapterEvent

LEGAL = {
    (None, E.REGISTER): S.PENDING,
    (S.COMPLETED, E.REGISTER): S.PENDING,
    (S.PENDING, E.WEIGHTS_PUSHED): S.ACTIVE,
    (S.ACTIVE, E.WEIGHTS_PUSHED): S.ACTIVE,
    (S.RETIRING, E.WEIGHTS_PUSHED): S.RETIRING,
    (S.PENDING, E.DEREGISTER): S.RETIRING,
    (S.ACTIVE, E.DEREGISTER): S.RETIRING,
    (S.RETIRING, E.RETIRE): S.CLEANUP,
    (S.CLEANUP, E.FREE_SLOT): S.COMPLETED,
    **{(state, E.BATCH_TRAINED): state for state in (S.ACTIVE, S.RETIRING, S.CLEANUP)},
    **{(state, E.SET_STEP): state for state in S if state is not S.COMPLETED},
    **{(state, E.RESOLVE_NUM_STEP): state for state in S if state is not S.COMPLETED},
    **{(state, E.RESUPPLY): state for state in (S.PENDING, S.ACTIVE)},
}
"""Written by hand; the table under test is not asked."""

PAIRS = list(product([None, *S], E))


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair in LEGAL])
def test_a_legal_move_reaches_its_state(state: AdapterState | None, event: AdapterEvent) -> None:
    """Each of the legal moves, and each event that moves nothing."""
    assert decide_adapter(state, event) is LEGAL[state, event]


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair not in LEGAL])
def test_any_other_move_is_refused_with_reason_and_remedy(state: AdapterState | None, event: AdapterEvent) -> None:
    """All other pairs say why not and what to do."""
    refusal = decide_adapter(state, event)

    assert isinstance(refusal, AdapterRefusal)
    assert (refusal.state, refusal.event) == (state, event)
    assert refusal.because
    assert refusal.remedy


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_a_frozen_registration_lives_the_same_life_and_is_never_trained(
    state: AdapterState | None, event: AdapterEvent
) -> None:
    """Whatever its state, a batch is refused for it, and every other event is decided as for any (FB-38)."""
    decision = decide_adapter(state, event, trainable=False)

    if event is E.BATCH_TRAINED:
        assert isinstance(decision, AdapterRefusal)
        assert ("frozen" in decision.because) is ((state, event) in LEGAL)
    else:
        assert decision == decide_adapter(state, event)


def test_a_refusal_has_no_truth_value() -> None:
    """A refusal taken for a yes or a no is an error."""
    refusal = decide_adapter(None, E.RETIRE)

    with pytest.raises(TypeError, match="match on its type"):
        bool(refusal)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (AdapterRow(S.PENDING, E.DEREGISTER, S.ACTIVE), "twice"),
        (AdapterRow(S.CLEANUP, E.RETIRE, S.ACTIVE), "never goes back"),
        (AdapterRow(None, E.RETIRE, S.CLEANUP), "never goes back"),
        (AdapterRow(S.CLEANUP, E.REGISTER, S.PENDING), "only when the name is free"),
        (AdapterRow(S.ACTIVE, E.REGISTER, S.ACTIVE), "starts in pending"),
        (AdapterRow(S.PENDING, E.BATCH_TRAINED, S.ACTIVE, needs_trainable=True), "moves as any other"),
    ],
)
def test_a_table_with_a_wrong_row_is_refused_and_names_it(row: AdapterRow, why: str) -> None:
    """The rules of the table hold for each row."""
    with pytest.raises(TableError, match=why) as caught:
        check_adapter_table((*ADAPTER_TABLE, row))

    assert caught.value.row == row.name


@pytest.mark.parametrize(
    ("missing", "state", "why"),
    [
        ((E.RETIRE,), S.RETIRING, "no row leaves"),
        ((E.FREE_SLOT,), S.CLEANUP, "no row leaves"),
        ((E.REGISTER,), S.PENDING, "no row leads to"),
    ],
)
def test_a_table_with_a_state_that_leads_nowhere_is_refused(
    missing: tuple[AdapterEvent, ...], state: AdapterState, why: str
) -> None:
    """Every state can be reached and left."""
    with pytest.raises(TableError, match=why) as caught:
        check_adapter_table(tuple(row for row in ADAPTER_TABLE if row.event not in missing))

    assert caught.value.row == state
