"""The machine that carries the state, built from the table with ``transitions``.

``transitions`` is fenced: no ``to_*`` methods that walk past a guard, no effects in its callbacks,
no use of its returned bool. :func:`states.decide` is asked first; the machine then takes exactly
the edge that was decided and nothing else. It is the one place where the state is assigned.
"""

from __future__ import annotations

from typing import Any

from transitions import Machine

from states.decision import Step
from states.names import TrainerState
from states.row import RowKind
from states.table import TABLE


class TrainerMachine:
    """Holds the trainer's state.

    Args:
        initial: the state at the start, declared by the caller, never defaulted.
    """

    state: TrainerState

    def __init__(self, initial: TrainerState) -> None:
        moves = [row for row in TABLE if row.kind is RowKind.MOVE]
        definition: list[dict[str, Any]] = [
            {"trigger": trigger_name(row.event, row.edge, row.target), "source": row.source, "dest": row.target}
            for row in moves
        ]
        self._machine = Machine(
            model=self,
            states=TrainerState,
            transitions=definition,
            initial=initial,
            auto_transitions=False,
            send_event=False,
        )
        self._take = {
            (row.source, row.event, row.edge, row.target): getattr(self, trigger_name(row.event, row.edge, row.target))
            for row in moves
        }

    def take(self, step: Step) -> None:
        """Move along a decided edge.

        Args:
            step: what :func:`states.decide` answered for the present state.

        Raises:
            ValueError: the step was decided for another state, or is on no edge of the table.
        """
        if step.state is not self.state:
            raise ValueError(f"the step leaves {step.state}, the trainer is {self.state}; decide again")
        take = self._take.get((step.state, step.event, step.edge, step.target))
        if take is None:
            raise ValueError(f"{step.event}/{step.edge} to {step.target} is no edge from {step.state}; decide first")
        take()


def trigger_name(event: str, edge: str, target: str) -> str:
    """The trigger of one edge: unique in the table, so that no other edge can be taken by it."""
    return f"take_{event}_{edge}_{target}".replace("-", "_")
