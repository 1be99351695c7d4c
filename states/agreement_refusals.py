"""The one refusal of all ranks, joined of what each of them says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from states.agreement import LOCAL_GUARDS
from states.decision import Refusal
from states.names import TrainerState
from states.verdict import Verdict


def joined(told: Mapping[int, Any], ranks: tuple[int, ...]) -> Refusal:
    """The one refusal of all ranks: local verdicts are joined by *and*, and named by rank.

    Args:
        told: rank to what :func:`refusal_told` made of its refusal, of a few that refuse.
        ranks: all that refuse.
    """
    verdicts: dict[str, Verdict] = {}
    for rank in sorted(told):
        for name, because, remedy in told[rank]["failed"]:
            said = f"rank {rank}: {because}" if name in LOCAL_GUARDS else because
            before = verdicts.get(name)
            if before is None:
                verdicts[name] = Verdict(name, holds=False, because=said, remedy=remedy)
            elif name in LOCAL_GUARDS:
                verdicts[name] = replace(before, because=f"{before.because}; {said}")
    if others := len(ranks) - len(told):
        verdicts = {
            name: replace(one, because=f"{one.because}; {others} more rank(s) refuse") for name, one in verdicts.items()
        }
    first = told[min(told)]
    return Refusal(TrainerState(first["state"]), first["event"], first["edge"], tuple(verdicts.values()))


def refusal_told(refusal: Refusal) -> dict[str, Any]:
    """What a rank that refuses tells the others."""
    failed = [(one.name, one.because, one.remedy) for one in refusal.failed]
    return {"state": refusal.state, "event": refusal.event, "edge": refusal.edge, "failed": failed}
