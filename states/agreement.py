"""What ranks agree on before they act, and what comes of it. Pure: values in, values out.

Each rank casts a ballot of one small size, whatever the trainer holds. If all say the same, that is all. What differs
is looked for only when something does.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Final, NamedTuple, Self

from states.agreement_digest import DIGEST_BYTES, Digester
from states.decision import Decision, NoChange, Refusal, Step
from states.facts import Facts
from states.names import TrainerEvent, TrainerState
from states.table import TABLE
from states.verdict import NotABool

ABOUT: Final = ("event", "state", "decision")
"""What ranks must have alike besides the shared facts: what is asked, where they are, and what they would do."""
_SHARED: Final = tuple(Facts().shared())
_shared_of: Final = attrgetter(*_SHARED)
NAMES: Final = (*ABOUT, *_SHARED)
_ALIKE: Final = ("event", "state", *_SHARED)
SCHEMA: Final = sha256(",".join(NAMES).encode()).digest()[:4]
"""Ranks that know other facts run another version of this library."""

_BALLOT: Final = struct.Struct(f"!BBxxIQQIIIBxHIQ{DIGEST_BYTES}s{DIGEST_BYTES}s4s")
BALLOT_BYTES: Final = _BALLOT.size
WORDS_BYTES_MAX: Final = 2 * DIGEST_BYTES
"""What a ballot can tell by itself: its digests have room for it where nothing is compared."""
_NONE: Final = bytes(DIGEST_BYTES)
LOCAL_GUARDS: Final = frozenset(
    one.name for row in TABLE for one in (*row.when, *row.guards) if one.scope == "local"
)  # fmt: skip
"""Guards that may fail on one rank and hold on another."""


class Phase(IntEnum):
    """Where in a transition ranks meet."""

    HELLO = 0
    COMPARED = 1
    DECIDED = 2
    ACTED = 3
    UNDONE = 4
    TOLD = 5
    SHARED = 6


class Said(IntFlag):
    """What a ballot says besides its digests; ``JOINS`` and ``ADMITS`` where trainers are built or ranks join."""

    NOTHING = 0
    REFUSES = 1
    REFUSES_BY_ITSELF = 2
    FAILED = 4
    JOINS = 8
    ADMITS = 16
    MOVED = 32


class Ballot(NamedTuple):
    """What one rank says in one meeting, in :data:`BALLOT_BYTES` bytes.

    Attributes:
        phase: where it is.
        said: whether it refuses, or has failed.
        generation: of the group.
        sequence: the number of the transition.
        version: the newest version id, where ranks take the same to begin with.
        active_tags: weight tags that are on the device, where ranks look at all of them together.
        paused_tags: those that are paused.
        scratch_paused: 1 if scratch tags are.
        closing: the meeting that ends the present part of a transition; ``HELLO`` outside of one.
        teller: who tells something, or whose is what the ranks share.
        turn: which one it is of the meetings before the one that ends the part, from 1; 0 outside of one.
        told_bytes: the size of what is told; up to :data:`WORDS_BYTES_MAX` stand in the digests.
        facts: digest of event, state and shared facts.
        decision: digest of what it would do; zeros where it refuses.
        schema: of the library.
    """

    phase: int
    said: int
    generation: int
    sequence: int
    version: int = 0
    active_tags: int = 0
    paused_tags: int = 0
    scratch_paused: int = 0
    closing: int = Phase.HELLO
    teller: int = 0
    turn: int = 0
    told_bytes: int = 0
    facts: bytes = _NONE
    decision: bytes = _NONE
    schema: bytes = SCHEMA

    def pack(self) -> bytes:
        """The bytes that are exchanged."""
        return _BALLOT.pack(*self)

    @classmethod
    def unpack(cls, held: bytes) -> Self:
        """A ballot of its bytes."""
        return cls._make(_BALLOT.unpack(held))


@lru_cache(maxsize=2)
def unpack_all(held: bytes) -> tuple[Ballot, ...]:
    """The ballots of all ranks."""
    return tuple(Ballot.unpack(held[at : at + BALLOT_BYTES]) for at in range(0, len(held), BALLOT_BYTES))


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one rank is about to do.

    Attributes:
        event: what is asked.
        state: the state it is in.
        facts: the record that it decided on.
        decision: its answer; both moves for a reconcile that may begin.
    """

    event: TrainerEvent
    state: TrainerState
    facts: Facts
    decision: Decision | tuple[Step, Step]

    def entries(self) -> dict[str, object]:
        """Everything that must be alike, by name, in the order of :data:`NAMES`."""
        return dict(zip(NAMES, (self.event, self.state, self.told(), *_shared_of(self.facts)), strict=True))

    def told(self) -> object:
        """The decision as ranks compare it. A refusal may be one rank's own, so it is compared with nothing.

        Where bytes are read is no part of it: that follows from the shared facts.
        """
        if isinstance(self.decision, Refusal):
            return None
        if isinstance(self.decision, NoChange):
            return {"edge": "already"}
        steps = (self.decision,) if isinstance(self.decision, Step) else self.decision
        return {one.event: {"edge": one.edge, "target": one.target, "effects": one.effects} for one in steps}

    def said(self) -> Said:
        """Whether this rank refuses, and whether others may see it differently."""
        if not isinstance(self.decision, Refusal):
            return Said.NOTHING
        if any(one.name in LOCAL_GUARDS for one in self.decision.failed):
            return Said.REFUSES | Said.REFUSES_BY_ITSELF
        return Said.REFUSES

    def ballot(self, digester: Digester, generation: int, sequence: int) -> Ballot:
        """The ballot of this proposal."""
        told = self.told()
        facts = sha256(digester.table(_ALIKE, (self.event, self.state, *_shared_of(self.facts)))).digest()
        decision = _NONE if told is None else digester.entry("decision", told).ljust(DIGEST_BYTES, b"\0")
        return Ballot(Phase.DECIDED, self.said(), generation, sequence, facts=facts, decision=decision)


