"""Ranks of the simulation: what one rank does in a transition, and with which facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lifecycle.distributed.simulated import Model, Simulation
from states import Facts, TrainerEvent, TrainerState, decide
from states.agreement import Agreed, Failed, Phase, Proposal, Said
from states.agreement_requests import Asking, Pause
from states.agreement_rounds import Voter
from states.seat import Seat

SLEEP, AWAKE = TrainerEvent.SLEEP, TrainerState.AWAKE
_USUAL = Facts()


@dataclass
class Rank:
    """One simulated rank.

    Attributes:
        facts: its facts in each transition; the last ones for all that follow.
        event: what it asks.
        late_s: seconds before it comes to the first meeting.
        work_s: how long its effects take.
        fails: the transitions, from 1, whose effects fail.
        faults: those whose undo fails too.
        result: what came of its effects.
    """

    facts: Facts = _USUAL
    event: TrainerEvent = SLEEP
    late_s: float = 0.0
    work_s: float = 0.01
    fails: tuple[int, ...] = ()
    faults: tuple[int, ...] = ()
    timeout_s: float = 4.0
    result: str = ""
    state: TrainerState = AWAKE
    incarnation: str = ""

    def proposal(self) -> Proposal:
        """What it would do."""
        return Proposal(self.event, self.state, self.facts, decide(self.state, self.event, self.facts))


def transition(voter: Voter, rank: Rank, number: int, propose: Callable[[], Proposal] | None = None) -> Asking[Any]:
    """One transition as the controller takes it: meet, act, meet, and undo and meet where a rank failed."""
    decided = yield from voter.decide((propose or rank.proposal)())
    if not isinstance(decided, Agreed):
        return decided
    yield Pause(rank.work_s)
    failed = number in rank.fails
    said = Said.FAILED if failed else Said.NOTHING
    acted = yield from voter.vote(Phase.ACTED, said, "it broke" if failed else "", rank.result)
    if not isinstance(acted, Failed):
        return acted
    faulted = number in rank.faults
    said = Said.FAILED if faulted else Said.NOTHING
    undone = yield from voter.vote(Phase.UNDONE, said, "it stays broken" if faulted else "")
    return undone if isinstance(undone, Failed) else acted


def script(number: int, world: int, rank: Rank, transitions: int = 1) -> Asking[list[Any]]:
    """All transitions of one rank. Returns what came of each."""
    voter = Voter(Seat(number, world, rank.timeout_s, rank.incarnation or f"process {number}"))
    yield Pause(rank.late_s)
    found: list[Any] = []
    while len(found) < transitions:
        found += [(yield from transition(voter, rank, len(found) + 1))]
    return found


def simulated(*ranks: Rank, transitions: int = 1, model: Model | None = None) -> Simulation:
    """These ranks, not yet run."""
    return Simulation([script(number, len(ranks), one, transitions) for number, one in enumerate(ranks)], model)


def four(transitions: int = 1, **changed: Rank) -> Simulation:
    """Four ranks; those named, such as ``r2``, are others than usual."""
    return simulated(*(changed.get(f"r{number}", Rank()) for number in range(4)), transitions=transitions)
