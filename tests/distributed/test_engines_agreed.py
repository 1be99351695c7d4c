"""Ranks look at their engines together while they gather facts, in simulated time: alike, unlike, lost, failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lifecycle.distributed.simulated import Simulation
from states.agreement import Failed, Missing
from states.agreement_engines import agree_on_engines
from states.agreement_requests import Asking
from states.agreement_rounds import Voter
from states.facts import EngineFacts
from states.seat import Seat

WHOLE = EngineFacts("E0")
LACKS = replace(WHOLE, stale=("adapter/a",), fenced="a push failed")


def _looks(number: int, world: int, engines: tuple[EngineFacts, ...] | None) -> Asking[Any]:
    """One rank's look in a transition; None for one that fails before it."""
    voter = Voter(Seat(number, world, 4.0, str(number)))
    voter.seat.begin()
    if engines is None:
        return (yield from voter.decide(None, "OSError: no room"))
    return (yield from agree_on_engines(voter.seat, engines))


def _came(*engines: tuple[EngineFacts, ...] | None) -> tuple[Simulation, dict[int, Any]]:
    simulation = Simulation([_looks(number, len(engines), one) for number, one in enumerate(engines)])
    simulation.run()
    return simulation, simulation.results


def test_engines_that_are_alike_cost_one_small_collective() -> None:
    """Nothing is told."""
    simulation, came = _came((WHOLE,), (WHOLE,), (WHOLE,))

    assert came == dict.fromkeys(range(3), (WHOLE,))
    assert simulation.sent["Share", "bytes"] == 0


def test_what_one_rank_lacks_all_know() -> None:
    """Each of them decides on the same facts."""
    _, came = _came((WHOLE, WHOLE), (LACKS, WHOLE), (WHOLE, WHOLE))

    assert came == dict.fromkeys(range(3), (replace(LACKS, fenced="rank 1: a push failed"), WHOLE))


def test_ranks_with_other_engines_keep_their_own() -> None:
    """Also one without any: the agreement on facts names who has what."""
    _, came = _came((WHOLE,), (), (EngineFacts("E1"),))

    assert came == {0: (WHOLE,), 1: (), 2: (EngineFacts("E1"),)}


def test_a_rank_that_fails_before_it_looks_is_heard_there() -> None:
    """The others do not wait for it."""
    _, came = _came((WHOLE,), None, (LACKS,))

    assert came == dict.fromkeys(range(3), Failed({1: "OSError: no room"}, (1,)))


def test_a_rank_that_is_lost_is_named() -> None:
    """Within the time of one meeting."""
    simulation = Simulation([_looks(number, 3, (WHOLE,)) for number in range(3)])
    simulation.kill(1, 0.0)
    simulation.run()

    assert {rank: type(one) for rank, one in simulation.results.items()} == {0: Missing, 2: Missing}
    assert simulation.results[0].ranks == (1,)
