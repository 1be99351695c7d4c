"""Adapter slots on a PEFT model, allocated once.

Every slot is a PEFT adapter named ``slot_0``, ``slot_1`` and so on, of the largest rank and on all
target modules. Slots are filled by the controller through its door; nothing here writes their bytes
after the model was built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from lifecycle.adapters.peft_slots import LLAMA_TARGETS, build_slots, find_modules
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.slots_host import SlotsHost, registry_for

_PREFIX: Final = "base_model.model."


class PeftAdapters(SlotsHost):
    """Adapter slots on a causal LM, or on any module with linear layers.

    The model is wrapped in place: its base parameters are frozen, and its target modules get slots.
    Which slot a forward pass uses is a property of the model, not of a thread: one thread runs it.

    Args:
        model: the unwrapped model.
        slots: how many adapters fit at a time.
        rank: the largest LoRA rank that fits.
        target_modules: suffixes of the linear modules that get slots.
        registry: the registry to serve; a new one unless given.
        dtype: of the slots; float32 for a base of 16 bits, else the base's, unless given.

    Attributes:
        model: the ``PeftModel``.
        registry: what should be loaded.

    Raises:
        ConfigError: peft is missing, the model is a PeftModel already, a target is no linear module of
            it, or the registry has another number of slots. The model is unchanged.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        slots: int,
        rank: int,
        target_modules: Sequence[str] = LLAMA_TARGETS,
        registry: AdapterRegistry | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        registry = registry_for(slots, registry)
        layout = find_modules(model, rank, target_modules)
        wrapped = build_slots(model, slots, layout, dtype)
        self._layers: dict[str, Any] = {path: wrapped.get_submodule(_PREFIX + path) for path in layout.modules}
        super().__init__(wrapped, registry, layout)

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Parameters and buffers that belong to no slot, by the name they have in the unwrapped model, tied once."""
        slots = {name for held in self._tensors for name in held}
        parameters = {self._unwrapped(n): one for n, one in self.model.named_parameters() if n not in slots}
        return parameters, {self._unwrapped(n): one for n, one in self.model.named_buffers()}

    def _name_of(self, slot: int, module: str, side: str) -> str:
        return f"{_PREFIX}{module}.lora_{side}.slot_{slot}.weight"

    def _set_scale(self, slot: int, scale: float) -> None:
        for layer in self._layers.values():
            layer.scaling[f"slot_{slot}"] = scale
            layer.lora_alpha[f"slot_{slot}"] = scale * self._layout.rank

    def _apply(self, slot: int | None) -> None:
        """PEFT's own ``set_adapter`` walks the whole model twice and freezes every slot but this one besides."""
        names = [] if slot is None else [f"slot_{slot}"]
        base = self.model.base_model
        if any(layer.merged for layer in self._layers.values()):
            base.set_adapter(names)  # It warns, and takes out of the base what somebody has merged into it.
        for layer in self._layers.values():
            layer._active_adapter = names  # noqa: SLF001 - what set_adapter sets, and layers apply
        base.active_adapter = names

    def _unwrapped(self, name: str) -> str:
        name = name.removeprefix(_PREFIX)
        path, found, rest = name.rpartition(".base_layer.")
        return f"{path}.{rest}" if found and path in self._layout.modules else name
