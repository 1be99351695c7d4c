"""Figures on bytes: what is held while the trainer is offloaded, and what is moved by which event."""

from __future__ import annotations

from typing import Final

from lifecycle.bench.findings import LIMITS, Finding, Session, mib, most
from lifecycle.bench.measure import Measured
from lifecycle.bench.options import KEPT_MODELS

_RANKS: Final = 4
_OFFLOADED: Final = (
    "offload",
    "update_weights",
    "update_weights_fresh",
    "reconcile_adapters",
    "weights_open",
    "weights_views",
)
_BY_TRAINED_AND_SYNC: Final = ("step", "update_weights", "update_weights_fresh")


def held_offloaded(session: Session) -> list[Finding]:
    """Host bytes in offloaded-cpu where the reference rule holds: one copy of what must survive."""
    duplicate, reference, lean = session.on_cpu("duplicate", "reference", "lean")
    limit = LIMITS["held-offloaded"] * lean.base_bytes + lean.trainable_bytes + lean.optimizer_bytes
    note = f"reference {mib(_most_held(reference))}, duplicate {mib(_most_held(duplicate))}"
    what = "lean, held in offloaded-cpu: 1.02 x base + adapters and moments"
    return [most("held-offloaded", what, _most_held(lean), limit, note=note)]


def held_kept_models(session: Session) -> list[Finding]:
    """The same with ref, old actor and rollout actor kept: no base of their own."""
    name, kept = "held-kept-models", len(KEPT_MODELS)
    lean, duplicate = session.on_cpu("lean", "duplicate", kept_models=kept)
    limit = LIMITS[name] * lean.base_bytes + (1 + kept) * lean.trainable_bytes + lean.optimizer_bytes
    what = f"lean with {', '.join(KEPT_MODELS)}: 1.05 x base + 4 x adapters, and the moments"
    copies = LIMITS["held-kept-models-duplicate"]
    held = min(duplicate.events["offload"].held)
    return [
        most(name, what, _most_held(lean), limit),
        Finding(
            name,
            "duplicate with the same models, for comparison",
            f"≥ {mib(copies * duplicate.base_bytes)}",
            mib(held),
            held >= copies * duplicate.base_bytes,
        ),
    ]


def shared_file(session: Session) -> list[Finding]:
    """Anonymous and shared memory of four ranks that hold the same shard, with the base in a file.

    Adapters and moments are each rank's own and are not the base: they are taken off.
    """
    (lean,) = session.on_cpu("lean+file", ranks=_RANKS)
    own = _RANKS * (lean.trainable_bytes + lean.optimizer_bytes)
    held = _most_held(lean)
    files = mib(max(lean.events["offload"].files))
    note = f"{mib(held)} with the adapters and moments of {_RANKS} ranks; one file of {files}"
    what = f"lean+file, {_RANKS} ranks together, anonymous and shared memory for the base: 0.05 x base"
    return [most("shared-file", what, max(0, held - own), LIMITS["shared-file"] * lean.base_bytes, note=note)]


def moved_trained_sync(session: Session) -> list[Finding]:
    """A step commit and a sync copy nothing where the saver can be read."""
    found = session.on_cpu("lean", "lean+file")
    return [
        most(
            "moved-trained-sync",
            f"{one.case.name}, copied by {event}",
            max(one.events[event].moved),
            LIMITS["moved-trained-sync"] * one.trainable_bytes,
            note=f"{mib(max(one.events[event].sent))} sent" if max(one.events[event].sent) else "",
        )
        for one in found
        for event in _BY_TRAINED_AND_SYNC
    ]


def moved_sleep_file(session: Session) -> list[Finding]:
    """Sleep and offload with the base in a file copy what is trained, and nothing of the base."""
    (lean,) = session.on_cpu("lean+file")
    trained = lean.trainable_bytes + lean.gradient_bytes + lean.optimizer_bytes
    pairs = zip(lean.events["sleep"].moved, lean.events["offload"].moved, strict=True)
    what = "lean+file, copied by sleep and offload: adapters, gradients, moments"
    return [most("moved-sleep-file", what, max(map(sum, pairs)), LIMITS["moved-sleep-file"] * trained)]


def _most_held(measured: Measured) -> int:
    """The most that was held in any cycle, after any event while offloaded."""
    return max(held for event in _OFFLOADED for held in measured.events[event].held)
