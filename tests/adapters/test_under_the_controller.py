"""Slots under the real controller, on an arena, beside a real engine: bytes go through the door, records follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch.optim import Adam

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState, TransitionFailed
from lifecycle.adapters import AdapterRegistry, PeftAdapters
from lifecycle.demo.train import policy_logprobs
from lifecycle.engines.local import LocalEngine
from states import AdapterState
from tests.adapters.world import IDS, SLOT_RANK, TARGETS, factors, host, llama, peft_directory


@dataclass
class World:
    """A trainer and an engine on one arena, the engine's own weights from another seed."""

    made: PeftAdapters
    trainer: TrainerLifecycle
    engine: LocalEngine

    @property
    def registry(self) -> AdapterRegistry:
        """What should be loaded."""
        return self.made.registry

    def difference(self, name: str) -> float:
        """Wake, and compare the engine's log-probabilities of tokens it sampled with the trainer's."""
        rollout = self.engine.generate(IDS, name, max_new_tokens=6, seed=1)
        if self.trainer.state is not TrainerState.AWAKE:
            self.trainer.wake_up()
        with torch.no_grad(), self.made.use(name):
            own = policy_logprobs(self.made.model, IDS, rollout.tokens)
        return float((own - rollout.logprobs).abs().max())


@pytest.fixture
def world() -> Iterator[World]:
    """Awake, with adapter a loaded from tensors."""
    arena = HostArena()
    made = host()
    trainer = TrainerLifecycle(
        LifecycleConfig(),
        saver=arena,
        model=made.model,
        optimizer=made.optimizers(lambda parameters: Adam(parameters, lr=0.01)),
        adapters=made,
        audit=MemoryAudit(),
        initial_state=TrainerState.AWAKE,
    )
    engine = LocalEngine(
        "E0", lambda: llama(99), saver=arena, slots=3, rank=SLOT_RANK, target_modules=TARGETS, kv_cache_bytes=2**18
    )
    made.registry.register("a", tensors=factors(1, 4), rank=4, alpha=12)
    trainer.reconcile_adapters()
    yield World(made, trainer, engine)
    arena.close()


@pytest.mark.parametrize("rslora", [False, True])
def test_an_adapter_loaded_while_offloaded_is_what_the_engine_and_the_trainer_compute(
    world: World, tmp_path: Path, *, rslora: bool
) -> None:
    """Its bytes are written into the host backup, pushed from there, and on the device after waking."""
    world.trainer.sleep(offload=True)
    world.registry.register("b", path=peft_directory(tmp_path / "b", seed=3, rank=3, use_rslora=rslora))
    world.trainer.reconcile_adapters()
    world.trainer.update_weights([world.engine])

    assert world.trainer.state is TrainerState.OFFLOADED_CPU
    assert world.registry.active_adapters() == ("a", "b")
    assert world.difference("b") < 1e-4
    assert world.difference("a") < 1e-4


def test_a_retired_adapter_makes_room_within_two_reconciles(world: World) -> None:
    """Deregister and reconcile: its slot is zero and free, and the next tenant gets it."""
    world.registry.deregister("a")
    world.trainer.reconcile_adapters()
    zero = not any(bool(one.any()) for one in world.made.slot_tensors(0).values())
    slot = world.registry.register("c", seed=2).slot
    world.trainer.reconcile_adapters()

    assert zero
    assert slot == 0
    assert world.registry.adapter_state("a") is AdapterState.COMPLETED
    assert list(world.made.loaded()) == ["c"]


def test_an_adapter_that_was_never_loaded_can_leave_again(world: World) -> None:
    """There is nothing to reconcile for it; its slot is free at once."""
    world.registry.register("b")
    world.registry.deregister("b")

    assert world.registry.adapter_state("b") is AdapterState.COMPLETED
    assert world.registry.register("b").slot == 1


@pytest.mark.parametrize("offload", [False, True])
def test_a_reconcile_that_fails_leaves_slots_scales_and_registry_as_they_were(
    world: World, tmp_path: Path, *, offload: bool
) -> None:
    """One of three is bad only at the last moment; the retired one is back, served and exact (FB-39)."""
    world.trainer.sleep(offload=offload)
    world.registry.deregister("a")
    world.registry.register("b")
    directory = peft_directory(tmp_path / "c", seed=3, rank=3)
    world.registry.register("c", path=directory)
    before, loaded = world.registry.snapshot(), world.made.loaded()
    (directory / "adapter_model.safetensors").write_bytes(b"cut")
    with pytest.raises(TransitionFailed, match="'c'"):
        world.trainer.reconcile_adapters()
    after = world.registry.snapshot()
    world.trainer.update_weights([world.engine])

    assert after == before
    assert world.made.loaded() == loaded
    assert world.difference("a") < 1e-4


def test_a_write_that_fails_half_way_gives_a_released_slot_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry has freed the slot by then; undoing takes it back (FB-39)."""
    world.registry.deregister("a")
    world.registry.register("b")
    loaded = world.made.loaded()

    def fail(prepared: object) -> None:
        raise OSError("told to fail")

    monkeypatch.setattr(world.made, "install", fail)
    with pytest.raises(TransitionFailed, match="told to fail"):
        world.trainer.reconcile_adapters()
    monkeypatch.undo()
    world.trainer.update_weights([world.engine])

    assert world.made.loaded() == loaded
    assert world.registry.adapter_state("a") is AdapterState.RETIRING
    assert world.difference("a") < 1e-4
