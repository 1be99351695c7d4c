"""Whole hand-overs on the arena: what the operating system and the books count, beside what the plan predicted."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from lifecycle.bench.engine import ReadingEngine
from lifecycle.bench.options import MIB, Case
from lifecycle.bench.trainer import BenchTrainer
from lifecycle.demo.measure import HostMeter
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS, EngineReport
from lifecycle.engines.tags import TAGS, EngineTags
from lifecycle.errors import LifecycleError
from lifecycle.handoff import handoff
from lifecycle.saver import HostArena
from states import HandoverConfig, HandoverPlan, MemoryPeak, plan_handoff
from states.handover import HandoverStep

_KV_CACHE_BYTES: Final = 16 * MIB

WAYS: Final[dict[str, dict[str, Any]]] = {
    "host": {"memory_peak": MemoryPeak.HOST, "engine_keeps_weights": False},
    "device": {"memory_peak": MemoryPeak.DEVICE, "engine_keeps_weights": False},
    "weights kept": {"memory_peak": MemoryPeak.DEVICE, "engine_keeps_weights": True},
}
"""What is asked for in each of the turns, by the name that the figure gives it."""


class TaggedEngine(ReadingEngine):
    """A reading engine with weights and a cache in the trainer's saver, so that both can really be given back.

    Args:
        name: unique among the engines of a run.
        saver: the trainer's.
        weights_bytes: size of its weights.
    """

    def __init__(self, name: str, saver: HostArena, weights_bytes: int) -> None:
        super().__init__(name)
        self._tags = EngineTags(name, saver)
        weights = {"weights": torch.ones(weights_bytes, dtype=torch.uint8)}
        self._tags.place(weights, torch.zeros(_KV_CACHE_BYTES, dtype=torch.uint8))

    def report(self) -> EngineReport:
        """Residency and sizes as the saver's books have them."""
        released, tags = self._tags.released(), self._tags
        return replace(
            super().report(),
            resident=frozenset(TAGS) - released,
            released=released,
            device_bytes=tags.device_bytes(),
            mirror_bytes=tags.mirror_bytes(),
            saver_tags=tags.names(),
        )

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:  # noqa: ARG002 - nobody asks for it here
        """Give back the memory of these tags; a mirror of the weights is kept."""
        self._tags.release(tags)

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again."""
        self._tags.resume(tags)


class _Seen:
    """The most that the operating system counts on the host, at each backup that is written and after each step."""

    def __init__(self) -> None:
        self.meter: HostMeter | None = None
        self.peak_bytes = 0
        self._last = ""

    def native(self, operation: str, _tag: str) -> None:
        """Told before each native operation: all backups of a tag are written when it begins to be paused."""
        if operation == "pause" and self._last == "backup_write":
            self.look()
        self._last = operation

    def look(self) -> int:
        """Host bytes held now beyond the baseline."""
        found = 0 if self.meter is None else self.meter.host_bytes()
        self.peak_bytes = max(self.peak_bytes, found)
        return found


def probe_handover(case: Case, folder: Path, repetitions: int) -> dict[str, Any]:
    """Turns with the peak on the host, with the peak on the device, and with weights that stay.

    Returns:
        By the name of the way: ``backup_bytes`` and ``mirror_bytes`` that the two sides leave on the host, the most
        that was predicted and counted there (``predicted_bytes``, ``counted_bytes``), how many ``steps`` there were,
        and by how much the level after a step was another one than predicted, at most: ``books_off_bytes`` on host or
        device as the books have it, ``counted_off_bytes`` on the host as the operating system has it.
    """
    seen = _Seen()
    trainer = BenchTrainer(case, folder, folder / "audit-handover.jsonl", arena=HostArena(faults=seen.native))
    engine = TaggedEngine("engine", trainer.arena, case.base_bytes)
    for event in ("attach", "first_reconcile"):
        trainer.do(event)
    gc.freeze()  # what is there already is not looked through again each time that memory is measured
    seen.meter = HostMeter(trainer.arena)
    engine.release((KV_CACHE, WEIGHTS))
    return {name: _turns(trainer, engine, seen, asked, repetitions) for name, asked in WAYS.items()}


def _turns(
    trainer: BenchTrainer, engine: TaggedEngine, seen: _Seen, asked: dict[str, Any], repetitions: int
) -> dict[str, Any]:
    check, plans = _Check(trainer, seen), list[HandoverPlan]()
    seen.peak_bytes = 0
    for _ in range(repetitions):
        plan = _plan(trainer, engine, asked)
        with handoff(trainer.controller, [engine], partial(_as_is, plan), check.after):
            pass
        trainer.do("step")
        plans.append(plan)
    return {
        "backup_bytes": plans[0].sizes.trainer.backup_bytes,
        "mirror_bytes": plans[0].sizes.engines[0].mirror_bytes,
        "predicted_bytes": max(plan.host_peak_bytes for plan in plans),
        "counted_bytes": seen.peak_bytes,
        "steps": check.steps,
        "books_off_bytes": check.books_off_bytes,
        "counted_off_bytes": check.counted_off_bytes,
    }


def _as_is(plan: HandoverPlan) -> HandoverPlan:
    return plan


@dataclass
class _Check:
    """Compares what is held after each step with what was predicted, and keeps the largest difference."""

    trainer: BenchTrainer
    seen: _Seen
    steps: int = 0
    books_off_bytes: int = 0
    counted_off_bytes: int = 0

    def after(self, step: HandoverStep) -> None:
        """Told each step that was done."""
        held = self.trainer.controller.ledger
        off = (abs(held.host_bytes - step.host_bytes), abs(held.device_bytes - step.device_bytes))
        self.steps += 1
        self.books_off_bytes = max(self.books_off_bytes, *off)
        self.counted_off_bytes = max(self.counted_off_bytes, abs(self.seen.look() - step.host_bytes))


def _plan(trainer: BenchTrainer, engine: TaggedEngine, asked: dict[str, Any]) -> HandoverPlan:
    """The plan that the controller would make if its configuration asked for this, without budgets."""
    first = trainer.controller.plan_handoff([engine])
    plan = plan_handoff(HandoverConfig(**asked), first.sizes)
    if not isinstance(plan, HandoverPlan):
        raise LifecycleError(f"no hand-over fits: {plan.because}; {plan.remedy}")
    return plan
