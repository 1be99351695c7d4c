"""Single meetings of ranks, by hand: what one rank makes of the ballots that it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from states import Facts, Refusal, TrainerEvent, TrainerState, decide
from states.agreement import Agreed, Ballot, Disagreed, Phase, Proposal, Said
from states.agreement_differences import _paths
from states.agreement_digest import plain
from states.agreement_refusals import joined, refusal_told
from states.agreement_rounds import Voter
from states.seat import Seat

SLEEP, AWAKE = TrainerEvent.SLEEP, TrainerState.AWAKE


def proposal(**facts: Any) -> Proposal:
    """A trainer that wants to sleep."""
    held = Facts(**facts)
    return Proposal(SLEEP, AWAKE, held, decide(AWAKE, SLEEP, held))


def voter() -> Voter:
    """The first of two ranks, in their first group."""
    seat = Seat(0, 2, 4.0, "p")
    seat.generation = 0
    return Voter(seat)


def met(asking: Any, other: Callable[[Ballot], Ballot]) -> Any:
    """What the first of two ranks makes of a meeting in which the second says *other* than it does itself."""
    packed = next(asking).payload
    own = Ballot.unpack(packed)
    with pytest.raises(StopIteration) as done:
        asking.send(packed + other(own).pack())
    return done.value.value


def test_a_rank_at_another_place_of_the_run_is_a_disagreement_before_and_after_acting() -> None:
    """Its sequence number and phase are compared before anything else."""
    for asking in (
        voter()._propose(proposal(), "", 4.0),
        voter()._vote(Phase.ACTED, Said.NOTHING, "", "", 4.0),
    ):
        found = met(asking, lambda own: own._replace(sequence=own.sequence + 7))
        assert isinstance(found, Disagreed)
        assert [one.fact for one in found.differences] == ["sequence"]


def test_ranks_whose_facts_and_decisions_are_alike_agree_whatever_else_their_ballots_carry() -> None:
    """What is not compared in this meeting divides nobody."""
    found = met(voter()._propose(proposal(), "", 4.0), lambda own: own._replace(version=9))

    assert isinstance(found, Agreed)


def test_tags_are_not_counted_where_the_ranks_are_at_different_places() -> None:
    """Whatever came of the meeting is what is told."""
    one, told = voter(), Disagreed(1, "", ())

    def divided(_: Ballot) -> Any:
        return told
        yield

    one._compare = divided  # type: ignore[method-assign]
    with pytest.raises(StopIteration) as done:
        next(one.count(Facts()))
    assert done.value.value is told


def test_a_refusal_of_many_ranks_says_how_many_more_there_are() -> None:
    """A few tell their reasons."""
    refused = decide(AWAKE, SLEEP, Facts(step_open=True))
    assert isinstance(refused, Refusal)
    found = joined({0: refusal_told(refused)}, (0, 1, 2))

    assert found.failed[0].because.endswith("; 2 more rank(s) refuse")


def test_equal_values_differ_nowhere_and_what_facts_do_not_hold_is_refused() -> None:
    """Floats are exact, sets have an order."""
    assert list(_paths([{"a": 1}, {"a": 1}])) == []
    assert (plain(0.5), plain(frozenset({2, 1}))) == ((0.5).hex(), [1, 2])
    with pytest.raises(TypeError, match="ranks cannot agree on a object"):
        plain(object())
