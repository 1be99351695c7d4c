"""The controller on a real PEFT model: saving, loading, and what a bad file does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lifecycle import AdapterError, HostArena, LifecycleConfig, TrainerLifecycle, TrainerState, TransitionFailed
from lifecycle.adapters.peft_host import PeftAdapters
from tests.models import llama


def make_trainer(state: TrainerState = TrainerState.AWAKE) -> tuple[TrainerLifecycle, PeftAdapters]:
    """A trainer with adapter A loaded and changed, in that state."""
    adapters = PeftAdapters(llama(), slots=2, rank=4)
    trainer = TrainerLifecycle(
        LifecycleConfig(frozen_buffers=("*inv_freq",)),
        saver=HostArena(),
        model=adapters.model,
        optimizer=adapters.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.01)),
        adapters=adapters,
        initial_state=TrainerState.AWAKE,
    )
    adapters.registry.register("A", rank=2, seed=3)
    trainer.reconcile_adapters()
    with trainer.step(["A"]) as step:
        for parameter in adapters.parameters_of("A"):
            with torch.no_grad():
                parameter.add_(0.01 * (parameter != 0))
        step.stepped()
    if state is not TrainerState.AWAKE:
        trainer.sleep(offload=state is TrainerState.OFFLOADED_CPU)
    return trainer, adapters


@pytest.mark.parametrize("state", [TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU])
def test_saving_asleep_writes_the_bytes_that_saving_awake_writes(state: TrainerState, tmp_path: Path) -> None:
    """A save is served from a fresh copy; the state stays (FB-06)."""
    trainer, _ = make_trainer(state)
    asleep = trainer.save_adapter("A", tmp_path / "asleep")
    assert trainer.state is state
    trainer.wake_up()
    awake = trainer.save_adapter("A", tmp_path / "awake")

    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (asleep / name).read_bytes() == (awake / name).read_bytes()


def test_a_saved_adapter_can_be_loaded_while_offloaded_and_is_the_same(tmp_path: Path) -> None:
    """Out of one slot, into another, without a wake-up in between."""
    trainer, adapters = make_trainer(TrainerState.OFFLOADED_CPU)
    directory = trainer.save_adapter("A", tmp_path / "A")
    adapters.registry.register("B", directory)
    trainer.reconcile_adapters()
    trainer.wake_up()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        with adapters.use("A"):
            first = adapters.model(ids).logits
        with adapters.use("B"):
            second = adapters.model(ids).logits

    assert torch.equal(first, second)


def test_saving_an_adapter_that_is_not_loaded_is_refused(tmp_path: Path) -> None:
    """Nothing is written."""
    trainer, _ = make_trainer()
    with pytest.raises(AdapterError, match="not loaded"):
        trainer.save_adapter("Z", tmp_path / "Z")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", [TrainerState.AWAKE, TrainerState.OFFLOADED_CPU])
def test_a_file_that_is_truncated_after_its_registration_loads_nothing(state: TrainerState, tmp_path: Path) -> None:
    """Checked again when it is read: the error names the adapter, the state and slots are as before."""
    trainer, adapters = make_trainer(state)
    directory = trainer.save_adapter("A", tmp_path / "A")
    adapters.registry.register("B", directory)
    weights = directory / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    before = {name: tensor.clone() for name, tensor in trainer.weights(groups=["adapter/A"]).materialise().items()}
    with pytest.raises(TransitionFailed, match="'B'") as failed:
        trainer.reconcile_adapters()

    assert isinstance(failed.value.cause, AdapterError)
    assert trainer.state is state
    assert set(adapters.loaded()) == {"A"}
    after = trainer.weights(groups=["adapter/A"]).materialise()
    assert all(torch.equal(after[name], value) for name, value in before.items())
