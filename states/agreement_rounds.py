"""The meetings of ranks: before they act, after it, and after an undo. Pure generators of requests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Final

from states.agreement import (
    Agreed,
    Ballot,
    Declined,
    Disagreed,
    Failed,
    Fenced,
    Missing,
    Moved,
    Phase,
    Proposal,
    Said,
    unpack_all,
)
from states.agreement_differences import TOLD_MAX, differences, explained, groups_of, tellers, unlike
from states.agreement_digest import Digester, digest_of, plain
from states.agreement_places import REASON_MAX, apart, aside, ranks_that_say, reasons
from states.agreement_refusals import joined, refusal_told
from states.agreement_requests import Asking, Gather, Share
from states.agreement_told import tell
from states.decision import Refusal
from states.facts import Facts
from states.generations import dissolve, meet
from states.joining import Assembled, assembled, differing_roles
from states.seat import Seat

_NO_RESULT: Final = digest_of("")

Decided = Agreed | Disagreed | Declined | Moved | Failed | Missing | Fenced
Voted = Agreed | Disagreed | Failed | Missing | Fenced


@dataclass
class Voter:
    """One rank's part in the agreement.

    Args:
        seat: its place among the ranks.

    Attributes:
        assembles: the ranks have met to build trainers or to join, and have neither come through nor begun an event.
    """

    seat: Seat
    digester: Digester = field(default_factory=Digester)
    assembles: bool = False

    def decide(self, proposal: Proposal | None, reason: str = "", moved: Said = Said.NOTHING) -> Asking[Decided]:
        """Meet before anything is done. Every rank calls it once an event, also one that refuses, or fails before.

        Args:
            proposal: what this rank would do; None when it failed before it could decide.
            reason: why it failed.
            moved: ``MOVED`` when what the ranks share has changed here since they were told of it.

        Returns:
            What to do, the same on every rank that is there: see the results in :mod:`states.agreement`.
        """
        seat = self.seat
        self.assembles = False
        if seat.closing is not Phase.DECIDED:
            seat.begin()
        found: Decided
        if seat.stopped is not None:
            found = seat.stopped
        else:
            found = yield from meet(seat, Phase.DECIDED, lambda left_s: self._propose(proposal, reason, left_s, moved))
        seat.enter(Phase.ACTED if isinstance(found, Agreed) else Phase.HELLO)
        return found

    def vote(self, phase: Phase, said: Said = Said.NOTHING, reason: str = "", result: str = "") -> Asking[Voted]:
        """Meet after the effects (``ACTED``), or after an undo (``UNDONE``).

        Args:
            phase: which of them.
            said: whether this rank has failed, or could not go back.
            reason: why, in words.
            result: what came of the effects, as far as it must be alike: such as the adapters that were left out.
        """
        seat = self.seat
        found: Voted
        if phase is Phase.UNDONE and not seat.connected:
            found = Agreed(seat.sequence)  # where the group was lost there is nobody to meet
        elif seat.stopped is not None:
            found = seat.stopped
        else:
            found = yield from meet(seat, phase, lambda left_s: self._vote(phase, said, reason, result, left_s))
        undoes = phase is Phase.ACTED and not isinstance(found, Agreed)
        seat.enter(Phase.UNDONE if undoes else Phase.HELLO, found if undoes and isinstance(found, Missing) else None)
        if phase is Phase.UNDONE and self.assembles:
            yield from dissolve(seat)
        self.assembles = self.assembles and undoes
        return found

    def tell(self, payload: bytes | None, teller: int, reason: str = "") -> Asking[bytes | Voted]:
        """Say something to all ranks, or hear it: see :func:`states.agreement_told.tell`."""
        return (yield from tell(self.seat, payload, teller, reason))

    def count(self, facts: Facts) -> Asking[Facts | Voted]:
        """Look at the tags of all ranks together. What is nearest on one rank need not be on another.

        Returns:
            The facts with the tags of all ranks, to decide ``recover`` on.
        """
        tags = facts.active_tags, facts.paused_tags, int(facts.scratch_paused)
        found = yield from self._compare(Ballot(Phase.COMPARED, Said.NOTHING, 0, 0, 0, *tags))
        if not isinstance(found, tuple):
            return found
        return replace(
            facts,
            active_tags=sum(one.active_tags for one in found),
            paused_tags=sum(one.paused_tags for one in found),
            scratch_paused=any(one.scratch_paused for one in found),
        )

    def assemble(self, version: int, said: Said = Said.NOTHING, reason: str = "") -> Asking[Assembled | Voted]:
        """Meet where trainers are built, or ranks join: who comes for what, and the largest of the version ids.

        Where that fails, here or before the end, the ranks leave the group: who failed may be replaced by then.

        Args:
            version: the newest that this process has used; new ones begin above the largest of all ranks.
            said: whether this rank joins, or admits who does, or has failed on the way here.
            reason: why it failed.
        """
        found = yield from self._compare(Ballot(Phase.COMPARED, said, 0, 0, version), reason)
        self.assembles = True
        unlike_roles = differing_roles(found) if isinstance(found, tuple) else None
        if unlike_roles is not None or isinstance(found, Failed):
            yield from self.vote(Phase.UNDONE)  # all came for this, so all leave
        if unlike_roles is not None:
            return Disagreed(self.seat.sequence, "", (unlike_roles,))
        if not isinstance(found, tuple):
            return found
        self.seat.enter(Phase.ACTED)  # all say in the end whether they have got there
        return assembled(self.seat.rank, found)

    def marks(self, mark: bytes, by: int) -> Asking[tuple[bytes, ...] | Voted]:
        """The marks of all ranks, each of the size of a digest: as of when they have what rank *by* shares."""
        found = yield from self._compare(Ballot(Phase.SHARED, Said.NOTHING, 0, 0, teller=by, facts=mark))
        return tuple(one.facts for one in found) if isinstance(found, tuple) else found

    def _compare(self, told: Ballot, reason: str = "") -> Asking[tuple[Ballot, ...] | Voted]:
        def talk(left_s: float) -> Asking[tuple[Ballot, ...] | Disagreed | Failed]:
            ballots = unpack_all((yield Gather(self.seat.aside(told).pack(), left_s)))
            if (found := (yield from apart(self.seat, ballots, reason, left_s))) is not None:
                return found
            if failed := ranks_that_say(ballots, Said.FAILED):
                return (yield from reasons(failed, reason, left_s))
            return ballots

        return (yield from aside(self.seat, Phase(told.phase), talk))

    def _propose(
        self, proposal: Proposal | None, reason: str, left_s: float, moved: Said = Said.NOTHING
    ) -> Asking[Decided]:
        seat = self.seat
        own = Ballot(Phase.DECIDED, Said.FAILED, seat.generation, seat.sequence)
        if proposal is not None:
            own = proposal.ballot(self.digester, seat.generation, seat.sequence)
            own = own._replace(said=own.said | moved)
        packed = own.pack()
        held = yield Gather(packed, left_s)
        if own.said is Said.NOTHING and held == packed * seat.world:
            return Agreed(seat.sequence)
        ballots = unpack_all(held)
        event = "" if proposal is None else str(proposal.event)
        if (found := (yield from apart(seat, ballots, reason, left_s, event))) is not None:
            return found
        if failed := ranks_that_say(ballots, Said.FAILED):
            return (yield from reasons(failed, reason, left_s))
        if ranks_that_say(ballots, Said.MOVED):
            return Moved()
        assert proposal is not None  # else this rank is among the failed
        refusing = ranks_that_say(ballots, Said.REFUSES)
        acting = [rank for rank in range(seat.world) if rank not in set(refusing)]
        if len({one.facts for one in ballots}) > 1 or len({ballots[rank].decision for rank in acting}) > 1:
            return (yield from self._explain(proposal, acting, left_s))
        if not refusing:
            return Agreed(seat.sequence)
        return (yield from self._refuse(proposal, ballots, refusing, left_s))

    def _explain(self, proposal: Proposal, acting: list[int], left_s: float) -> Asking[Disagreed]:
        entries = proposal.entries()
        table = self.digester.table(tuple(entries), tuple(entries.values()))
        held = yield Gather(table, left_s)
        facts = unlike(held, len(table), tuple(acting))
        chosen = tellers(facts)
        tells = self.seat.rank in chosen
        told = json.dumps({name: plain(entries[name]) for name in facts}).encode() if tells else b""
        answers = yield Share(chosen, told, left_s)
        found, more = explained(held, len(table), tuple(acting), answers)
        return Disagreed(self.seat.sequence, str(proposal.event), found, more)

    def _refuse(
        self, proposal: Proposal, ballots: tuple[Ballot, ...], refusing: tuple[int, ...], left_s: float
    ) -> Asking[Declined]:
        own = proposal.decision if isinstance(proposal.decision, Refusal) else None
        is_alike = len(refusing) == len(ballots) and not ranks_that_say(ballots, Said.REFUSES_BY_ITSELF)
        if is_alike and own is not None:
            return Declined(own, refusing)
        chosen = refusing[:TOLD_MAX]
        told = b"" if own is None else json.dumps(refusal_told(own)).encode()
        answers = yield Share(chosen, told, left_s)
        values = {rank: json.loads(one) for rank, one in zip(chosen, answers, strict=True)}
        return Declined(joined(values, refusing), refusing)

    def _vote(self, phase: Phase, said: Said, reason: str, result: str, left_s: float) -> Asking[Voted]:
        seat = self.seat
        packed = Ballot(
            phase, said, seat.generation, seat.sequence, facts=digest_of(result) if result else _NO_RESULT
        ).pack()
        held = yield Gather(packed, left_s)
        if said is Said.NOTHING and held == packed * seat.world:
            return Agreed(seat.sequence)
        ballots = unpack_all(held)
        if (found := (yield from apart(seat, ballots, reason, left_s, phase.name.lower()))) is not None:
            return found
        if failed := ranks_that_say(ballots, Said.FAILED):
            return (yield from reasons(failed, reason, left_s))
        groups = {"result": groups_of([one.facts for one in ballots])}
        chosen = tellers(groups)
        answers = yield Share(chosen, json.dumps({"result": result[:REASON_MAX]}).encode(), left_s)
        unlike_results, more = differences(
            groups, {rank: json.loads(one) for rank, one in zip(chosen, answers, strict=True)}
        )
        return Disagreed(seat.sequence, phase.name.lower(), unlike_results, more)
