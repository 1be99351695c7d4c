"""Figures on the audit of logs: records a second of one core, by the shape of the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lifecycle.bench.figures_time import probe
from lifecycle.bench.findings import LIMITS, Finding, Session
from lifecycle.bench.probe_audit import FEW, MANY, RANKS

_SHAPES: Final = {
    "turns": f"turns of a trainer with {FEW} adapters",
    "whole": "the same with all facts in every record, which nothing shares",
    "many": f"turns of a trainer with {MANY:,} adapters",
    "ranks": f"{RANKS} ranks of the first, compared",
}


def audit(session: Session) -> list[Finding]:
    """What an audit replays in a second of CPU time; the first shape has a limit, the others are told."""
    case = session.options.case("lean", kept_models=0, ranks=1)
    found = probe(session, "audit", replace(case, base_bytes=4, tensors=1, rank=1, offload_target="cpu"))
    return [_finding(name, what, found[name]) for name, what in _SHAPES.items()]


def _finding(name: str, what: str, found: dict[str, float]) -> Finding:
    rate, limit = found["records_per_s"], LIMITS["audit-records-per-s"] if name == "turns" else 0.0
    told = f"{rate:,.0f} records/s ({rate * found['record_bytes'] / 1e6:.1f} MB/s)"
    return Finding(
        "audit",
        f"{what}: {found['records']:,.0f} records of {found['record_bytes']:,.0f} bytes",
        f"≥ {limit:,.0f} records/s" if limit else "none",
        f"{told}, {found['ratio']:.1f} times reading and hashing its lines",
        rate >= limit,
    )
