"""Ranks that build, join and admit, in simulated time, where a rank can be lost at every moment."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.distributed.simulated import Simulation
from states.agreement import Agreed, Disagreed, Failed, Missing, Phase, Reason, Said
from states.agreement_requests import Asking, Pause
from states.agreement_rounds import Voter
from states.joining import Assembled
from states.seat import Seat
from tests.distributed.losses import lost_after_each_event

WORLD = 3
BUILDS, JOINS, ADMITS = Said.NOTHING, Said.JOINS, Said.ADMITS


def assembling(number: int, said: Said, *, fails: str = "", incarnation: str = "") -> Asking[list[Any]]:
    """A new process of a rank that does :func:`attempt` once.

    Args:
        number: of the rank.
        said: what it comes for.
        fails: see there.
        incarnation: of its process.
    """
    return (yield from attempt(Voter(Seat(number, WORLD, 4.0, incarnation or f"process {number}")), said, fails))


def attempt(voter: Voter, said: Said, fails: str = "") -> Asking[list[Any]]:
    """A rank meets, hears what is handed over where ranks join, and says in the end whether it got there.

    Args:
        voter: of the rank.
        said: what it comes for.
        fails: ``"early"`` before it meets, ``"late"`` instead of hearing the second thing.
    """
    number = voter.seat.rank
    if fails == "early":
        return [(yield from voter.assemble(0, Said.FAILED, Reason("no room", "C")))]
    met = yield from voter.assemble(100 + number, said)
    if not isinstance(met, Assembled):
        return [met]
    heard: list[Any] = [met]
    for payload in (b"book", b"bytes") if met.newcomers else ():
        if fails == "late" and payload == b"bytes":
            return [*heard, (yield from _end(voter, "another base"))]
        yield Pause(0.01)
        heard.append((yield from voter.tell(payload if number == met.giver else None, met.giver)))
        if not isinstance(heard[-1], bytes):
            break
    return [*heard, (yield from _end(voter, ""))]


def _end(voter: Voter, reason: str) -> Asking[Any]:
    """The meeting at the end, and the one that leaves a block that has failed."""
    found = yield from voter.vote(Phase.ACTED, Said.FAILED if reason else Said.NOTHING, reason)
    if not isinstance(found, Agreed):
        yield from voter.vote(Phase.UNDONE)
    return found


def came_of(*roles: Said, **fails: str) -> dict[int, list[Any]]:
    """What came of ranks with these roles; those named, such as ``r1``, fail."""
    scripts = [assembling(rank, role, fails=fails.get(f"r{rank}", "")) for rank, role in enumerate(roles)]
    simulation = Simulation(scripts)
    simulation.run()
    assert max(at_s for _, at_s, _ in simulation.ended) < 1.0  # nobody waited for the timeout
    return simulation.results


def test_trainers_that_are_built_begin_above_the_largest_of_all_version_ids() -> None:
    """And all say in the end that theirs was built."""
    results = came_of(BUILDS, BUILDS, BUILDS)

    assert results == {rank: [Assembled(rank, 102), Agreed(1)] for rank in range(WORLD)}


@pytest.mark.parametrize("roles", [(BUILDS, BUILDS, BUILDS), (ADMITS, JOINS, ADMITS)])
def test_a_rank_that_fails_before_it_meets_is_heard_by_all(roles: tuple[Said, ...]) -> None:
    """With the adapter that it failed at, if it was one."""
    results = came_of(*roles, r1="early")

    assert results == {rank: [Failed({1: "no room"}, (1,))] for rank in range(WORLD)}
    assert [one[0].reasons[1].adapter for one in results.values()] == ["C"] * WORLD


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_rank_that_fails_in_the_middle_of_a_hand_over_is_heard_by_those_that_are_told_something(failing: int) -> None:
    """The one that hands over, one that compares, or the one that joins."""
    results = came_of(ADMITS, ADMITS, JOINS, **{f"r{failing}": "late"})

    assert {rank: one[-1] for rank, one in results.items()} == dict.fromkeys(
        range(WORLD), Failed({failing: "another base"}, (failing,))
    )


def test_roles_that_do_not_go_together_are_a_disagreement() -> None:
    """Who came for what is named."""
    results = came_of(ADMITS, BUILDS, ADMITS)

    for found in results.values():
        assert isinstance(found[0], Disagreed)
        assert [one.fact for one in found[0].differences] == ["what it came for"]
        assert found[0].differences[0].ranks == (1,)


@pytest.mark.parametrize("fails", ["early", "late"])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_rank_that_could_not_join_is_replaced_by_another_process_at_once(failing: int, fails: str) -> None:
    """The one that was refused has ended: nobody waits for it, whether it failed itself or one that admits."""

    def admitting(number: int) -> Asking[list[Any]]:
        voter = Voter(Seat(number, WORLD, 4.0, f"process {number}"))
        first = yield from attempt(voter, ADMITS, fails if number == failing else "")
        return [first[-1], *(yield from attempt(voter, ADMITS))]

    joins = fails if failing == 1 else ""
    simulation = Simulation([admitting(0), assembling(1, JOINS, fails=joins), admitting(2)])
    simulation.start(1, assembling(1, JOINS, incarnation="another"), at_s=0.5)
    simulation.run()

    assert max(at_s for _, at_s, _ in simulation.ended) < 1.0  # nobody waited for the timeout
    assert {type(simulation.results[rank][0]) for rank in (0, 2)} == {Failed}
    assert {type(one[-1]) for one in simulation.results.values()} == {Agreed}


def test_a_rank_that_is_lost_in_an_undo_can_be_replaced_without_another_event() -> None:
    """That it is missing is said once: the undo that it was missing in is over."""

    def failing(number: int) -> Asking[list[Any]]:
        voter = Voter(Seat(number, WORLD, 4.0, f"process {number}"))
        failed = yield from voter.vote(Phase.ACTED, Said.FAILED if number == 0 else Said.NOTHING, "no room")
        if number == 1:
            return [failed]
        return [(yield from voter.vote(Phase.UNDONE)), *(yield from attempt(voter, ADMITS))]

    simulation = Simulation([failing(rank) for rank in range(WORLD)])
    simulation.start(1, assembling(1, JOINS, incarnation="another"), at_s=3.0)
    simulation.run()

    assert {type(simulation.results[rank][0]) for rank in (0, 2)} == {Missing}
    assert {type(one[-1]) for one in simulation.results.values()} == {Agreed}


@pytest.mark.parametrize("lost", range(WORLD))
def test_whenever_a_rank_is_lost_in_a_join_the_others_come_to_the_same_end(lost: int) -> None:
    """Nobody goes on with a rank that others have given up, whatever the event after which it happens."""
    roles = (ADMITS, JOINS, ADMITS)

    def made() -> Simulation:
        return Simulation([assembling(rank, role) for rank, role in enumerate(roles)])

    ends = set()
    for event, simulation in lost_after_each_event(made, "kill", lost):
        left = {rank: simulation.results[rank][-1] for rank in range(WORLD) if rank != lost}
        kinds = {type(one) for one in left.values()}
        assert len(kinds) == 1, f"after event {event}"
        named = {rank for one in left.values() if isinstance(one, Missing) for rank in one.ranks}
        assert named <= {lost}, f"after event {event}"
        ends |= kinds

    assert ends == {Missing, Agreed}
