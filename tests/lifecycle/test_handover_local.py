"""Hand-overs to a real engine in the same process: it serves the right bytes in whatever order it got its memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lifecycle import EngineError, HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.adapters import PeftAdapters
from lifecycle.engines.local import LocalEngine
from lifecycle.handoff import handoff
from states import HandoverPlan, MemoryPeak
from states.handover import HandoverStep
from tests.models import llama

TARGETS = ("q_proj", "v_proj")
PROMPTS = torch.arange(1, 7)[None]
Pair = tuple[TrainerLifecycle, PeftAdapters, LocalEngine]


def pair(**changes: Any) -> Pair:
    """A trainer with adapter A loaded, and an engine that is released, on one arena."""
    arena = HostArena()
    adapters = PeftAdapters(llama(), slots=1, rank=4, target_modules=TARGETS)
    engine = LocalEngine("engine", llama, saver=arena, slots=1, rank=4, target_modules=TARGETS, kv_cache_bytes=1 << 20)
    trainer = TrainerLifecycle(
        LifecycleConfig(frozen_buffers=("*inv_freq",), **changes),
        saver=arena,
        model=adapters.model,
        optimizer=adapters.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.01)),
        adapters=adapters,
        initial_state=TrainerState.AWAKE,
    )
    engine.release(("kv_cache", "weights"))
    adapters.registry.register("A", rank=4, seed=3)
    trainer.reconcile_adapters()
    return trainer, adapters, engine


def changed(trainer: TrainerLifecycle, adapters: PeftAdapters) -> list[int]:
    """Train A by hand, and what the trainer itself says next, token by token."""
    with trainer.step(["A"]) as step, torch.no_grad():
        for parameter in adapters.parameters_of("A"):
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
        step.stepped()
    ids = PROMPTS
    with adapters.use("A"), torch.no_grad():
        for _ in range(4):
            ids = torch.cat([ids, adapters.model(ids).logits[:, -1:].argmax(-1)], dim=1)
    return [int(one) for one in ids[0, PROMPTS.shape[1] :]]


SETTINGS: list[dict[str, Any]] = [
    {"memory_peak": "host", "engine_keeps_weights": False},
    {"memory_peak": "device", "engine_keeps_weights": False},
    {"device_budget_bytes": 1 << 30},
]


@pytest.mark.parametrize("changes", SETTINGS, ids=["host", "device", "kept"])
def test_the_engine_serves_what_was_trained_and_each_level_is_the_predicted_one(changes: dict[str, Any]) -> None:
    """Over three turns with a step before each: greedy tokens against the trainer's own, bytes against the plan."""
    trainer, adapters, engine = pair(**changes)
    for _ in range(3):
        expected = changed(trainer, adapters)
        plan = trainer.plan_handoff([engine])
        assert isinstance(plan, HandoverPlan)
        found: list[tuple[str, int, int]] = []

        def after(step: HandoverStep, found: list[tuple[str, int, int]] = found) -> None:
            found.append((str(step), trainer.ledger.host_bytes, trainer.ledger.device_bytes))

        with handoff(trainer, [engine], lambda plan=plan: plan, after):  # type: ignore[misc]
            rollout = engine.generate(PROMPTS, "A", max_new_tokens=4, temperature=0.0)
        assert rollout.tokens[0, -4:].tolist() == expected
        assert found == [(str(one), one.host_bytes, one.device_bytes) for one in plan.steps]


def test_weights_that_stay_are_neither_released_nor_sent_again() -> None:
    """From the second turn on the base has not moved; the adapter has."""
    trainer, adapters, engine = pair(device_budget_bytes=1 << 30)
    for _ in range(2):
        changed(trainer, adapters)
        plan = trainer.plan_handoff([engine])
        with trainer.handoff([engine]):
            pass
    assert isinstance(plan, HandoverPlan)
    sends = sum(step.sends_bytes for step in plan.steps)

    assert engine.report().resident == {"weights"}
    assert [str(step) for step in plan.back.steps] == ["engine.release(kv_cache)", "wake_up"]
    assert 0 < sends < plan.sizes.trainer.base_bytes / 4


def test_an_engine_whose_weights_were_discarded_gets_the_base_again() -> None:
    """In either order, and serves the right tokens afterwards (FB-12)."""
    for peak in MemoryPeak:
        trainer, adapters, engine = pair(memory_peak=str(peak), engine_keeps_weights=False)
        with trainer.handoff([engine]):
            pass
        engine.resume(("weights",))
        engine.release(("weights",), discard=True)
        expected = changed(trainer, adapters)
        plan = trainer.plan_handoff([engine])
        with trainer.handoff([engine]):
            rollout = engine.generate(PROMPTS, "A", max_new_tokens=4, temperature=0.0)
        assert isinstance(plan, HandoverPlan)

        assert rollout.tokens[0, -4:].tolist() == expected
        assert sum(step.sends_bytes for step in plan.steps) >= plan.sizes.trainer.base_bytes


@pytest.mark.parametrize("inside", [None, RuntimeError("the loop failed")])
def test_an_interrupt_on_the_way_back_is_raised_once_everybody_is_back(inside: Exception | None) -> None:
    """One of an engine's release: the trainer wakes all the same, and an error of the block is not lost."""
    trainer, _, engine = pair(memory_peak="host", engine_keeps_weights=False)

    def interrupt(operation: str) -> None:
        if operation == "release":
            engine.fault = None
            raise KeyboardInterrupt

    def turn() -> None:
        with trainer.handoff([engine]):
            engine.fault = interrupt
            if inside is not None:
                raise inside

    with pytest.raises(KeyboardInterrupt) as raised:
        turn()

    assert raised.value.__cause__ is inside
    assert trainer.state is TrainerState.AWAKE


@pytest.mark.parametrize("operation", ["resume", "release"])
def test_whatever_an_engine_raises_in_a_hand_over_is_an_engines_error(operation: str) -> None:
    """Who catches errors of this library catches those of a client's own too, and hears which engine it was."""
    trainer, _, engine = pair(memory_peak="host", engine_keeps_weights=False)

    def refuses(asked: str) -> None:
        if asked == operation:
            engine.fault = None
            raise ConnectionError("the server is gone")

    engine.fault = refuses
    with (
        pytest.raises(EngineError, match=rf"engine engine: {operation}\([a-z_, ]+\) failed: ConnectionError") as raised,
        trainer.handoff([engine]),
    ):
        pass

    assert isinstance(raised.value.__cause__, ConnectionError)
    assert trainer.state is TrainerState.AWAKE
