"""The README is true: its code runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lifecycle import AuditLog, HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.adapters import PeftAdapters
from lifecycle.audit.read import read_log
from lifecycle.engines.local import LocalEngine, Rollout
from tests.docs.blocks import code_of


def tiny_llama() -> LlamaForCausalLM:
    """A Llama of a few thousand weights."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, **sizes)).eval()


def test_the_embedding_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block is executed; only model, saver, engine and the user's own two functions are given to it."""
    monkeypatch.chdir(tmp_path)
    code = code_of("README.md")
    saver = HostArena()
    targets = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    engine = LocalEngine("engine", tiny_llama, saver=saver, slots=4, rank=16, target_modules=targets)
    engine.release(("weights", "kv_cache"))
    seen: list[torch.Tensor] = []

    def generate(one: LocalEngine, name: str) -> Rollout:
        return one.generate(torch.arange(8)[None], name, max_new_tokens=4, seed=0)

    def loss(adapters: PeftAdapters, name: str, rollouts: Rollout) -> torch.Tensor:
        seen.append(rollouts.tokens)
        with adapters.use(name):
            result: torch.Tensor = adapters.model(torch.arange(8)[None]).logits.square().mean()
        return result

    namespace = {
        "AuditLog": AuditLog,
        "LifecycleConfig": LifecycleConfig,
        "PeftAdapters": PeftAdapters,
        "TrainerLifecycle": TrainerLifecycle,
        "TrainerState": TrainerState,
        "engine": engine,
        "generate": generate,
        "loss": loss,
        "model": tiny_llama(),
        "saver": saver,
        "torch": torch,
        "turns": 2,
    }
    for block in code:
        exec(block, namespace)  # noqa: S102 - the README's own code

    assert len(code) == 1
    assert len(seen) == 2
    assert namespace["trainer"].state is TrainerState.AWAKE
    assert read_log(tmp_path / "run" / "audit.jsonl")
