"""Many adapters: what one reconcile writes among N of them, and what a registry of many takes to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from torch.optim import Adam

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.bench.clock import seconds
from lifecycle.bench.model import BenchModel, LightAdapters
from lifecycle.bench.options import Case
from lifecycle.config import LifecycleConfig
from lifecycle.controller import TrainerLifecycle
from lifecycle.outcome import Moved, Outcome
from lifecycle.saver import HostArena
from states import TrainerState, plan_reconcile

REGISTERED: Final = (1, 10, 100, 1_000)
LOOKED_AT: Final = 10_000
_WIDTH, _MODULES = 64, 2
_ROUNDS: Final = 3
_BUFFERS_OF_A_SLOT: Final = 4
"""Weights, gradients and Adam's two moments: each as large as the weights."""


class RegisteredAdapters(LightAdapters):
    """Slots that a real registry fills."""

    def __init__(self, model: BenchModel, case: Case) -> None:
        super().__init__(model, case)
        self.registry = AdapterRegistry(self.slots)
        self.registry.connect(lambda _, __: None, self.loaded)

    def desired(self) -> Mapping[str, DesiredAdapter]:
        """What should be loaded."""
        return self.registry.desired()

    def freed(self, adapters: tuple[DesiredAdapter, ...]) -> None:
        """Their slots may be given out again."""
        for one in adapters:
            self.registry.release(one)


def probe_reconcile(case: Case, _folder: Path, _repetitions: int) -> dict[str, Any]:
    """Replace, retire and load one adapter of ``case.adapters``, awake and offloaded.

    Returns:
        ``adapter_bytes``: of everything that belongs to one slot; ``awake`` and ``offloaded``: by kind of change the
        most bytes that one reconcile wrote, zeros included.
    """
    model = BenchModel(case, width=_WIDTH, modules=_MODULES)
    host = RegisteredAdapters(model, case)
    arena = HostArena()
    trainer = TrainerLifecycle(
        LifecycleConfig(verify=case.verify),
        saver=arena,
        model=model,
        optimizer={slot: Adam(model.slot(slot).values()) for slot in range(case.adapters)},
        adapters=host,
        initial_state=TrainerState.AWAKE,
    )
    for name in host.names:
        host.registry.register(name)
    trainer.reconcile_adapters()
    found: dict[str, Any] = {"awake": _changes(trainer, host)}
    trainer.sleep(offload=True)
    found["offloaded"] = _changes(trainer, host)
    weights = sum(one.nbytes for one in model.slot(0).values())
    trainer.wake_up()
    return found | {"adapter_bytes": _BUFFERS_OF_A_SLOT * weights, "weights_bytes": weights}


def _changes(trainer: TrainerLifecycle, host: RegisteredAdapters) -> dict[str, int]:
    most: dict[str, int] = {}
    for number in range(_ROUNDS):
        name = host.names[number % len(host.names)]
        host.registry.deregister(name)
        retired = _moved_bytes(trainer.reconcile_adapters())
        host.registry.register(name)
        loaded = _moved_bytes(trainer.reconcile_adapters())
        for change, moved in (("retire", retired), ("load", loaded)):
            most[change] = max(most.get(change, 0), moved)
    return most


def _moved_bytes(outcome: Outcome) -> int:
    assert isinstance(outcome, Moved)  # one adapter was changed
    return outcome.moved_bytes


def probe_registry(_case: Case, _folder: Path, repetitions: int) -> dict[str, Any]:
    """A snapshot of a registry with many adapters, and the plan for a trainer that holds all but a few of them."""
    registry = AdapterRegistry(LOOKED_AT)
    for number in range(LOOKED_AT):
        registry.register(f"adapter-{number}")
    loaded = dict(registry.desired())
    changed = list(loaded)[:: LOOKED_AT // 10]
    for name in changed:
        loaded[name] = replace(loaded[name], registration_id=loaded[name].registration_id + LOOKED_AT)

    def look() -> None:
        plan = plan_reconcile(registry.desired(), loaded)
        assert len(plan.loads) == len(changed)
        assert plan.digest
        registry.snapshot()

    return {"adapters": LOOKED_AT, "seconds": median(seconds(look) for _ in range(repetitions))}
