"""A process's place among the ranks, and where in the run it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from states.agreement import Ballot, Disagreed, Failed, Fenced, Missing, Phase

SIDE: Final = (Phase.COMPARED, Phase.TOLD, Phase.SHARED)
"""Meetings inside a part of a transition, as often as is needed; or by themselves, outside of one."""
_GRACE_MAX_S: Final = 2.0
_WAIT_S: Final = 0.02
_RANKS_A_WAIT: Final = 256


@dataclass
class Seat:
    """One process's place among the ranks.

    Attributes:
        rank: its number.
        world: how many there are.
        timeout_s: how long it waits for the others in a meeting, everything included.
        incarnation: tells this process from another one that had or has the same rank.
        generation: of the group that it is or was last in, -1 before the first.
        connected: it has a group.
        sequence: the number of the present transition.
        fenced: why it may not take part any more.
        closing: the meeting that ends the present part of a transition: ``DECIDED`` while facts are gathered,
            ``ACTED`` during the effects, ``UNDONE`` during an undo; ``HELLO`` outside of a transition.
        turn: how many meetings the present part has had.
        stopped: why the present part has come to nothing; it has no more meetings then.
    """

    rank: int
    world: int
    timeout_s: float
    incarnation: str
    generation: int = -1
    connected: bool = False
    sequence: int = 0
    fenced: Fenced | None = None
    closing: Phase = Phase.HELLO
    turn: int = 0
    stopped: Missing | Failed | Disagreed | None = None

    def enter(self, closing: Phase, stopped: Missing | None = None) -> None:
        """Begin a part of a transition, by the meeting that ends it; ``HELLO`` leaves the last one."""
        self.closing, self.turn, self.stopped = closing, 0, stopped

    def begin(self, closing: Phase = Phase.DECIDED) -> None:
        """Begin a transition, or something else that all ranks come through or none, at its only part."""
        self.sequence += 1
        self.enter(closing)

    def aside(self, ballot: Ballot) -> Ballot:
        """A ballot of a meeting inside a part, with the place that this rank is at."""
        return ballot._replace(generation=self.generation, sequence=self.sequence, closing=self.closing, turn=self.turn)

    @property
    def grace_s(self) -> float:
        """What a collective leaves of the timeout for finding out who is missing."""
        return min(_GRACE_MAX_S, self.timeout_s / 4)

    @property
    def wait_s(self) -> float:
        """How long to wait between two looks into the store; longer with many ranks."""
        return _WAIT_S * (1 + self.world / _RANKS_A_WAIT)

    def key(self, what: str, rank: int | None = None) -> str:
        """A key of the present generation in the store."""
        return f"{self.generation}/{what}" if rank is None else f"{self.generation}/{what}/{rank}"

    def keys(self, what: str) -> tuple[str, ...]:
        """The keys of all ranks."""
        return tuple(self.key(what, rank) for rank in range(self.world))


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in the run a rank is; places are ordered."""

    sequence: int
    phase: int
    turn: int = 0

    def __str__(self) -> str:
        return f"{self.sequence}.{self.phase}.{self.turn}"

    @classmethod
    def at(cls, seat: Seat, phase: Phase) -> Place:
        """A meeting inside a part of a transition comes after the one that ended the part before."""
        if phase in SIDE:
            return cls(seat.sequence, max(seat.closing - 1, Phase.COMPARED), seat.turn)
        return cls(seat.sequence, phase)

    @classmethod
    def of(cls, told: str) -> Place:
        """What :meth:`__str__` wrote, with or without what came of the meeting."""
        return cls(*map(int, told.rstrip("+-").split(".")))
