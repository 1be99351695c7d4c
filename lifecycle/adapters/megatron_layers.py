"""LoRA on megatron-core's parallel linear layers: the slots' parameters, and what a forward pass adds.

Column parallel: A is replicated and B is sharded by its rows. Each rank gets the gradient of A x from its
own rows only, so that gradient is summed over the ranks; A's is then whole, and equal on all of them.
Row parallel: A is sharded by its columns and B is replicated. A x is summed over the ranks before B, so B's
gradient is whole on each rank, and A's is that of its own columns. Both sums have the size of the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lifecycle.adapters.megatron_layout import LORA_SLOTS, ParallelLayer, Part


@dataclass(slots=True)
class Selection:
    """What forward passes apply. The layers hold this object and read it at every pass.

    Attributes:
        scales: by slot, alpha / rank of what is in it; 0 where it is empty.
        slot: the slot in use; None is the base alone.
    """

    scales: list[float]
    slot: int | None = None


class LoraSlots(nn.Module):
    """The module under which the slots' parameters lie in the model: names, and nothing that computes."""

    def sharded_state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Nothing: adapters are saved as adapters, a distributed checkpoint holds the base."""
        return {}


def tensor_name(slot: int, module: str, side: str) -> str:
    """The name of a slot's tensor in the GPTModel; *module* is its path in a Hugging Face model."""
    return f"{LORA_SLOTS}.slot_{slot}.{module}.lora_{side}"


def build_slots(
    model: nn.Module, layers: Sequence[ParallelLayer], rank: int, used: Selection, dtype: torch.dtype | None
) -> None:
    """Freeze the base, give it the parameters of every slot, all zero, and hook the layers. Draws no random number."""
    model.requires_grad_(False)
    root = LoraSlots()
    model.add_module(LORA_SLOTS, root)
    for layer in layers:
        pairs = []
        for slot in range(len(used.scales)):
            own = {part.path: _factors(layer, part, rank, dtype) for part in layer.parts if part.wanted}
            for path, factors in own.items():
                for side, one in zip("AB", factors, strict=True):
                    _register(root, tensor_name(slot, path, side).split(".")[1:], one)
            pairs.append(own)
        layer.module.register_forward_hook(ParallelLora(layer, pairs, used))


def _factors(layer: ParallelLayer, part: Part, rank: int, dtype: torch.dtype | None) -> tuple[nn.Parameter, ...]:
    """This rank's A and B of one projection, zero."""
    from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes  # noqa: PLC0415 - an extra

    weight: Tensor = layer.module.weight
    if dtype is None:
        dtype = torch.promote_types(weight.dtype, torch.float32) if weight.dtype.itemsize <= 2 else weight.dtype  # noqa: PLR2004 - 16 bits
    size = layer.module.tp_group.size()
    down = (rank, part.features_in if layer.is_column else part.features_in // size)
    up = (part.features_out // size if layer.is_column else part.features_out, rank)
    factors = tuple(nn.Parameter(torch.zeros(shape, dtype=dtype, device=weight.device)) for shape in (down, up))
    # Megatron counts what is not marked as sharded once, on the first rank, in the norm of all gradients.
    sharded, dim = (factors[1], 0) if layer.is_column else (factors[0], 1)
    set_tensor_model_parallel_attributes(sharded, is_parallel=True, dim=dim, stride=1)
    return factors


def _register(root: nn.Module, steps: Sequence[str], parameter: nn.Parameter) -> None:
    for step in steps[:-1]:
        if step not in root._modules:  # noqa: SLF001 - by name, which may be a number
            root.add_module(step, nn.Module())
        root = root.get_submodule(step)
    root.register_parameter(steps[-1], parameter)


class ParallelLora:
    """A forward hook of one layer, which adds what the slot in use computes.

    Args:
        layer: the layer.
        pairs: by slot, path of a projection to its A ``[rank, in]`` and B ``[out, rank]``, this rank's parts.
        used: which slot is in use, and the scales.
    """

    def __init__(
        self, layer: ParallelLayer, pairs: Sequence[dict[str, tuple[nn.Parameter, ...]]], used: Selection
    ) -> None:
        self._is_column = layer.is_column
        self._parts = [(part.path, part.features_out) for part in layer.parts]
        self._groups = layer.groups
        self._pairs = list(pairs)
        self._used = used

    def __call__(self, module: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor | None]) -> Any:
        """The layer's output and bias, the output with the adapter's part; None (unchanged) when none is in use."""
        slot = self._used.slot
        if slot is None:
            return None
        pairs, scale = self._pairs[slot], self._used.scales[slot]
        down, up = next(iter(pairs.values()))
        states = inputs[0].to(down.dtype)
        # The group is asked for at every pass: whoever tears groups down for a sleep builds new ones.
        group = module.tp_group
        if self._is_column:
            added = self._column(states, pairs, scale, group)
        else:
            added = self._row(states, down, up, scale, group)
        return (output[0] + added.to(output[0].dtype), *output[1:])

    def _column(self, states: Tensor, pairs: dict[str, tuple[nn.Parameter, ...]], scale: float, group: Any) -> Tensor:
        """All A's in one product and one sum of gradients, then each part's own B, in the order of the fused output."""
        from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region  # noqa: PLC0415 - an extra

        downs: list[Tensor] = [down for down, _ in pairs.values()]
        inner = copy_to_tensor_model_parallel_region(functional.linear(states, torch.cat(downs)), group=group)
        split = dict(zip(pairs, inner.split(len(downs[0]), dim=-1), strict=True))
        lead = states.shape[:-1]
        found = []
        for path, rows in self._parts:
            if path in pairs:
                one = functional.linear(split[path] * scale, pairs[path][1])
            else:
                one = states.new_zeros(*lead, rows // group.size())
            found.append(one.view(*lead, self._groups, -1))
        return torch.cat(found, dim=-1).view(*lead, -1)

    def _row(self, states: Tensor, down: Tensor, up: Tensor, scale: float, group: Any) -> Tensor:
        from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region  # noqa: PLC0415 - an extra

        inner = reduce_from_tensor_model_parallel_region(functional.linear(states, down), group=group)
        return functional.linear(inner * scale, up)
