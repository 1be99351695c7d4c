"""Thousands of ranks in one process: the real decisions and the real agreement, over messages in simulated time.

    python -m tests.bench.simulate_ranks --ranks 64 512 4096 --adapters 10000

What is real is what runs on a rank: `decide`, the machine, the digests and the protocol, word for word as over gloo.
What is simulated is the network, the store and the time (`lifecycle.distributed.simulated.Model`). Ranks with the same
facts share one record of them, its decision and its digests, which a rank of its own would work out once an event; what
that costs is measured first, and printed.

Four runs for each number of ranks: alike; with stragglers; with a rank that is lost in the middle of its effects; and
with a rank that has another version of one adapter. Printed are:

- `events/s`: transitions of one rank, times ranks, that this machine takes through in a second of its own time;
- `bytes`: what a rank puts into one agreement (before and after), and what it hears of the others;
- `in meetings`: simulated time that a rank spends in the meetings of a transition, waiting for slower ones included;
- `detected`: simulated time from the fault (or the start) to the last rank's error.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass, replace
from typing import Any

from lifecycle.distributed.simulated import Simulation
from states import ContentFacts, Facts, Step, TrainerEvent, TrainerMachine, TrainerState, decide
from states.agreement import Agreed, Disagreed, Missing, Phase, Proposal
from states.agreement_digest import Digester
from states.agreement_requests import Asking, Now, Pause
from states.agreement_rounds import Voter
from states.seat import Seat

_EVENTS = ((TrainerEvent.SLEEP, TrainerState.AWAKE), (TrainerEvent.WAKE_UP, TrainerState.SLEEPING))
_WORK_S = 0.5


@dataclass
class Shared:
    """What ranks with the same facts have in common."""

    facts: tuple[Facts, ...]
    digester: Digester

    @classmethod
    def of(cls, adapters: int, events: int, odd: int = 0) -> Shared:
        """Facts of each event; one adapter has changed from one to the next. *odd* is added to one version."""
        held = [ContentFacts(group=f"adapter/a{number}", frozen=False) for number in range(adapters)]
        told = []
        for event in range(events):
            held[event % adapters] = replace(held[event % adapters], version=event + 2, live=event + 2)
            last = replace(held[-1], version=held[-1].version + odd, live=held[-1].version + odd)
            told.append(Facts(contents=(ContentFacts(), *held[:-1], last)))
        return cls(tuple(told), Digester())

    def proposals(self) -> list[Proposal]:
        """What is decided on them."""
        found = []
        for number, facts in enumerate(self.facts):
            event, state = _EVENTS[number % 2]
            found.append(Proposal(event, state, facts, decide(state, event, facts)))
        return found


@dataclass
class Told:
    """What one rank went through."""

    ends: list[Any]
    meeting_s: float = 0.0


def script(seat: Seat, machine: TrainerMachine, shared: Shared, proposals: list[Proposal], slow: float) -> Asking[Told]:
    """One rank: every event as the controller takes it."""
    draw = random.Random(seat.rank)  # noqa: S311 - the same numbers each time
    voter, told = Voter(seat, shared.digester), Told([])
    for proposal in proposals:
        met: float = yield Now()
        found = yield from voter.decide(proposal)
        told.meeting_s += (yield Now()) - met
        if isinstance(found, Agreed):
            yield Pause(slow * _WORK_S * draw.uniform(0.9, 1.1))
            met = yield Now()
            found = yield from voter.vote(Phase.ACTED)
            told.meeting_s += (yield Now()) - met
        if isinstance(found, Agreed) and isinstance(proposal.decision, Step):
            machine.take(proposal.decision)
        told.ends.append(found)
        if not isinstance(found, Agreed):
            break
    return told


def simulate(ranks: int, adapters: int, events: int, timeout_s: float, fault: str) -> None:
    """One run, and its line."""
    shared = Shared.of(adapters, events)
    proposals = shared.proposals()
    odd = Shared.of(adapters, events, odd=7)
    others = {ranks // 2: (odd, odd.proposals())} if fault == "a disagreement" else {}
    slow = {rank: 4.0 for rank in range(ranks) if fault == "stragglers" and rank % 100 == 1}
    machines = [TrainerMachine(TrainerState.AWAKE) for _ in range(ranks)]
    simulation = Simulation(
        [
            script(
                Seat(rank, ranks, timeout_s, str(rank)),
                machines[rank],
                *others.get(rank, (shared, proposals)),
                slow.get(rank, 1.0),
            )
            for rank in range(ranks)
        ]
    )
    at_s = 0.0
    if fault == "a lost rank":
        at_s = simulation.model.connect_s * ranks + 2.5 * _WORK_S
        simulation.kill(ranks // 2, at_s)
    started = time.perf_counter()
    simulation.run()
    took_s = time.perf_counter() - started
    ends = [one for rank, one in sorted(simulation.results.items())]
    done = sum(len(one.ends) for one in ends)
    kinds = {type(one.ends[-1]) for one in ends}
    assert kinds == {Missing if fault == "a lost rank" else Disagreed if others else Agreed}, kinds
    transitions = done / ranks
    waited_s = sum(one.meeting_s for one in ends) / done
    detected_s = max(when for _, when, _ in simulation.ended) - at_s
    print(
        f"{ranks:6} {adapters:9}  {fault:14}  {done / took_s:9,.0f}"
        f"  {simulation.sent['Gather', 'bytes'] / ranks / transitions:8,.0f}"
        f"  {simulation.received_bytes / transitions:11,.0f}"
        + (f"  {waited_s * 1e3:9,.0f} ms" if kinds == {Agreed} else f"  {detected_s:25.2f} s"),
        flush=True,
    )


def one_rank(adapters: int) -> None:
    """What a rank spends on itself for each event."""
    shared = Shared.of(adapters, 12)
    started = time.process_time()
    proposals = shared.proposals()
    decided = (time.process_time() - started) / len(proposals)
    took = []
    for proposal in proposals:
        started = time.process_time()
        proposal.ballot(shared.digester, 0, 1).pack()
        took.append(time.process_time() - started)
    print(
        f"one rank, {adapters} adapters: decision {decided * 1e3:.2f} ms, digest {sorted(took)[6] * 1e3:.2f} ms "
        f"(the first {took[0] * 1e3:.0f} ms)"
    )


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulate_ranks", description=main.__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 64, 512, 4096])
    parser.add_argument("--adapters", type=int, nargs="+", default=[10_000])
    parser.add_argument("--events", type=int, default=4)
    parser.add_argument("--timeout-s", type=float, default=10.0)
    given = parser.parse_args()
    for adapters in given.adapters:
        one_rank(adapters)
    print(" ranks  adapters  fault           events/s  bytes in  bytes heard    in meetings     detected")
    for ranks in given.ranks:
        for adapters in given.adapters:
            for fault in ("none", "stragglers", "a lost rank", "a disagreement"):
                simulate(ranks, adapters, given.events, given.timeout_s, fault)


if __name__ == "__main__":
    main()
