"""A trainer of the demo's model with three adapter slots, and what it says itself of each version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import Adam

from lifecycle import HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.adapters import PeftAdapters
from lifecycle.demo.model import load_directory, write_tiny_llama
from lifecycle.engines.http import EngineHttp
from lifecycle.engines.verifying import BASE_ONLY
from lifecycle.engines.vllm import VllmEngine, held_base

TARGETS = ("q_proj", "v_proj", "down_proj")
NEW_TOKENS = 6
SHORT = ((7, 11, 13), (3, 5, 8, 13, 21), (200, 100))
LONG = (tuple((7 * at + at * at) % 256 for at in range(150)),)
"""Longer than a block of vLLM's prefix cache on the CPU (128 tokens)."""
PROMPTS = SHORT + LONG


def write_model(directory: Path) -> Path:
    """The demo's small Llama as the server loads it."""
    write_tiny_llama(directory, 0)
    return directory


@dataclass
class World:
    """A trainer, awake, and an engine in front of the server."""

    trainer: TrainerLifecycle
    host: PeftAdapters
    optimizers: dict[int, Adam]
    engine: VllmEngine

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters that are loaded."""
        return tuple(sorted(self.host.loaded()))

    def change(self, retire: Sequence[str] = (), register: Sequence[str] = ()) -> None:
        """Adapters leave and come."""
        for name in retire:
            self.host.registry.deregister(name)
        self.trainer.reconcile_adapters()
        for name in register:
            seed = sum(map(ord, name))
            self.host.registry.register(name, rank=8, alpha=16.0, target_modules=TARGETS, seed=seed)
        self.trainer.reconcile_adapters()

    def train(self, name: str) -> None:
        """One large step of one adapter."""
        tokens = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(sum(map(ord, name))))
        optimizer = self.optimizers[self.host.slot_of(name)]
        with self.trainer.step([name]) as step, self.host.use(name):
            logits = self.host.model(input_ids=tokens, use_cache=False).logits
            torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            step.stepped()

    def own(self, name: str, prompts: Sequence[Sequence[int]] = PROMPTS) -> tuple[tuple[int, ...], ...]:
        """The trainer's own greedy tokens, now."""
        with self.trainer.live("own tokens"):
            if name == BASE_ONLY:
                return _greedy(self.host.model, prompts)
            with self.host.use(name):
                return _greedy(self.host.model, prompts)

    def all_own(self, prompts: Sequence[Sequence[int]] = PROMPTS) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Of every adapter and of the base."""
        return {name: self.own(name, prompts) for name in (*self.names, BASE_ONLY)}

    def all_served(self, prompts: Sequence[Sequence[int]] = PROMPTS) -> dict[str, tuple[tuple[int, ...], ...]]:
        """What the engine says."""
        return {name: self.engine.greedy(name, prompts, NEW_TOKENS) for name in (*self.names, BASE_ONLY)}

    def versions(self) -> dict[str, int]:
        """What the trainer wants served."""
        return {one.group: one.version for one in self.trainer.facts().contents if one.version is not None}


@torch.no_grad()
def _greedy(model: torch.nn.Module, prompts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    found = []
    for prompt in prompts:
        tokens = torch.tensor([list(prompt)])
        for _ in range(NEW_TOKENS):
            best = model(input_ids=tokens, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], dim=1)
        found.append(tuple(tokens[0, len(prompt) :].tolist()))
    return tuple(found)


@contextmanager
def world(model: Path, url: str, timeout_s: float = 60.0) -> Iterator[World]:
    """Three adapters in three slots, trained once, nothing pushed."""
    base = load_directory(model, 0)
    host = PeftAdapters(base.trainer(), slots=3, rank=8, target_modules=TARGETS)
    arena = HostArena()
    optimizers = host.optimizers(lambda owned: Adam(owned, lr=2e-2))
    config = LifecycleConfig(offload_target="cpu")
    trainer = TrainerLifecycle(
        config, saver=arena, model=host.model, optimizer=optimizers, adapters=host, initial_state=TrainerState.AWAKE
    )
    http = EngineHttp("vllm", url, timeout_s=timeout_s, retries=1)
    engine = VllmEngine("vllm", url, http=http, load_timeout_s=timeout_s, drain_s=timeout_s)
    made = World(trainer, host, optimizers, engine)
    try:
        made.change(register=("a", "b", "c"))
        for name in made.names:
            made.train(name)
        engine.hold_base(held_base(trainer, PROMPTS, made.own(BASE_ONLY)))
        yield made
    finally:
        engine.close()
        arena.close()
