"""A reconcile is decided whole: both of its moves, before the first one is taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from states import FROZEN_BASE, RESTING, Effect, NoChange, Refusal, TrainerEvent, TrainerState
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


def test_what_would_stop_the_second_move_stops_the_first() -> None:
    """A reader of an actor copy that is due keeps the reconcile from beginning; nothing is left half-way."""
    contents = (group(copies=(("actor", OLDER),)),)
    reader = (lease("snapshot:actor", FROZEN_BASE),)
    facts = healthy(TrainerState.AWAKE, with_ref=True, contents=contents, leases=reader)

    refusal = decide_reconcile(TrainerState.AWAKE, facts)

    assert isinstance(refusal, Refusal)
    assert refusal.event is TrainerEvent.RECONCILE_ADAPTERS
    assert [one.name for one in refusal.failed] == ["no-lease-over-the-actor-copy"]
