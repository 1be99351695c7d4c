"""Adapter slots on a megatron-core ``GPTModel``, allocated once, tensor-parallel aware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lifecycle.adapters.megatron_layers import Selection, build_slots, tensor_name
from lifecycle.adapters.megatron_layout import find_layers
from lifecycle.adapters.megatron_shards import GatherGroup, Shards
from lifecycle.adapters.peft_slots import LLAMA_TARGETS
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.slots_host import SlotsHost, registry_for


class MegatronAdapters(SlotsHost):
    """Adapter slots on megatron-core's ``ColumnParallelLinear`` and ``RowParallelLinear``.

    Targets, shapes and files are those of the Hugging Face model: q_proj, k_proj and v_proj are parts of
    ``linear_qkv``, gate_proj and up_proj of ``linear_fc1``, o_proj is ``linear_proj`` and down_proj is
    ``linear_fc2``. The model is changed in place: its parameters are frozen, and the slots lie in a module
    of its own, ``lora_slots``, so that the base keeps its names. Gradients are right within the
    tensor-parallel group; over data-parallel ranks the training loop averages them, as those of any parameter.

    Args:
        model: the ``GPTModel`` of this rank, not a wrapper around it.
        slots: how many adapters fit at a time.
        rank: the largest LoRA rank that fits.
        target_modules: the projections that get slots.
        registry: the registry to serve; a new one unless given.
        dtype: of the slots; float32 for a base of 16 bits, else the base's, unless given.
        gather_group: the tensor-parallel ranks, for the collectives of an export, or a function that opens such
            a group for that time; the layers' own group unless given. An adapter whose bytes lie in host memory
            (an export while offloaded) needs one that carries CPU tensors.

    Attributes:
        model: the ``GPTModel``.
        registry: what should be loaded.

    Raises:
        ConfigError: megatron-core is missing, the model or a target cannot have slots, or the registry has
            another number of slots. The model is unchanged.
    """

    def __init__(
        self,
        model: Any,
        *,
        slots: int,
        rank: int,
        target_modules: Sequence[str] = LLAMA_TARGETS,
        registry: AdapterRegistry | None = None,
        dtype: torch.dtype | None = None,
        gather_group: GatherGroup | None = None,
    ) -> None:
        registry = registry_for(slots, registry)
        layout, layers = find_layers(model, rank, target_modules)
        self._used = Selection([0.0] * slots)
        build_slots(model, layers, rank, self._used, dtype)
        self._shards = Shards(layers, gather_group)
        super().__init__(model, registry, layout)

    @property
    def is_split(self) -> bool:
        """Whether slots hold parts of factors: there are several tensor-parallel ranks."""
        return self._shards.size > 1

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Parameters and buffers that belong to no slot, by the name they have in the GPTModel, tied once."""
        slots = {name for held in self._tensors for name in held}
        parameters = {name: one for name, one in self.model.named_parameters() if name not in slots}
        return parameters, dict(self.model.named_buffers())

    def _name_of(self, slot: int, module: str, side: str) -> str:
        return tensor_name(slot, module, side)

    def _set_scale(self, slot: int, scale: float) -> None:
        self._used.scales[slot] = scale

    def _apply(self, slot: int | None) -> None:
        self._used.slot = slot

    def _cut(self, key: str, whole: Tensor) -> Tensor:
        return self._shards.cut(key, whole)

    def _join(self, name: str, parts: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """The whole factors, on every rank. A collective, in which all tensor-parallel ranks take part."""
        one = self._find(name)
        about = f"{name}|{one.rank}|{one.alpha}|{one.target_modules}"
        return self._shards.join(name, about, parts)