@dataclass(frozen=True, slots=True)
class Agreed(NotABool):
    """All ranks may go on, and have the same before them.

    Attributes:
        sequence: the number that they gave the transition.
    """

    sequence: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that ranks have unlike.

    Attributes:
        fact: its name, with the part of it that differs, such as ``contents[adapter/a].version``.
        values: who has what: ranks and their value in words, the most numerous first.
    """

    fact: str
    values: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are not among the most numerous."""
        return tuple(sorted(rank for ranks, _ in self.values[1:] for rank in ranks))


@dataclass(frozen=True, slots=True)
class Disagreed(NotABool):
    """Ranks have something unlike. Nothing was done.

    Attributes:
        sequence: the number of the transition.
        event: what this rank asked.
        differences: what differs, a few.
        more: how many more differ.
    """

    sequence: int
    event: str
    differences: tuple[Difference, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Moved(NotABool):
    """What the ranks share changed while they looked at it. Nothing was done: look again, and decide anew."""


@dataclass(frozen=True, slots=True)
class Declined(NotABool):
    """A rank refuses, so all do. Nothing was done.

    Attributes:
        refusal: the joined refusal: verdicts of all ranks, those of one rank under its number.
        ranks: who refuses.
    """

    refusal: Refusal
    ranks: tuple[int, ...]


class Reason(str):
    """Why a rank failed, in words.

    Attributes:
        adapter: the one that it failed at, empty where it was none.
    """

    __slots__ = ("adapter",)
    adapter: str

    def __new__(cls, why: str, adapter: str = "") -> Self:
        """The words, and the adapter beside them."""
        found = super().__new__(cls, why)
        found.adapter = adapter
        return found


@dataclass(frozen=True, slots=True)
class Failed(NotABool):
    """A rank has failed.

    Attributes:
        reasons: rank to what it says, each a :class:`Reason`; of many the first few.
        ranks: all ranks that failed.
    """

    reasons: Mapping[int, str]
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Missing(NotABool):
    """Ranks did not come, or the group broke half-way. The group's generation is over.

    Attributes:
        ranks: who did not come in time; empty when all are there and were at different places.
        generation: the generation that ended.
        waited_s: how long this rank has waited.
        has_begun: ranks had begun to act when it broke, also if this one had not heard that all agreed.
    """

    ranks: tuple[int, ...]
    generation: int
    waited_s: float
    has_begun: bool = False


@dataclass(frozen=True, slots=True)
class Fenced(NotABool):
    """The others have gone on without this rank: it was missing, or another process has its place.

    Attributes:
        generation: the generation that it was last in.
        why: what happened.
    """

    generation: int
    why: str
