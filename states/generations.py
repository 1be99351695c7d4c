"""Who sits with whom: groups that are lost are replaced, and who did not come is named and kept out. Pure generators.

A collective that fails says nothing about who is missing, and leaves its group dead. So every rank that loses a group
says so in a store outside the ranks, and the first that sees all of them, or runs out of time, writes the verdict over
that generation: once, for all. Ranks meet again in the next one. Who is named missing never does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from states.agreement import Agreed, Ballot, Disagreed, Failed, Fenced, Missing, Phase, Said, unpack_all
from states.agreement_requests import (
    Asking,
    Claim,
    Connect,
    Count,
    Disconnect,
    Gather,
    GroupLost,
    Look,
    Now,
    Pause,
    Put,
)
from states.seat import SIDE, Place, Seat

T = TypeVar("T")
LEFT_MIN_S: Final = 0.05
"""The least that a collective gets, in seconds, however late it is."""
_STAND_BY: Final = 8


def meet(seat: Seat, phase: Phase, talk: Callable[[float], Asking[T]]) -> Asking[T | Agreed | Missing | Fenced]:
    """Meet all ranks at a place of the run; if the group is lost, find out why, and meet again where that is right.

    Args:
        seat: this rank's place.
        phase: where in the transition.
        talk: what is said there; given the seconds that a collective may take.

    Returns:
        What came of the talk; ``Agreed`` when the others got through it, although this rank did not; ``Missing`` or
        ``Fenced``. A rank that is fenced once stays so.
    """
    started = yield Now()
    while seat.fenced is None:
        place = Place.at(seat, phase)
        trouble: Missing | Fenced | None
        try:
            trouble = yield from _join(seat, started)
            if trouble is None:
                left_s = yield from _left(seat, started)
                place = Place.at(seat, phase)
                result = yield from talk(left_s)
                if not _comes_again(seat, phase, result):
                    agreed = "+" if isinstance(result, Agreed) else "-"
                    yield Put(seat.key("passed", seat.rank), f"{place}{agreed}")
                return result
        except GroupLost:
            settled = yield from _settle(seat, place, started)
            if isinstance(settled, Agreed):
                return settled
            trouble = None if isinstance(settled, float) else settled
            started = settled if isinstance(settled, float) else started
        if trouble is not None:
            seat.fenced = trouble if isinstance(trouble, Fenced) else None
            return trouble
    return seat.fenced


def dissolve(seat: Seat) -> Asking[None]:
    """Leave the group together: all ranks know that what they met for has failed.

    Nobody is missing, and nobody is waited for: the next meeting is of those that come for it, other processes too.
    """
    if seat.connected:
        yield Disconnect()
        seat.connected = False
        yield from _rule(seat, {"missing": [], "sequence": seat.sequence, "committed": -1, "again": False})


def _comes_again(seat: Seat, phase: Phase, result: object) -> bool:
    """Whether this rank comes to another meeting of the transition in any case: it need not say that it passed."""
    if phase in SIDE:
        return seat.closing is not Phase.HELLO and not isinstance(result, Disagreed | Failed)
    return phase is Phase.DECIDED and isinstance(result, Agreed)


def _is_late(seat: Seat, started: float, order: int = 1) -> Asking[bool]:
    """Whether what is left of the time is needed to tell the others.

    Args:
        seat: this rank's place.
        started: when it came.
        order: which one it was. The first finds out who is missing, and a few stand by, one after another: the store
            would not bear it if thousands asked for all keys at once.
    """
    now: float = yield Now()
    waits_s = seat.grace_s / 2 * min(order - 1, _STAND_BY) / _STAND_BY
    return now >= started + seat.timeout_s - seat.grace_s / 2 + waits_s


def _left(seat: Seat, started: float) -> Asking[float]:
    """The seconds that a collective may take, so that there is time afterwards to find out who is missing."""
    now: float = yield Now()
    return max(LEFT_MIN_S, started + seat.timeout_s - seat.grace_s - now)


def _join(seat: Seat, started: float) -> Asking[Missing | Fenced | None]:
    """Sit in the first generation that is not over, if this rank sits nowhere. All ranks have to come."""
    if seat.connected:
        return None
    seat.generation += 1
    while (yield from _verdict(seat)) is not None:
        seat.generation += 1
    while (yield Claim(seat.key("joined", seat.rank), seat.incarnation)) != seat.incarnation:
        # The place is another process's until the others find that it is gone.
        while (yield from _verdict(seat)) is None:
            if (yield from _is_late(seat, started)):
                return Fenced(seat.generation, f"another process has joined as rank {seat.rank}")
            yield Pause(seat.wait_s)
        seat.generation += 1
    count = order = yield Count(seat.key("here"))
    # After it was counted: who has these keys is one of those that are there.
    yield Put(seat.key("lost", seat.rank), "")
    yield Put(seat.key("passed", seat.rank), "")
    while count < seat.world:
        here, verdict = yield Look((seat.key("here"), seat.key("verdict")))
        if verdict is not None:
            return _sentence(seat, json.loads(verdict), (yield Now()) - started)
        count = int(here)
        if count < seat.world and (yield from _is_late(seat, started, order)):
            came = yield Look(seat.keys("lost"))
            missing = [rank for rank, one in enumerate(came) if one is None]
            found = {"missing": missing, "sequence": seat.sequence, "committed": -1, "again": False}
            return _sentence(seat, (yield from _rule(seat, found)), (yield Now()) - started)
        yield Pause(seat.wait_s)
    left_s = yield from _left(seat, started)
    yield Connect(seat.generation, left_s)
    seat.connected = True
    hello = Ballot(Phase.HELLO, Said.NOTHING, seat.generation, seat.sequence).pack()
    held_all = yield Gather(hello, left_s)
    seat.sequence = max(one.sequence for one in unpack_all(held_all))
    return None


def _settle(seat: Seat, place: Place, started: float) -> Asking[Agreed | Missing | Fenced | float]:
    """The group is lost: say so, and learn or write the verdict.

    Returns:
        What the verdict says to this rank; or that it meets again in the next generation: since when it waits there.
    """
    yield Disconnect()
    seat.connected = False
    yield Put(seat.key("lost", seat.rank), str(place))
    order: int = yield Count(seat.key("losers"))
    is_last = order == seat.world
    while True:
        verdict = yield from _verdict(seat)
        is_late = yield from _is_late(seat, started, order)
        if verdict is None and (is_late or is_last or order == 1):
            verdict = yield from _weigh(seat, is_late=is_late)
        if verdict is not None:
            if (place.phase, place.turn) == (Phase.ACTED, 0) and verdict["committed"] >= place.sequence:
                return Agreed(place.sequence)
            # A verdict over an earlier transition is not about this one: the next generation will tell. Those that wait
            # for who was missing there have just begun to, so this rank has too.
            is_earlier = place.sequence > verdict["sequence"]
            if (verdict["again"] or is_earlier) and seat.rank not in verdict["missing"]:
                now: float = yield Now()
                return now if is_earlier else started
            return _sentence(seat, verdict, (yield Now()) - started)
        is_last = False
        yield Pause(seat.wait_s)


def _weigh(seat: Seat, *, is_late: bool) -> Asking[dict[str, Any] | None]:
    """Who answers, and how far the ranks got. A verdict once all have answered or time is over, else None."""
    told = yield Look((*seat.keys("lost"), *seat.keys("passed")))
    lost, passed = told[: seat.world], told[seat.world :]
    places = [Place.of(one) for one in lost if one]
    first = min(places)
    through = [bool(one) and Place.of(one) >= first for one in passed]
    missing = [rank for rank in range(seat.world) if not lost[rank] and not through[rank]]
    if missing and not is_late:
        return None
    commits = [one for one in passed if one and one.endswith("+")]
    committed = [found.sequence for found in map(Place.of, commits) if found.phase == Phase.ACTED]
    # Ranks that wait at one place can simply meet there again, if there is time; anything else is given up, by all.
    again = all(lost) and len(set(places)) == 1 and not is_late
    agreed = Place(first.sequence, Phase.DECIDED)
    found = {"missing": missing, "sequence": first.sequence, "committed": max(committed, default=-1), "again": again}
    found["begun"] = any(one > agreed for one in places if one.sequence == first.sequence)
    return (yield from _rule(seat, found))


def _rule(seat: Seat, found: dict[str, Any]) -> Asking[dict[str, Any]]:
    """Write the verdict over a generation, or learn the one that another rank wrote first."""
    held = yield Claim(seat.key("verdict"), json.dumps(found))
    verdict: dict[str, Any] = json.loads(held)
    return verdict


def _verdict(seat: Seat) -> Asking[dict[str, Any] | None]:
    (held,) = yield Look((seat.key("verdict"),))
    return None if held is None else json.loads(held)


def _sentence(seat: Seat, verdict: dict[str, Any], waited_s: float) -> Missing | Fenced:
    missing = tuple(verdict["missing"])
    if seat.rank in missing:
        why = "it did not answer in time, and the other ranks have gone on without it"
        return Fenced(seat.generation, why)
    return Missing(missing, seat.generation, waited_s, has_begun=verdict.get("begun", False))
