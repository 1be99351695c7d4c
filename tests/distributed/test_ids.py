"""Ranks give out the same version ids, whatever was lost: where one had begun to act, all go on above those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

from lifecycle.distributed import RankAgreement, RanksFailed, RanksMissing
from lifecycle.distributed.hosting import StoreServer
from lifecycle.distributed.simulated import Simulation
from lifecycle.errors import AuditError, LifecycleError, TransitionFailed
from states.agreement import Agreed, Ballot, Missing, Phase
from states.agreement_requests import Asking, Gather, GroupLost, Pause
from states.agreement_rounds import Voter
from states.seat import Seat
from tests.distributed.losses import FAULTS, lost_after_each_event
from tests.distributed.scripts import Rank
from tests.lifecycle.world import World, make_world

WORLD = 3


def _acting(number: int) -> Asking[tuple[bool, Any]]:
    """One transition: whether this rank began to act, and what came of it."""
    voter = Voter(Seat(number, WORLD, 4.0, f"process {number}"))
    decided = yield from voter.decide(Rank().proposal())
    if not isinstance(decided, Agreed):
        return False, decided
    yield Pause(0.01)
    return True, (yield from voter.vote(Phase.ACTED))


def _transition() -> Simulation:
    return Simulation([_acting(number) for number in range(WORLD)])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rank", [0, 2])
def test_every_rank_that_is_left_hears_whether_one_of_them_had_begun_to_act(fault: str, rank: int) -> None:
    """Whatever the moment of a loss; it may have come through to some ranks, and not to others, that all agreed."""
    seen = set()
    for event, simulation in lost_after_each_event(_transition, fault, rank):
        left = range(WORLD) if fault == "cut" else [one for one in range(WORLD) if one != rank]
        came = [simulation.results[one] for one in left]
        begun = {has_begun for has_begun, found in came if isinstance(found, Missing)}
        heard = {found.has_begun for _, found in came if isinstance(found, Missing)}
        assert heard == ({any(begun)} if begun else set()), f"after event {event}"
        seen.add((frozenset(begun), frozenset(heard)))

    # Ranks that have all begun when the connections break meet again.
    assert (frozenset({True, False} if fault == "cut" else {True}), frozenset({True})) in seen


class Pair:
    """Two ranks in threads, with a trainer each."""

    def __init__(self, store: str) -> None:
        self.ranks = self.both(lambda rank: RankAgreement.over_gloo(rank, 2, store, timeout_s=4.0))
        self.worlds: list[World] = self.both(lambda rank: make_world(ranks=self.ranks[rank]))

    def both(self, do: Callable[[int], Any]) -> list[Any]:
        """What came of it, by rank; what one raised too."""

        def caught(rank: int) -> Any:
            try:
                return do(rank)
            except LifecycleError as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(caught, range(2)))

    def train(self) -> list[Any]:
        """A step of A. It is aborted where it cannot be committed, and takes new ids then."""
        return self.both(lambda rank: self.worlds[rank].train("A"))

    def versions(self) -> list[dict[str, int]]:
        """By rank."""
        return [dict(one.trainer._parts.versions.wanted) for one in self.worlds]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """All there."""
    with StoreServer() as store:
        made = Pair(store.address)
        yield made
        for one in made.ranks:
            one.close()


def test_a_group_that_breaks_while_ranks_agree_leaves_them_with_the_same_ids(pair: Pair) -> None:
    """One has heard that all agree, and goes back; the other has not. Both abort the step, and commit the next one."""
    answers = pair.ranks[1]._transport._answers  # type: ignore[attr-defined]
    real, decisions = answers[Gather], []

    def gather(one: Gather) -> bytes:
        held: bytes = real(one)
        if Ballot.unpack(one.payload).phase == Phase.DECIDED:
            decisions.append(one)
            if len(decisions) == 2:  # the first one is that of begin_step
                raise GroupLost("the connection is gone")
        return held

    with mock.patch.dict(answers, {Gather: gather}):
        found = pair.train()
    assert [type(one) for one in found] == [TransitionFailed, RanksMissing]
    before, other = pair.versions()
    assert before == other

    assert pair.train() == [None, None]
    assert pair.versions()[0] == pair.versions()[1]
    assert pair.versions()[0] != before


def test_a_log_that_cannot_be_written_on_one_rank_leaves_all_with_the_same_ids(pair: Pair) -> None:
    """It says so before its first effect, when the others have begun theirs."""
    recorder = pair.worlds[1].trainer._runner.recorder
    real = recorder.began

    def began(step: Any, facts: Any) -> None:
        if step.event == "trained":
            raise AuditError("run.jsonl", "no space left on device")
        real(step, facts)

    with mock.patch.object(recorder, "began", began):
        found = pair.train()
    assert isinstance(found[0], TransitionFailed)
    assert isinstance(found[0].cause, RanksFailed)
    assert isinstance(found[1], AuditError)
    before, other = pair.versions()
    assert before == other

    assert pair.train() == [None, None]
    assert pair.versions()[0] == pair.versions()[1]
