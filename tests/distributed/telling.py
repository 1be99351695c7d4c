"""Ranks of the simulation that tell each other something: before they decide, while they act, and while they undo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lifecycle.distributed.simulated import Model, Simulation
from states import Facts, TrainerEvent, TrainerState, decide
from states.agreement import Agreed, Phase, Proposal, Said
from states.agreement_requests import Asking, Pause
from states.agreement_rounds import Voter
from states.seat import Seat

_FACTS = Facts()
_PROPOSAL = Proposal(
    TrainerEvent.SLEEP, TrainerState.AWAKE, _FACTS, decide(TrainerState.AWAKE, TrainerEvent.SLEEP, _FACTS)
)


class Broke(Exception):
    """Something failed on this rank; what it is told in words."""


@dataclass
class Teller:
    """What one rank does in a transition with tellings in it.

    Attributes:
        before: what is told while facts are gathered, each in turn.
        within: what is told while the effects run.
        after: what is told while the effects are undone.
        by: who tells it all.
        fails: where it fails in its first transition: ``"before 1"`` in place of the first telling before, and so on;
            ``"end"`` when all was told.
        work_s: seconds before each telling and each meeting.
        event_count: how many transitions it takes, one after another.
    """

    before: tuple[bytes, ...] = (b"r",)
    within: tuple[bytes, ...] = (b"a", b"bb")
    after: tuple[bytes, ...] = ()
    by: int = 0
    fails: str = ""
    work_s: float = 0.01
    event_count: int = 1
    timeout_s: float = 4.0


@dataclass
class Came:
    """What came of one transition on one rank.

    Attributes:
        end: ``"committed"``, ``"undone"``, ``"faulted"`` or ``"nothing"``: where it did not begin to act.
        why: what was found by the first meeting that did not go well; the words of its own failure, where it failed.
        heard: what it was told.
    """

    end: str
    why: Any
    heard: tuple[bytes, ...]


def _tell_all(voter: Voter, one: Teller, part: str, payloads: tuple[bytes, ...], heard: list[bytes]) -> Asking[Any]:
    """Tell or hear each of them. Returns what went wrong, or None."""
    for number, payload in enumerate(payloads, 1):
        yield Pause(one.work_s)
        if one.fails == f"{part} {number}":
            return Broke(f"it broke {part}")
        told = yield from voter.tell(payload if voter.seat.rank == one.by else None, one.by)
        if not isinstance(told, bytes):
            return told
        heard.append(told)
    return None


def transition(voter: Voter, one: Teller) -> Asking[Came]:
    """One transition as the runner takes it."""
    heard: list[bytes] = []
    voter.seat.begin()
    wrong = yield from _tell_all(voter, one, "before", one.before, heard)
    if wrong is not None:
        yield from voter.decide(None, str(wrong))
        return Came("nothing", wrong, tuple(heard))
    decided = yield from voter.decide(_PROPOSAL)
    if not isinstance(decided, Agreed):
        return Came("nothing", decided, tuple(heard))
    return (yield from _act(voter, one, heard))


def _act(voter: Voter, one: Teller, heard: list[bytes]) -> Asking[Came]:
    wrong = yield from _tell_all(voter, one, "within", one.within, heard)
    yield Pause(one.work_s)
    if wrong is None and one.fails == "end":
        wrong = Broke("it broke at the end")
    acted = yield from voter.vote(Phase.ACTED, Said.NOTHING if wrong is None else Said.FAILED, str(wrong))
    if isinstance(acted, Agreed):
        assert wrong is None, "nobody commits what failed"
        return Came("committed", None, tuple(heard))
    stuck = yield from _tell_all(voter, one, "after", one.after, heard)
    undone = yield from voter.vote(Phase.UNDONE, Said.NOTHING if stuck is None else Said.FAILED, str(stuck))
    is_back = stuck is None and isinstance(undone, Agreed)
    return Came("undone" if is_back else "faulted", acted if wrong is None else wrong, tuple(heard))


def script(number: int, world: int, one: Teller, incarnation: str = "") -> Asking[list[Came]]:
    """All transitions of one rank."""
    voter = Voter(Seat(number, world, one.timeout_s, incarnation or f"process {number}"))
    came: list[Came] = []
    while len(came) < one.event_count:
        came += [(yield from transition(voter, one if not came else replace(one, fails="")))]
    return came


def simulated(*tellers: Teller, model: Model | None = None) -> Simulation:
    """These ranks, not yet run."""
    return Simulation([script(number, len(tellers), one) for number, one in enumerate(tellers)], model)


def came_of(simulation: Simulation) -> list[list[Came]]:
    """Run it. What came of every transition on every rank, in the order of the ranks."""
    simulation.run()
    return [simulation.results[rank] for rank in range(simulation.world)]
