"""One rank tells all ranks something: in simulated time, where a rank can be lost at every moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lifecycle.distributed.simulated import Simulation
from states import agreement_told
from states.agreement import BALLOT_BYTES, WORDS_BYTES_MAX, Disagreed, Failed, Fenced, Missing
from states.agreement_requests import Asking
from states.agreement_rounds import Voter
from states.seat import Seat
from tests.distributed.losses import FAULTS, lost_after_each_event
from tests.distributed.telling import Came, Teller, came_of, simulated

USUAL = Teller()


def _tellings(number: int, world: int, *payloads: bytes, by: int = 0) -> Asking[list[Any]]:
    voter = Voter(Seat(number, world, 4.0, f"process {number}"))
    found: list[Any] = []
    for payload in payloads:
        found += [(yield from voter.tell(payload if number == by else None, by))]
    return found


def _told(*payloads: bytes, by: int = 0, world: int = 3) -> Simulation:
    simulation = Simulation([_tellings(number, world, *payloads, by=by) for number in range(world)])
    simulation.run()
    return simulation


@pytest.mark.parametrize("size_bytes", [0, 1, WORDS_BYTES_MAX, WORDS_BYTES_MAX + 1, 10_000])
@pytest.mark.parametrize("by", [0, 2])
def test_every_rank_hears_what_one_rank_says(size_bytes: int, by: int) -> None:
    """Whoever it is, and whatever its size; trailing zeros are a part of it."""
    payload = bytes(one % 256 for one in range(size_bytes, 0, -1)) if size_bytes > 1 else bytes(size_bytes)

    assert _told(payload, by=by).results == {rank: [payload] for rank in range(3)}


def test_what_is_short_takes_one_collective_of_a_ballot() -> None:
    """What is longer takes another for each chunk."""
    short, long = _told(b"x" * WORDS_BYTES_MAX), _told(b"x" * (WORDS_BYTES_MAX + 1))

    hello = 3
    assert short.sent["Gather", "messages"] == hello + 3
    assert short.sent["Gather", "bytes"] == (hello + 3) * BALLOT_BYTES
    assert (short.sent["Share", "messages"], long.sent["Share", "messages"]) == (0, 3)


def test_what_is_large_comes_in_chunks_and_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk is what is left."""
    monkeypatch.setattr(agreement_told, "CHUNK_BYTES", 100)
    payload = bytes(range(250)) + bytes(50) + b"e"
    simulation = _told(payload, b"", payload[:200])

    assert simulation.results == {rank: [payload, b"", payload[:200]] for rank in range(3)}
    assert simulation.sent["Share", "messages"] == 3 * (4 + 2)


def _unable(number: int) -> Asking[list[Any]]:
    voter = Voter(Seat(number, 3, 4.0, f"process {number}"))
    voter.seat.begin()
    first = yield from voter.tell(None, 0, "it has nothing to say" if number == 0 else "")
    return [first, (yield from voter.tell(b"x" if number == 0 else None, 0)), (yield from voter.decide(None, "so"))]


def test_a_rank_that_cannot_take_part_is_heard_and_the_part_of_the_transition_is_over() -> None:
    """What is told after it, and the meeting that ends the part, come to the same at once: nobody meets again."""
    simulation = Simulation([_unable(number) for number in range(3)])
    simulation.run()

    why = Failed({0: "it has nothing to say"}, (0,))
    assert simulation.results == {rank: [why, why, why] for rank in range(3)}
    assert simulation.sent["Gather", "messages"] == 3 * 2


def test_a_straggler_is_waited_for() -> None:
    """Shorter than the timeout is no fault."""
    came = came_of(simulated(USUAL, replace(USUAL, work_s=1.0), USUAL))

    assert came == [[Came("committed", None, (b"r", b"a", b"bb"))]] * 3


def test_tellings_before_and_within_a_transition_do_not_disturb_it() -> None:
    """All ranks commit all of them, in the same group."""
    simulation = simulated(*[replace(USUAL, event_count=3, before=(b"1", b"2"), after=(b"never",))] * 3)

    assert came_of(simulation) == [[Came("committed", None, (b"1", b"2", b"a", b"bb"))] * 3] * 3
    assert simulation.sent["Connect", "messages"] == 3


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("place", ["before 1", "before 2", "within 1", "within 2", "end"])
def test_why_a_rank_failed_is_heard_by_those_that_are_being_told_something(rank: int, place: str) -> None:
    """They do not wait for the timeout, nobody commits, and the next transition goes through."""
    tellers = [replace(USUAL, before=(b"1", b"2"), event_count=2)] * 3
    tellers[rank] = replace(tellers[rank], fails=place)
    simulation = simulated(*tellers)
    came = came_of(simulation)
    part = place.partition(" ")[0]
    why = "it broke at the end" if place == "end" else f"it broke {part}"

    for number, (first, second) in enumerate(came):
        assert first.end == ("nothing" if part == "before" else "undone")
        assert str(first.why) == why if number == rank else first.why == Failed({rank: why}, (rank,))
        assert second == Came("committed", None, (b"1", b"2", b"a", b"bb"))
    assert max(when for _, when, _ in simulation.ended) < 1


def test_an_undo_can_tell_something_too() -> None:
    """It is a part of the transition like the others."""
    came = came_of(simulated(*[replace(USUAL, fails="end", after=(b"u", b"v"))] * 3))

    assert came == [[Came("undone", came[rank][0].why, (b"r", b"a", b"bb", b"u", b"v"))] for rank in range(3)]


def test_an_undo_that_fails_is_heard_by_those_that_are_being_told_something() -> None:
    """All ranks are faulted."""
    stuck = replace(USUAL, within=(), after=(b"u",))
    came = came_of(simulated(replace(stuck, fails="end"), stuck, replace(stuck, fails="after 1")))

    assert [one[0].end for one in came] == ["faulted"] * 3


@pytest.mark.parametrize("fails", ["", "before 1", "within 2"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("rank", [0, 2])
def test_whenever_a_rank_is_lost_the_others_come_to_the_same_end(
    fault: str, rank: int, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rank commits what another one has undone, nobody else is named, and nobody hears half of something."""
    monkeypatch.setattr(agreement_told, "CHUNK_BYTES", 50)
    usual = replace(USUAL, within=(b"a", b"b" * 120), event_count=2)
    tellers = usual, replace(usual, fails=fails), usual
    ends = set()
    for event, simulation in lost_after_each_event(lambda: simulated(*tellers), fault, rank, 2 if fails else 1):
        left = [one for one in range(3) if fault == "cut" or one != rank]
        came = {one: simulation.results[one] for one in left}
        committed = {tuple(one.end == "committed" for one in came[at]) for at in left}
        assert len(committed) == 1, f"after event {event}: {came}"
        for one in (each for at in left for each in came[at]):
            assert not isinstance(one.why, Missing) or set(one.why.ranks) <= {rank} - set(left), (
                f"after {event}: {came}"
            )
            assert not isinstance(one.why, Fenced | Disagreed), f"after event {event}: {came}"
            assert set(one.heard) <= {b"r", *usual.within}
        ends |= committed

    assert ends >= ({(True, True)} if fault == "cut" and not fails else {(False, False)})
