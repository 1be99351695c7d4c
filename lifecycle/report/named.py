"""What lanes are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from lifecycle.report.model import Lane


def names(lanes: Iterable[Lane]) -> dict[Lane, str]:
    """What each lane is called: its rank, and what else tells it apart from the others."""
    known = list(lanes)
    models, runs = len({one.model for one in known}) > 1, len({one.run for one in known}) > 1
    parts = {
        lane: ", ".join(
            [f"rank {lane.rank}"] + ([lane.model] if models else []) + ([f"run {lane.run}"] if runs else [])
        )
        for lane in known
    }
    times = Counter(parts.values())
    return {lane: f"{one}, {lane.file} ({lane.index + 1})" if times[one] > 1 else one for lane, one in parts.items()}
