"""What ranks raise together. Each of these has the same words on every rank that is there.

RanksError
├── RanksDisagree   the caller: ranks ask for different things, or have different facts; nothing was done
├── RanksApart      the caller: ranks make different calls to an engine that they share
├── JoinRefused     the caller: a new process that joins is not like the others
├── RanksMissing    the world: ranks did not come in time
├── RankFenced      the world: the others have gone on without this process
├── RanksFailed     the world: a rank failed, so all went back
└── StoreLost       the world: the store outside the ranks does not answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lifecycle.errors import RanksError
from states.agreement import Difference, Disagreed, Failed, Fenced, Missing, Reason

_NAMED: Final = 8


class RanksDisagree(RanksError):
    """Ranks have something unlike that must be alike. No rank has done anything.

    Attributes:
        sequence: the number of the transition.
        event: what this rank asked for.
        differences: what differs, each with the ranks and both values; the first few.
        ranks: the ranks that are not among the most numerous, of all these.
    """

    def __init__(self, found: Disagreed) -> None:
        self.sequence = found.sequence
        self.event = found.event
        self.differences: tuple[Difference, ...] = found.differences
        self.ranks = tuple(sorted({rank for one in found.differences for rank in one.ranks}))
        told = "; ".join(_told(one) for one in found.differences)
        more = f"; {found.more} more" if found.more else ""
        super().__init__(
            f"ranks disagree at transition {found.sequence}, nothing was done: {told}{more}. "
            "What to do: give every rank the same configuration, adapters and calls, in the same order"
        )


class RanksApart(RanksError):
    """Ranks make different calls to an engine that they share. What the one rank called was done.

    Attributes:
        engine: its name.
        made: the call that was made.
        expected: the call that this rank makes.
    """

    def __init__(self, engine: str, by: int, made: str, expected: str) -> None:
        self.engine = engine
        self.made = made
        self.expected = expected
        super().__init__(
            f"the ranks have come apart: rank {by} calls {made} of engine {engine}, this rank calls {expected}. "
            "What to do: make the same calls on every rank, in the same order; what stopped one of them is in its log"
        )


class RanksMissing(RanksError):
    """Ranks did not come to a meeting in time, or the ranks were at different places when the group broke.

    Attributes:
        ranks: who did not come; empty when all did, and the group broke half-way.
        generation: the generation of the group that is over now.
        waited_s: how long this rank waited, in seconds.
        has_begun: ranks had begun to act when the group broke.
    """

    def __init__(self, found: Missing) -> None:
        self.ranks = found.ranks
        self.generation = found.generation
        self.waited_s = found.waited_s
        self.has_begun = found.has_begun
        if found.ranks:
            what = f"{ranks_told(found.ranks)} did not come in time"
            remedy = "look at the end of their logs, start them anew, and send the event again; or end this rank too"
        else:
            what = "the connections between the ranks broke half-way, and no rank is missing"
            remedy = "send the event again"
        super().__init__(f"{what} (generation {found.generation}). What to do: {remedy}")


class RankFenced(RanksError):
    """This process may not take part any more: the other ranks went on without it, or another one has its rank.

    Attributes:
        generation: the generation that it was last in.
        why: what happened.
    """

    def __init__(self, found: Fenced) -> None:
        self.generation = found.generation
        self.why = found.why
        super().__init__(
            f"this rank is fenced since generation {found.generation}: {found.why}. What to do: end this process; "
            "one that is to take its place loads the present versions and joins anew"
        )


class RanksFailed(RanksError):
    """A rank failed, so every rank goes back to where it was; or could not go back, so every rank is faulted.

    Attributes:
        ranks: who failed.
        reasons: rank to what it said, of the first few.
        adapter: the adapter that the first of them failed at, None where it was none.
    """

    def __init__(self, found: Failed) -> None:
        self.ranks = found.ranks
        self.reasons: Mapping[int, str] = {rank: str(reason) for rank, reason in found.reasons.items()}
        adapters = [one.adapter for one in found.reasons.values() if isinstance(one, Reason) and one.adapter]
        self.adapter: str | None = adapters[0] if adapters else None
        alike: dict[str, list[int]] = {}
        for rank, reason in self.reasons.items():
            alike.setdefault(reason, []).append(rank)
        told = "; ".join(f"{ranks_told(ranks)}: {reason}" for reason, ranks in alike.items())
        more = f"; and {len(found.ranks) - len(found.reasons)} more" if len(found.ranks) > len(found.reasons) else ""
        super().__init__(f"{ranks_told(found.ranks)} failed: {told}{more}")


class JoinRefused(RanksError):
    """A new process cannot take the lost rank's place as it is, or what was handed over to it did not arrive whole.

    The ranks that admit are as they were, and can admit another one.

    Attributes:
        why: what is not as it must be, and what to do.
    """

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"a new rank cannot join: {why}")


class StoreLost(RanksError):
    """The store outside the ranks does not answer. Ranks cannot find each other without it.

    Attributes:
        address: where it was.
        why: what happened.
    """

    def __init__(self, address: str, why: str) -> None:
        self.address = address
        self.why = why
        super().__init__(
            f"the store of the ranks at {address} does not answer: {why}. What to do: start it again "
            "(python -m lifecycle.distributed.store) and then every rank"
        )


def ranks_told(ranks: Sequence[int]) -> str:
    """Ranks in words; of many the first few."""
    named = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {named}{more}"


def _told(one: Difference) -> str:
    return f"{one.fact}: " + ", ".join(f"{ranks_told(ranks)} {value}" for ranks, value in one.values)
