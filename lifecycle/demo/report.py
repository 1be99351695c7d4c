"""What a run of the demo says of itself, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

LOGPROB_TOLERANCE: Final = 1e-3
"""Largest difference that two implementations in float32 may show on the same weights. More means other weights."""


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn: trainer to engine and back, then training.

    Attributes:
        turn: counted from 0.
        states: the states passed, in order, beginning with the one the turn began in.
        rewards: adapter to the mean reward of the tokens that the engine sampled under it, 0 to 1.
        host_bytes: host memory held while the engine generated.
        moved_bytes: bytes that transitions copied in this turn.
        logprob_diff: largest difference between the engine's and the trainer's log-probabilities of
            the sampled tokens, over all adapters.
    """

    turn: int
    states: tuple[str, ...]
    rewards: dict[str, float]
    host_bytes: int
    moved_bytes: int
    logprob_diff: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """A whole run.

    Attributes:
        seconds: wall time, from building the model to the end.
        turns: one report a turn.
        audit: the log.
        final_state: of the trainer.
    """

    seconds: float
    turns: tuple[TurnReport, ...]
    audit: Path
    final_state: str

    def as_json(self) -> dict[str, Any]:
        """The report as plain values, in the form that ``--json`` prints."""
        found = asdict(self)
        found["turns"] = [one | {"states": list(one["states"])} for one in found["turns"]]
        found["audit"] = str(self.audit)
        return found
