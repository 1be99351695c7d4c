"""What pages run with: memory that is given back, a small trainer, constructors that fill in what a page leaves out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW
from transformers import LlamaConfig, LlamaForCausalLM

from lifecycle import HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.adapters import PeftAdapters
from tests.models import llama

Names = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """What a page runs with besides its names: what is closed at its end, and what is put back."""

    closing: ExitStack
    patches: pytest.MonkeyPatch

    def arena(self) -> HostArena:
        """Memory that is given back at the end."""
        arena = HostArena()
        self.closing.callback(arena.close)
        return arena


def filled(kind: Callable[..., Any], **rest: object) -> Callable[..., Any]:
    """A constructor for which ``...`` stands for the *rest*."""

    def made(*given: object, **named: object) -> Any:
        return kind(*(one for one in given if not isinstance(one, EllipsisType)), **(rest | named))

    return made


def stand_in(place: Place, kind: type, *given: object, **named: object) -> HostArena:
    """An arena in place of a saver that needs a GPU; what it is given has to fit the real one."""
    inspect.signature(kind).bind(*given, **named)
    return place.arena()


def wide() -> nn.Module:
    """The Llama of one layer and 128 token ids, which the prompts of a page name."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=128, initializer_range=0.3, **sizes)).eval()


def peft_trainer(
    place: Place, *names: str, model: nn.Module | None = None, config: LifecycleConfig | None = None, **how: Any
) -> Names:
    """The trainer, its adapters and optimizers on a small Llama; these adapters are loaded, the first was stepped."""
    adapters = PeftAdapters(model or llama(), slots=2, rank=16, target_modules=("q_proj", "v_proj"))
    optimizers = adapters.optimizers(lambda slot: AdamW(slot, lr=1e-2))
    trainer = TrainerLifecycle(
        config or LifecycleConfig(),
        saver=place.arena(),
        model=adapters.model,
        optimizer=optimizers,
        adapters=adapters,
        initial_state=TrainerState.AWAKE,
        **how,
    )
    for name in names:
        adapters.registry.register(name)
    trainer.reconcile_adapters()
    for name in names[:1]:
        with trainer.step([name]) as step, adapters.use(name):
            adapters.model(input_ids=torch.arange(8)[None]).logits.square().mean().backward()
            optimizers[adapters.slot_of(name)].step()
            step.stepped()
    return {
        "trainer": trainer,
        "adapters": adapters,
        "optimizer": optimizers[0],
        "optimizers": optimizers,
        "torch": torch,
    }
