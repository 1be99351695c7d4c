"""A reconcile is decided whole: both of its moves, before the first one is taken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from states import FROZEN_BASE, RESTING, TABLE, Effect, NoChange, Refusal, TrainerEvent, TrainerState, decide
from states.reconcile import as_one, decide_reconcile
from tests.strategies import OLDER, RULES, group, healthy, lease


@pytest.mark.parametrize(("rule", "edge"), [("the-rule-holds", "reads-saver-backup"), ("with-ref", "backs-up-actor")])
@pytest.mark.parametrize("state", RESTING)
def test_both_moves_are_decided_at_once(state: TrainerState, rule: str, edge: str) -> None:
    """The way in has no effects, the way out carries them all and leads back to where it began."""
    moves = decide_reconcile(state, replace(healthy(state, **RULES[rule]), offload_target="cpu"))

    assert isinstance(moves, tuple)
    entering, leaving = moves
    assert (entering.target, entering.effects) == (TrainerState.ADAPTER_RECONCILING, ())
    assert (leaving.edge, leaving.target) == (edge, state)
    assert leaving.effects[0] is Effect.WRITE_ADAPTERS


def test_the_two_moves_are_told_as_one() -> None:
    """What was asked, the edge that carries the effects, back at the origin, with the verdicts of both."""
    moves = decide_reconcile(TrainerState.AWAKE, healthy(TrainerState.AWAKE))
    assert isinstance(moves, tuple)

    whole = as_one(*moves)

    assert (whole.state, whole.event, whole.target) == (
        TrainerState.AWAKE,
        TrainerEvent.RECONCILE_ADAPTERS,
        TrainerState.AWAKE,
    )
    assert whole.verdicts == moves[0].verdicts + moves[1].verdicts
    assert whole.effects == moves[1].effects


@pytest.mark.parametrize("state", RESTING)
def test_nothing_to_reconcile_is_a_no_op(state: TrainerState) -> None:
    """The loaded adapters are the registered ones."""
    assert isinstance(decide_reconcile(state, healthy(state, to_load=())), NoChange)


@pytest.mark.parametrize("state", [TrainerState.ADAPTER_RECONCILING, TrainerState.FAULTED])
def test_a_reconcile_begins_in_a_resting_state(state: TrainerState) -> None:
    """Not inside another one, and not while faulted."""
    assert isinstance(decide_reconcile(state, healthy(state)), Refusal)


def test_what_would_stop_the_second_move_stops_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reconcile that could not be ended is not begun: nothing is left half-way."""
    closed = tuple(row for row in TABLE if row.event is not TrainerEvent.RECONCILED)
    monkeypatch.setattr("states.reconcile.decide", partial(decide, table=closed))

    refusal = decide_reconcile(TrainerState.AWAKE, healthy(TrainerState.AWAKE))

    assert isinstance(refusal, Refusal)
    assert refusal.event is TrainerEvent.RECONCILE_ADAPTERS
    assert [verdict.name for verdict in refusal.failed] == ["the-event-leaves-this-state"]


def test_a_reader_of_the_actor_copy_stops_nothing() -> None:
    """A stored copy never changes: a backup makes another one, and the reader keeps what it has."""
    contents = (group(copies=(("actor", OLDER),)),)
    reader = (lease("snapshot:actor", FROZEN_BASE),)
    facts = healthy(TrainerState.AWAKE, strategy="reference", with_ref=True, contents=contents, leases=reader)

    moves = decide_reconcile(TrainerState.AWAKE, facts)

    assert isinstance(moves, tuple)
    assert Effect.BACKUP_ACTOR in moves[1].effects
