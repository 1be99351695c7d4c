"""Adapter slots of the in-process engine: plain tensors, applied by hooks on the linear modules.

Kept independent of PEFT on purpose: the trainer applies adapters its way and the engine in another,
so that equal log-probabilities say that the right bytes arrived and mean the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lifecycle.engines.protocol import AdapterPayload

_NAME = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])\.weight")

Factors = dict[str, tuple[Tensor, Tensor]]


class BadPayloadError(Exception):
    """An adapter that does not fit the slots. Nothing was written."""


class LoraSlots:
    """Preallocated slots on a model; one of them, or none, is applied at a time.

    Args:
        model: its linear modules get a forward hook each.
        slots: how many adapters fit.
        rank: largest rank that fits. Smaller adapters are padded with zeros.
        target_modules: suffixes of the module names that have slots.

    Raises:
        ValueError: no linear module has such a name.
    """

    def __init__(self, model: nn.Module, *, slots: int, rank: int, target_modules: Sequence[str]) -> None:
        self._rank = rank
        self._scale = [0.0] * slots
        self._active: int | None = None
        self._down: dict[str, Tensor] = {}
        self._up: dict[str, Tensor] = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in target_modules:
                where = module.weight.device
                self._down[name] = torch.zeros(slots, rank, module.in_features, device=where)
                self._up[name] = torch.zeros(slots, module.out_features, rank, device=where)
                module.register_forward_hook(self._hook(name))
        if not self._down:
            raise ValueError(f"the model has no linear module named {', '.join(target_modules)}")

    def tensors(self) -> dict[str, Tensor]:
        """All slot tensors by name, float32: ``[slots, rank, in]`` and ``[slots, out, rank]`` a module."""
        down = {f"lora_slots.{name}.down": one for name, one in self._down.items()}
        return down | {f"lora_slots.{name}.up": one for name, one in self._up.items()}

    def check(self, payload: AdapterPayload) -> Factors:
        """Sort an adapter's tensors by module and check all of them.

        Returns:
            module name to its A ``[r, in]`` and B ``[out, r]``, aliases of the payload.

        Raises:
            BadPayloadError: a rank, name, shape or a missing partner.
        """
        if not 0 < payload.rank <= self._rank:
            raise BadPayloadError(f"rank {payload.rank} does not fit the slots, which take 1 to {self._rank}")
        sides: dict[str, dict[str, Tensor]] = {"A": {}, "B": {}}
        for name, tensor in payload.tensors.items():
            match = _NAME.fullmatch(name)
            if match is None or match["module"] not in self._down:
                raise BadPayloadError(f"{name} belongs to no module that has slots")
            sides[match["side"]][match["module"]] = tensor
        lonely = sorted(set(sides["A"]) ^ set(sides["B"]))
        if lonely or not sides["A"]:
            raise BadPayloadError(f"lora_A and lora_B do not pair up: {', '.join(lonely[:3]) or 'there are none'}")
        factors = {module: (down, sides["B"][module]) for module, down in sides["A"].items()}
        self._check_shapes(factors, payload.rank)
        return factors

    def _check_shapes(self, factors: Mapping[str, tuple[Tensor, Tensor]], rank: int) -> None:
        for module, (down, up) in factors.items():
            wanted = ((rank, self._down[module].shape[-1]), (self._up[module].shape[1], rank))
            found = (tuple(down.shape), tuple(up.shape))
            if found != wanted:
                raise BadPayloadError(f"{module}: lora_A and lora_B have shapes {found}, wanted are {wanted}")

    def write(self, slot: int, factors: Factors, scale: float) -> None:
        """Copy an adapter into a slot; what it lacks becomes zero."""
        self._scale[slot] = scale
        with torch.no_grad():
            for module, down in self._down.items():
                up = self._up[module]
                down[slot].zero_()
                up[slot].zero_()
                if module in factors:
                    a, b = factors[module]
                    down[slot, : a.shape[0]].copy_(a)
                    up[slot, :, : b.shape[1]].copy_(b)

    def read(self, slot: int, payload: AdapterPayload) -> dict[str, Tensor]:
        """Views of what a slot holds of an adapter that was written into it, by the names it came under."""
        found = {}
        for name, tensor in payload.tensors.items():
            match = _NAME.fullmatch(name)
            assert match is not None  # it was checked
            held = (self._down if match["side"] == "A" else self._up)[match["module"]][slot]
            found[name] = held[tuple(slice(size) for size in tensor.shape)]
        return found

    @contextmanager
    def applied(self, slot: int | None) -> Iterator[None]:
        """Apply one slot, or none, to every forward pass inside."""
        before, self._active = self._active, slot
        try:
            yield
        finally:
            self._active = before

    def _hook(self, name: str) -> Any:
        def add_delta(_module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            slot = self._active
            if slot is None:
                return output
            down, up = self._down[name][slot], self._up[name][slot]
            delta = linear(linear(inputs[0].to(down.dtype), down), up) * self._scale[slot]
            return output + delta.to(output.dtype)

        return add_delta
