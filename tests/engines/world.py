"""A small model, adapters by seed, pushes and faults."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lifecycle.engines import AdapterPayload
from lifecycle.engines.local import LocalEngine
from states import FROZEN_BASE
from tests.models import llama

TARGETS = ("q_proj", "down_proj")
RANK = 4


def base_of(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers by name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def adapter(name: str, version: int, seed: int, rank: int = RANK, alpha: float = 8.0) -> AdapterPayload:
    """An adapter whose two factors are both random, under PEFT names."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for path, module in llama(0).named_modules():
        if path.endswith(TARGETS) and isinstance(module, nn.Linear):
            prefix = f"base_model.model.{path}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(rank, module.in_features, generator=generator)
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(module.out_features, rank, generator=generator) * 0.1
    return AdapterPayload(name, version, rank, alpha, TARGETS, tensors)


def broken(payload: AdapterPayload, **changes: object) -> AdapterPayload:
    """The same adapter with some fields replaced."""
    return replace(payload, **changes)


def push(engine: LocalEngine, *payloads: AdapterPayload, base: int | None = None, seed: int = 0) -> None:
    """One whole update: the base of model *seed* as version *base*, then adapters."""
    engine.begin_update()
    if base is not None:
        engine.send_base(FROZEN_BASE, base, base_of(llama(seed)).items())
    for payload in payloads:
        engine.load_adapter(payload)
    engine.commit_update()


@dataclass
class FailAt:
    """A fault that fails one operation, at its n-th call."""

    operation: str
    call: int = 1
    seen: int = 0

    def __call__(self, operation: str) -> None:
        """Count, and fail when it is time."""
        self.seen += operation == self.operation
        if operation == self.operation and self.seen == self.call:
            raise OSError(f"{operation} failed on request")
