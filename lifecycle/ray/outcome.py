"""What a call to all ranks came to, in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lifecycle.outcome import EngineOutcome, FailedAdapter, Moved, Outcome
from states import TrainerEvent, TrainerState
from states.verdict import NotABool


@dataclass(frozen=True, slots=True)
class GroupOutcome(NotABool):
    """What an event came to on all ranks. They agreed on it, so event, edge and states are those of each.

    Attributes:
        event: the event.
        edge: the edge of the table; empty where it held already.
        source: the state before.
        target: the state after.
        outcomes: rank to its own outcome: bytes and seconds.
    """

    event: TrainerEvent
    edge: str
    source: TrainerState
    target: TrainerState
    outcomes: Mapping[int, Outcome]

    @property
    def is_unchanged(self) -> bool:
        """What was asked for already held, and nothing was done."""
        return not self.edge

    @property
    def moved_bytes(self) -> int:
        """Bytes that were copied by it, over all ranks."""
        return sum(one.moved_bytes for one in self.outcomes.values())

    @property
    def duration_s(self) -> float:
        """Seconds from the decision to the commit, of the slowest rank."""
        return max(one.duration_s if isinstance(one, Moved) else 0.0 for one in self.outcomes.values())

    @property
    def failed(self) -> tuple[FailedAdapter, ...]:
        """The adapters that a partial reconcile left as they were, alike on all ranks."""
        return self._first.failed

    @property
    def engines(self) -> Mapping[str, EngineOutcome]:
        """What an ``update_weights`` came to by engine, as the lowest rank tells it."""
        return self._first.engines

    @property
    def _first(self) -> Outcome:
        return self.outcomes[min(self.outcomes)]

    def __str__(self) -> str:
        ranks = f"{len(self.outcomes)} ranks"
        if self.is_unchanged:
            return f"{self.event}: nothing to do, {ranks} are {self.target}"
        took = f"{self.moved_bytes:,} bytes moved in {self.duration_s:.3f} s"
        return f"{self.event} ({self.edge}): {self.source} to {self.target} on {ranks}, {took}"


def joined(outcomes: Mapping[int, Outcome]) -> GroupOutcome:
    """The outcome of all ranks; every one has come to the same edge, or their agreement would have failed."""
    first = outcomes[min(outcomes)]
    assert len({_move(one) for one in outcomes.values()}) == 1  # ranks agree before they act
    return GroupOutcome(*_move(first), outcomes=outcomes)


def _move(one: Outcome) -> tuple[TrainerEvent, str, TrainerState, TrainerState]:
    if isinstance(one, Moved):
        return one.event, one.edge, one.source, one.target
    return one.event, "", one.state, one.state
