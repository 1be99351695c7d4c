"""One small life cycle of a controller over any saver: asleep, offloaded, pushed, reconciled, awake, nothing lost."""

from __future__ import annotations

import torch

from lifecycle import LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.saver import MemorySaver
from tests.lifecycle.world import FakeEngine, SlotHost, TinyModel, content_of


def life_cycle(saver: MemorySaver, device: str) -> None:
    """Drive it and compare bytes at every station.

    Args:
        saver: manages memory of the device.
        device: where the model is built.
    """
    model = TinyModel(2).to(device)
    host = SlotHost(model)
    optimizers = {slot: torch.optim.Adam([model.lora_a[slot], model.lora_b[slot]], lr=0.01) for slot in range(2)}
    trainer = TrainerLifecycle(
        LifecycleConfig(),
        saver=saver,
        model=model,
        optimizer=optimizers,
        adapters=host,
        audit=MemoryAudit(),
        initial_state=TrainerState.AWAKE,
    )
    host.register("A", 0)
    trainer.reconcile_adapters()
    _train(trainer, model, optimizers[0], device)
    before, used = _served(trainer), saver.device_used_bytes()

    trainer.sleep(offload=True)
    _frees(saver, used)
    assert _served(trainer) == before
    engine = FakeEngine()
    trainer.update_weights([engine])
    host.register("B", 1)
    trainer.reconcile_adapters()
    during = _served(trainer)
    assert {name: during[name] for name in before} == before
    trainer.update_weights([engine])
    trainer.wake_up()

    assert _served(trainer) == during
    for name, value in host.values["B"].items():
        assert torch.equal(host.slot_tensors(1)[name].detach().cpu(), value)
    assert set(engine.digests) >= {"adapter/A", "adapter/B"}


def _train(trainer: TrainerLifecycle, model: TinyModel, optimizer: torch.optim.Optimizer, device: str) -> None:
    with trainer.step(("A",)) as step:
        torch.autograd.backward(model.loss(0, torch.ones(2, model.up.shape[0], device=device)))
        optimizer.step()
        step.stepped()


def _frees(saver: MemorySaver, used: int | None) -> None:
    paused = [info.size_bytes for info in saver.tags().values() if info.paused]
    now = saver.device_used_bytes()
    assert paused
    assert used is not None
    assert now is not None
    assert used - now >= sum(paused)


def _served(trainer: TrainerLifecycle) -> dict[str, str]:
    with trainer.weights("test") as lease:
        return {name: content_of({name: lease[name].cpu()}) for name in lease}
