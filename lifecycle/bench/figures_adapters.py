"""Figures on many adapters: what one of them costs among N, and what it takes to look at all of them."""

from __future__ import annotations

from dataclasses import replace

from lifecycle.bench.figures_time import probe
from lifecycle.bench.findings import LIMITS, Finding, Session
from lifecycle.bench.probe_adapters import REGISTERED


def reconcile_one(session: Session) -> list[Finding]:
    """Bytes that a reconcile of one adapter writes, by how many are registered; zeros count, as they are written."""
    name, limit, findings = "reconcile-one", LIMITS["reconcile-one"], []
    for adapters in REGISTERED:
        case = session.options.case("lean", kept_models=0, ranks=1, adapters=adapters)
        found = probe(session, "reconcile", replace(case, base_bytes=1, offload_target="cpu"))
        for state in ("awake", "offloaded"):
            moved = max(found[state].values())
            ratio = moved / found["adapter_bytes"]
            told = ", ".join(f"{change} {count:,}" for change, count in found[state].items())
            findings.append(
                Finding(
                    name,
                    f"retire or load 1 of {adapters:,} while {state}, against its weights, gradients and moments",
                    f"≤ {limit:.2f}",
                    f"{ratio:.2f} ({told} of {found['adapter_bytes']:,} bytes, its weights {found['weights_bytes']:,})",
                    ratio <= limit,
                )
            )
    return findings


def registry(session: Session) -> list[Finding]:
    """A snapshot and a plan of a registry with many adapters."""
    found = probe(session, "registry", session.options.case("lean"))
    took_ms, limit_ms = found["seconds"] * 1e3, LIMITS["registry-ms"]
    what = f"snapshot and plan with {found['adapters']:,} adapters registered"
    return [Finding("registry", what, f"≤ {limit_ms:.0f} ms", f"{took_ms:.1f} ms", took_ms <= limit_ms)]
