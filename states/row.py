"""The shape of one row of the transition table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from states.effects import Effect
from states.names import TrainerEvent, TrainerState
from states.verdict import Guard


class RowKind(StrEnum):
    """``MOVE`` acts, ``SETTLED`` is a recorded no-op, ``REFUSING`` only says why not."""

    MOVE = "move"
    SETTLED = "settled"
    REFUSING = "refusing"


@dataclass(frozen=True, slots=True)
class Row:
    """One edge of the trainer's machine.

    Attributes:
        edge: its name, unique for its event; the log and the diagram carry it.
        event: the event that takes it.
        source: the state it leaves.
        target: the state it reaches.
        when: selectors. Of the rows that share (source, event), at most one has all of them hold.
        guards: requirements. If one fails the event is refused, naming each that failed.
        effects: what is done, in order; undone in reverse.
        kind: whether it moves, settles or refuses.
        remedy: for a refusing row, the next step.
    """

    edge: str
    event: TrainerEvent
    source: TrainerState
    target: TrainerState
    when: tuple[Guard, ...] = ()
    guards: tuple[Guard, ...] = ()
    effects: tuple[Effect, ...] = ()
    kind: RowKind = RowKind.MOVE
    remedy: str = ""

    @property
    def name(self) -> str:
        """``source --event/edge--> target``, as errors about the table name it."""
        return f"{self.source} --{self.event}/{self.edge}--> {self.target}"
