"""The agreement as a protocol: the same code that runs over gloo, on ranks in simulated time."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.distributed.simulated import Simulation
from states import ContentFacts, Facts, LeaseFacts, TrainerEvent, TrainerState, decide
from states.agreement import BALLOT_BYTES, Agreed, Declined, Disagreed, Failed, Fenced, Missing, Proposal
from states.agreement_digest import Digester
from states.agreement_requests import Asking
from states.agreement_rounds import Voter
from states.seat import Seat
from tests.distributed.losses import FAULTS, lost_after_each_event
from tests.distributed.scripts import Rank, four, script, simulated

A, B = ContentFacts(group="adapter/a", version=6, live=6), ContentFacts(group="adapter/a", version=7, live=7)
LEASED = Facts(leases=(LeaseFacts("an export", "live", ("frozen-base",)),))


def _results(simulation: Any, at: int = -1) -> list[Any]:
    simulation.run()
    return [simulation.results[rank][at] for rank in range(simulation.world)]


def test_ranks_that_are_alike_agree_in_two_gathers_of_one_ballot_each() -> None:
    """And a hello once, when the group is built."""
    simulation = four(transitions=3)

    assert _results(simulation) == [Agreed(3)] * 4
    assert simulation.sent["Gather", "messages"] == 4 * (1 + 2 * 3)
    assert simulation.sent["Gather", "bytes"] == 4 * (1 + 2 * 3) * BALLOT_BYTES
    assert simulation.sent["Share", "bytes"] == 0


@pytest.mark.parametrize("adapters", [0, 1, 1000])
def test_the_bytes_of_an_agreement_do_not_grow_with_what_the_trainer_holds(adapters: int) -> None:
    """A ballot is a digest."""
    held = Facts(contents=tuple(ContentFacts(group=f"adapter/a{one}") for one in range(adapters)))
    simulation = simulated(*[Rank(held)] * 4)

    assert _results(simulation) == [Agreed(1)] * 4
    assert simulation.sent["Gather", "bytes"] == 4 * 3 * BALLOT_BYTES


@pytest.mark.parametrize(
    ("other", "fact", "values"),
    [
        (Rank(Facts(with_ref=True)), "with_ref", ("False", "True")),
        (Rank(Facts(to_load=("a",))), "to_load", ("(nothing)", "['a']")),
        (Rank(event=TrainerEvent.WAKE_UP), "event", ("'sleep'", "'wake_up'")),
        (Rank(state=TrainerState.SLEEPING), "state", ("'awake'", "'sleeping'")),
    ],
    ids=["configuration", "adapters", "event", "state"],
)
def test_a_disagreement_names_rank_fact_and_both_values_on_every_rank(
    other: Rank, fact: str, values: tuple[str, str]
) -> None:
    """Nothing was done anywhere."""
    results = _results(four(r2=other))

    assert all(isinstance(one, Disagreed) for one in results)
    assert len({one.differences for one in results}) == 1
    found = {one.fact: one for one in results[0].differences}[fact]
    assert found.ranks == (2,)
    assert found.values[0][0] == (0, 1, 3)
    assert found.values[1] == ((2,), values[1])


def test_of_many_adapters_the_one_that_differs_is_named() -> None:
    """With the field of its record and both values."""
    many = tuple(ContentFacts(group=f"adapter/a{one}") for one in range(500))
    results = _results(simulated(*[Rank(Facts(contents=(A, *many)))] * 3, Rank(Facts(contents=(B, *many)))))

    found = {one.fact: one.values for one in results[0].differences}
    assert found["contents[adapter/a].version"] == (((0, 1, 2), "6"), ((3,), "7"))
    assert set(found) == {"contents[adapter/a].version", "contents[adapter/a].live"}


def test_a_missing_adapter_is_named_too() -> None:
    """One side has nothing there."""
    results = _results(four(r1=Rank(Facts(contents=(ContentFacts(), A)))))

    (found,) = results[0].differences
    assert found.fact == "contents[adapter/a]"
    assert found.ranks == (1,)
    assert found.values[0] == ((0, 2, 3), "(nothing)")


def test_ranks_that_all_differ_are_all_named_and_a_few_tell_their_values() -> None:
    """Some are not fetched."""
    ranks = [Rank(Facts(models=(f"m{number}",))) for number in range(9)]
    results = _results(simulated(*ranks))

    (found,) = results[0].differences
    assert sorted(rank for ranks, _ in found.values for rank in ranks) == list(range(9))
    assert sum(words == "(not fetched)" for _, words in found.values) == 1
    assert len({str(one) for one in results}) == 1


def test_after_a_disagreement_ranks_can_go_on() -> None:
    """The group is as it was: the next transition with equal facts is agreed on."""
    simulation = four(transitions=2, r1=Rank(Facts(with_ref=True)))
    simulation.run()

    assert [type(one) for one in simulation.results[0]] == [Disagreed, Disagreed]
    assert simulation.sent["Connect", "messages"] == 4


def test_a_local_refusal_of_one_rank_refuses_on_all_and_names_it() -> None:
    """Local verdicts are joined by and."""
    offload = [Rank(facts, TrainerEvent.OFFLOAD, state=TrainerState.SLEEPING) for facts in (Facts(), LEASED)]
    results = _results(simulated(offload[0], offload[1], offload[0], offload[1]))

    assert all(isinstance(one, Declined) for one in results)
    assert len({one.refusal for one in results}) == 1
    (verdict,) = results[0].refusal.failed
    assert results[0].ranks == (1, 3)
    assert verdict.name == "no-lease-over-live-weights"
    assert verdict.because.startswith("rank 1: 1 lease(s)")
    assert "; rank 3: 1 lease(s)" in verdict.because


def test_a_refusal_that_all_ranks_share_is_not_exchanged() -> None:
    """It is the same everywhere, word for word."""
    simulation = simulated(*[Rank(Facts(step_open=True))] * 4)
    results = _results(simulation)

    assert {one.refusal for one in results} == {decide(TrainerState.AWAKE, TrainerEvent.SLEEP, Facts(step_open=True))}
    assert simulation.sent["Share", "messages"] == 0


def test_if_one_rank_fails_all_hear_why_before_they_commit() -> None:
    """They undo, and agree on that; the next transition goes on."""
    simulation = four(transitions=2, r3=Rank(fails=(1,)))
    simulation.run()

    assert {rank: found[0] for rank, found in simulation.results.items()} == {
        rank: Failed({3: "it broke"}, (3,)) for rank in range(4)
    }
    assert [found[1] for found in simulation.results.values()] == [Agreed(2)] * 4


def test_if_an_undo_fails_all_ranks_are_faulted_for_the_same_reason() -> None:
    """The second meeting says who could not go back."""
    results = _results(four(r0=Rank(fails=(1,), faults=(1,))))

    assert results == [Failed({0: "it stays broken"}, (0,))] * 4


def test_ranks_whose_effects_came_to_different_results_do_not_commit() -> None:
    """Such as adapters that one rank left out and the others did not."""
    results = _results(four(r3=Rank(result="left out: a")))

    assert all(isinstance(one, Disagreed) for one in results)
    (found,) = results[0].differences
    assert (found.fact, found.values) == ("result", (((0, 1, 2), "''"), ((3,), "'left out: a'")))


def test_a_rank_that_fails_before_it_can_decide_is_heard() -> None:
    """The others do not wait for it."""

    def first_meeting(number: int) -> Asking[Any]:
        voter = Voter(Seat(number, 2, 4.0, str(number)))
        return (yield from voter.decide(Rank().proposal() if number else None, "no facts"))

    simulation = Simulation([first_meeting(0), first_meeting(1)])
    simulation.run()

    assert simulation.results == {rank: Failed({0: "no facts"}, (0,)) for rank in range(2)}
    assert max(when for _, when, _ in simulation.ended) < 1


@pytest.mark.parametrize("lost", range(4))
def test_who_is_killed_in_the_middle_of_its_work_is_named_within_the_timeout(lost: int) -> None:
    """On every rank that is left, rank 0 or another one."""
    simulation = four(transitions=5)
    simulation.kill(lost, 0.025)
    simulation.run()

    left = [rank for rank in range(4) if rank != lost]
    assert {simulation.results[rank][-1].ranks for rank in left} >= {(lost,)}
    for rank in left:
        first = next(one for one in simulation.results[rank] if isinstance(one, Missing))
        assert (first.ranks, first.generation) == ((lost,), 0)
        assert first.waited_s <= 4.0


def test_who_starts_too_late_is_named_and_joins_the_next_generation() -> None:
    """It was in no generation yet, so it has missed nothing."""
    simulation = four(transitions=2, r2=Rank(late_s=5.0))
    simulation.run()

    assert [type(one) for one in simulation.results[0]] == [Missing, Agreed]
    assert (simulation.results[0][0].ranks, simulation.results[2][0]) == ((2,), Agreed(2))


def test_a_rank_that_was_stopped_for_too_long_is_fenced_when_it_wakes() -> None:
    """Stopped while it waits in a collective, or while it works: its generation is over."""
    simulation = four(transitions=30)
    simulation.stop(1, 0.05, 60.0)
    simulation.run()

    assert isinstance(simulation.results[1][-1], Fenced)
    first = next(one for one in simulation.results[0] if not isinstance(one, Agreed))
    assert (type(first), first.ranks) == (Missing, (1,))
    assert set(map(type, simulation.results[1])) == {Agreed, Fenced}


def test_a_rank_that_was_stopped_for_a_moment_is_waited_for() -> None:
    """Shorter than the timeout is no fault."""
    simulation = four(transitions=4)
    simulation.stop(1, 0.02, 2.0)

    assert _results(simulation) == [Agreed(4)] * 4


def test_a_new_process_takes_the_place_of_a_lost_one_in_the_next_generation() -> None:
    """It starts where the others are, and the run goes on."""
    simulation = four(transitions=3)
    simulation.kill(2, 0.005)
    simulation.start(2, script(2, 4, Rank(incarnation="its successor"), 2), at_s=1.0)
    simulation.run()

    assert [type(one) for one in simulation.results[0]] == [Missing, Agreed, Agreed]
    assert simulation.results[2] == simulation.results[0][1:]


def test_a_second_process_of_a_rank_that_is_there_does_not_take_its_place() -> None:
    """It is fenced after the timeout; the run is not disturbed."""
    simulation = simulated(*[Rank(work_s=0.1)] * 4, transitions=50)
    simulation.start(2, script(2, 4, Rank(incarnation="another")), at_s=0.5)
    simulation.run()

    ends = [result for rank, _, result in simulation.ended if rank == 2]
    assert ends[0] == [Fenced(0, "another process has joined as rank 2")]
    assert ends[1][-1] == simulation.results[0][-1] == Agreed(50)


def test_a_connection_that_breaks_costs_nothing_when_all_ranks_are_there() -> None:
    """They meet again in the next generation, and the transition goes on."""
    simulation = four(transitions=2, r1=Rank(work_s=0.6))
    simulation.cut(0, at_s=0.3)

    assert _results(simulation) == [Agreed(2)] * 4
    assert simulation.sent["Connect", "messages"] == 8


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rank", [0, 2])
def test_whenever_a_rank_is_lost_the_others_come_to_the_same_end(fault: str, rank: int) -> None:
    """No rank commits a transition that another one has undone, whatever the event after which it happens."""
    ends = set()
    for event, simulation in lost_after_each_event(lambda: simulated(*[Rank()] * 3, transitions=2), fault, rank):
        done = {tuple(type(one) is Agreed for one in simulation.results[left]) for left in {0, 1, 2} - {rank}}
        assert len(done) == 1, f"after event {event}"
        for left in {0, 1, 2} - {rank}:
            lost = [one.ranks for one in simulation.results[left] if isinstance(one, Missing)]
            assert fault == "cut" or set(lost) <= {(rank,)}, f"after event {event}"
        ends |= done

    assert ends >= ({(True, True)} if fault == "cut" else {(False, False), (True, False)})


def test_recover_is_decided_on_the_tags_of_all_ranks() -> None:
    """What is nearest on one rank need not be what is nearest on another."""

    def counts(number: int) -> Asking[Any]:
        voter = Voter(Seat(number, 3, 4.0, str(number)))
        own = Facts(active_tags=3 * (number == 0), paused_tags=3 * (number != 0), scratch_paused=number == 1)
        met = yield from voter.assemble(100 + number)
        return met.newest, (yield from voter.count(own))

    simulation = Simulation([counts(0), counts(1), counts(2)])
    simulation.run()

    expected = Facts(active_tags=3, paused_tags=6, scratch_paused=True)
    assert simulation.results == dict.fromkeys(range(3), (102, expected))


def test_equal_facts_have_equal_digests_whatever_was_digested_before() -> None:
    """What is remembered only saves time."""
    used = Digester()
    many = tuple(ContentFacts(group=f"adapter/a{one}") for one in range(200))
    for contents in ((A,), (A, B), (B, A), (), (A, B), many, (*many[:150], A, *many[151:]), many[:70]):
        facts = Facts(contents=contents).shared()
        asked = tuple(facts), tuple(facts.values())
        assert used.table(*asked) == Digester().table(*asked)


def test_a_proposal_compares_all_shared_facts_and_no_local_one() -> None:
    """A rank with other free bytes is alike, one with another version is not."""

    def digest(facts: Facts) -> bytes:
        step = decide(TrainerState.AWAKE, TrainerEvent.SLEEP, facts)
        return Proposal(TrainerEvent.SLEEP, TrainerState.AWAKE, facts, step).ballot(Digester(), 0, 1).pack()

    assert digest(Facts(host_free_bytes=1)) == digest(Facts(host_free_bytes=2))
    assert digest(Facts(contents=(A,))) != digest(Facts(contents=(B,)))
