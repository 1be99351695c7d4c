"""What a run of the demo says of itself, as data."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

LOGPROB_TOLERANCE: Final = 1e-3
"""Largest difference that two implementations in float32 may show on the same weights. More means other weights."""


def log_name(rank: int | None = None) -> str:
    """Name of the audit log's file; with many ranks there is one a rank."""
    return "audit.jsonl" if rank is None else f"audit.rank{rank}.jsonl"


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

    @property
    def agrees(self) -> bool:
        """Whether engine and trainer computed with the same weights. A difference that is no number is none."""
        return self.logprob_diff <= LOGPROB_TOLERANCE


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One adapter, from its registration until its slot was cleared.

    Attributes:
        adapter: its name.
        registration_id: of the registry; never given twice.
        slot: where it sat.
        first_turn: the first turn that it trained in.
        last_turn: the last one.
        steps: optimizer steps that the registry counted; at this number it deregistered itself.
        first_reward: mean reward of its first turn, 0 to 1.
        last_reward: of its last turn.
        weights: SHA-256 of its final weights under PEFT names, read just before its slot was cleared.
    """

    adapter: str
    registration_id: int
    slot: int
    first_turn: int
    last_turn: int
    steps: int
    first_reward: float
    last_reward: float
    weights: str


@dataclass(frozen=True, slots=True)
class RanksReport:
    """What the logs of many ranks have in common.

    Attributes:
        count: how many ranks there were.
        records: records in the canonical projection of rank 0's log.
        audits: the logs, by rank.
        difference: where the first log that differs from rank 0's parts from it; None when all projections are equal.
    """

    count: int
    records: int
    audits: tuple[Path, ...]
    difference: str | None = None

    def __str__(self) -> str:
        if self.difference is not None:
            return f"{self.count} ranks: projections differ, {self.difference}"
        return f"{self.count} ranks: {self.records} records each, projections identical"

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"audits": [str(one) for one in self.audits]}


@dataclass(frozen=True, slots=True)
class DemoReport:
    """A whole run; of many ranks as rank 0 saw it, with the host memory of all.

    Attributes:
        seconds: wall time, from building the model to the end.
        turns: one report a turn.
        adapters: one tenancy an adapter, in the order of their registration.
        reconcile: the state in which adapters were changed, ``awake`` or ``offloaded``.
        audit: the log; of many ranks rank 0's.
        final_state: of the trainer.
        ranks: what many ranks had in common; None where there was one process.
    """

    seconds: float
    turns: tuple[TurnReport, ...]
    adapters: tuple[Tenancy, ...]
    reconcile: str
    audit: Path
    final_state: str
    ranks: RanksReport | None = None

    @property
    def weights(self) -> str:
        """SHA-256 over the names and final weights of all adapters: equal in two runs that trained the same."""
        lines = sorted(f"{one.adapter} {one.weights}\n" for one in self.adapters)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def disagreeing(self) -> tuple[TurnReport, ...]:
        """Turns in which the engine sampled from other weights than the trainer's."""
        return tuple(one for one in self.turns if not one.agrees)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values, in the form that ``--json`` prints."""
        found = asdict(self)
        found["turns"] = [one | {"states": list(one["states"])} for one in found["turns"]]
        found["adapters"] = list(found["adapters"])
        found["audit"] = str(self.audit)
        del found["ranks"]
        if self.ranks is not None:
            found["ranks"] = self.ranks.as_json()
        return found | {"weights": self.weights}
