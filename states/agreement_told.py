"""One rank says something to all. A pure generator of requests.

What is short stands in the ballot, so that telling it takes one collective; what is not follows in chunks.
"""

from __future__ import annotations

from typing import Final

from states.agreement import (
    WORDS_BYTES_MAX,
    Agreed,
    Ballot,
    Disagreed,
    Failed,
    Fenced,
    Missing,
    Phase,
    Said,
    unpack_all,
)
from states.agreement_digest import DIGEST_BYTES
from states.agreement_places import apart, aside, ranks_that_say, reasons
from states.agreement_requests import Asking, Gather, Now, Share
from states.generations import LEFT_MIN_S
from states.seat import Seat

CHUNK_BYTES: Final = 1 << 26
TELLING_BYTES_MAX: Final = 1 << 30
"""The most that can be told at a time."""

Heard = bytes | Agreed | Disagreed | Failed | Missing | Fenced


def tell(seat: Seat, payload: bytes | None, teller: int, reason: str = "") -> Asking[Heard]:
    """Meet, and hear what one rank says. Every rank calls it, in the same order as all other meetings.

    Args:
        seat: this rank's place.
        payload: what is said, on the rank that says it; None on the others, and where this rank cannot take part.
        teller: who says it.
        reason: why this rank cannot tell it, or hear it; all hear that in its place.

    Returns:
        What was said; or why nothing was, the same on every rank that is there. Inside a transition that part of it
        is over then, and the meeting that ends it takes no time.
    """
    return (yield from aside(seat, Phase.TOLD, lambda left_s: _talk(seat, payload, teller, reason, left_s)))


def _talk(
    seat: Seat, payload: bytes | None, teller: int, reason: str, left_s: float
) -> Asking[bytes | Disagreed | Failed]:
    begun: float = yield Now()
    ballot = seat.aside(_ballot(payload, teller, failed=bool(reason)))
    ballots = unpack_all((yield Gather(ballot.pack(), left_s)))
    if (found := (yield from apart(seat, ballots, reason, left_s))) is not None:
        return found
    if failed := ranks_that_say(ballots, Said.FAILED):
        return (yield from reasons(failed, reason, left_s))
    told = ballots[teller]
    if told.told_bytes <= WORDS_BYTES_MAX:
        return (told.facts + told.decision)[: told.told_bytes]
    chunks = []
    for at in range(0, told.told_bytes, CHUNK_BYTES):
        now: float = yield Now()
        chunk = b"" if payload is None else payload[at : at + CHUNK_BYTES]
        chunks += yield Share((teller,), chunk, max(LEFT_MIN_S, begun + left_s - now))
    return b"".join(chunks) if payload is None else payload


def _ballot(payload: bytes | None, teller: int, *, failed: bool) -> Ballot:
    said = Said.FAILED if failed else Said.NOTHING
    ballot = Ballot(Phase.TOLD, said, 0, 0, teller=teller)
    if payload is None:
        return ballot
    words = payload.ljust(WORDS_BYTES_MAX, b"\0") if len(payload) <= WORDS_BYTES_MAX else bytes(WORDS_BYTES_MAX)
    facts, decision = words[:DIGEST_BYTES], words[DIGEST_BYTES:]
    return ballot._replace(told_bytes=len(payload), facts=facts, decision=decision)
