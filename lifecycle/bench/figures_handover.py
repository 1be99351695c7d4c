"""Figures on hand-overs: where the peak lies, against what the plan predicted."""

from __future__ import annotations

from typing import Any, Final

from lifecycle.bench.figures_time import probe
from lifecycle.bench.findings import LIMITS, Finding, Session, mib
from lifecycle.bench.options import MIB

_TURNS: Final = 2
_LEAST_TOLERANCE_BYTES: Final = 32 * MIB


def handover(session: Session) -> list[Finding]:
    """Both orders, and weights that stay: the most on the host, and every level, against the plan."""
    case = session.options.case("lean", kept_models=0, ranks=1)
    found = probe(session, "handover", case, repetitions=_TURNS)
    return [finding for name, one in found.items() for finding in _of_way(name, one)]


def _of_way(name: str, found: dict[str, Any]) -> list[Finding]:
    backup, mirror = found["backup_bytes"], found["mirror_bytes"]
    words, expected = {
        "host": ("peak on the host: backup + mirror", backup + mirror),
        "device": ("peak on the device: the larger of backup and mirror", max(backup, mirror)),
        "weights kept": ("weights kept: the larger of backup and the mirror before", max(backup, mirror)),
    }[name]
    within = max(_LEAST_TOLERANCE_BYTES, LIMITS["handover"] * expected)
    most, steps = found["counted_bytes"], found["steps"]
    note = f"{mib(found['predicted_bytes'])} predicted, {mib(backup)} and {mib(mirror)}"
    is_near = abs(most - expected) <= within and found["predicted_bytes"] == expected
    return [
        Finding("handover", words, f"{mib(expected)} ± {mib(within)}", f"{mib(most)} ({note})", is_near),
        Finding(
            "handover",
            f"{name}: books after each of {steps} steps against the plan",
            "0 bytes",
            f"{found['books_off_bytes']} bytes",
            found["books_off_bytes"] == 0,
        ),
        Finding(
            "handover",
            f"{name}: the process after each of {steps} steps against the plan",
            f"± {mib(within)}",
            f"± {mib(found['counted_off_bytes'])}",
            found["counted_off_bytes"] <= within,
        ),
    ]
