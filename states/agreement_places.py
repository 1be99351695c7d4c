"""Ranks that meet at different places of the run, and meetings inside a part of a transition. Pure generators."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeVar

from states.agreement import Agreed, Ballot, Difference, Disagreed, Failed, Fenced, Missing, Phase, Reason, Said
from states.agreement_differences import TOLD_MAX, groups_of
from states.agreement_requests import Asking, Share
from states.generations import meet
from states.seat import SIDE, Seat

T = TypeVar("T")
REASON_MAX: Final = 2000
_LIBRARY: Final = "version of this library"


def aside(
    seat: Seat, phase: Phase, talk: Callable[[float], Asking[T | Disagreed | Failed]]
) -> Asking[T | Disagreed | Failed | Agreed | Missing | Fenced]:
    """A meeting inside a part of a transition, or by itself. One that fails stops the part it is in, on every rank.

    Args:
        seat: this rank's place.
        phase: which of :data:`states.seat.SIDE`.
        talk: see :func:`states.generations.meet`.

    Returns:
        As :func:`states.generations.meet`; at once what stopped the part, where it is stopped.
    """
    if seat.stopped is not None:
        return seat.stopped
    if seat.closing is Phase.HELLO:
        seat.sequence += 1
    else:
        seat.turn += 1
    found = yield from meet(seat, phase, talk)
    if seat.closing is not Phase.HELLO and isinstance(found, Missing | Disagreed | Failed):
        seat.stopped = found
    return found


def apart(
    seat: Seat, ballots: tuple[Ballot, ...], reason: str, left_s: float, event: str = ""
) -> Asking[Disagreed | Failed | None]:
    """What comes of a meeting of ranks that are at different places; None where all are at one.

    A rank that has failed goes to the meeting that ends the part, while others may still be in one before it. Their
    meeting is the one that ends the part then: all hear why it failed, and none of them meets there again.

    Args:
        seat: this rank's place; its sequence number goes on from the furthest.
        ballots: of all ranks.
        reason: why this rank failed, if it did.
        left_s: the seconds that a collective may take.
        event: what this rank asked.
    """
    found = _unlike_places(ballots)
    if not found:
        return None
    seat.sequence = max(one.sequence for one in ballots)
    failed = ranks_that_say(ballots, Said.FAILED)
    if failed and _is_end_of_part(ballots):
        return (yield from reasons(failed, reason, left_s))
    return Disagreed(seat.sequence, event, found)


def reasons(failed: tuple[int, ...], reason: str, left_s: float) -> Asking[Failed]:
    """Why these ranks failed; of many the first few say it."""
    chosen = failed[:TOLD_MAX]
    adapter = reason.adapter if isinstance(reason, Reason) else ""
    answers = yield Share(chosen, json.dumps([reason[:REASON_MAX], adapter]).encode(), left_s)
    return Failed({rank: Reason(*json.loads(one)) for rank, one in zip(chosen, answers, strict=True)}, failed)


def ranks_that_say(ballots: tuple[Ballot, ...], said: Said) -> tuple[int, ...]:
    """Those whose ballot has it."""
    return tuple(rank for rank, one in enumerate(ballots) if one.said & said)


def _is_end_of_part(ballots: tuple[Ballot, ...]) -> bool:
    """Whether all are in one part of one transition: some at its end, the others before it."""
    parts = {(one.schema, one.sequence, one.closing if one.phase in SIDE else one.phase) for one in ballots}
    return len(parts) == 1


def _unlike_places(ballots: tuple[Ballot, ...]) -> tuple[Difference, ...]:
    """Ranks that run another library, or are at another place of the run."""
    looked = (
        (_LIBRARY, [one.schema.hex() for one in ballots]),
        ("sequence", [str(one.sequence) for one in ballots]),
        ("place", list(map(_place, ballots))),
    )
    found = []
    for name, values in looked:
        groups = groups_of(values)
        if len(groups) > 1:
            found.append(Difference(name, tuple((ranks, values[ranks[0]]) for ranks in groups)))
    return tuple(found)


def _place(one: Ballot) -> str:
    name = Phase(one.phase).name.lower()
    if one.phase in (Phase.TOLD, Phase.SHARED):
        name = f"{name} by rank {one.teller}"
    if one.phase not in SIDE or one.closing == Phase.HELLO:
        return name
    return f"{name} ({one.turn} before {Phase(one.closing).name.lower()})"
