"""Adapter slots on a PEFT model, allocated once.

Every slot is a PEFT adapter named ``slot_0``, ``slot_1`` and so on, of the largest rank and on all
target modules. Slots are filled by the controller through its door; nothing here writes their bytes
after the model was built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lifecycle.adapters.files import read_adapter
from lifecycle.adapters.fit import FittedAdapter, fit_files, fit_tensors, fresh, pad, pad_exact, peft_key
from lifecycle.adapters.in_use import InUse
from lifecycle.adapters.peft_slots import LLAMA_TARGETS, build_slots, find_modules
from lifecycle.adapters.protocol import DesiredAdapter, PreparedAdapter
from lifecycle.adapters.records import LoadedAdapter
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.sources import AdapterSource
from lifecycle.errors import ConfigError

_PREFIX: Final = "base_model.model."
_HEADER_BYTES: Final = 2**20


class PeftAdapters(InUse):
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
        self.registry = AdapterRegistry(slots) if registry is None else registry
        if self.registry.slots != slots:
            raise ConfigError(f"the registry has {self.registry.slots} slots, the host is to have {slots}")
        self._layout = find_modules(model, rank, target_modules)
        self.model: Any = build_slots(model, slots, self._layout, dtype)
        self._slots = tuple(self._name_tensors(slot) for slot in range(slots))
        self._layers: dict[str, Any] = {path: self.model.get_submodule(_PREFIX + path) for path in self._layout.modules}
        self._loaded: dict[str, LoadedAdapter] = {}
        for slot in range(slots):
            self._set_scale(slot, 0.0)
        self._start_use()
        self.registry.connect(self._read, self.loaded)

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    def desired(self) -> Mapping[str, DesiredAdapter]:
        """What should be loaded: pending and active registrations, by name."""
        return self.registry.desired()

    def loaded(self) -> Mapping[str, DesiredAdapter]:
        """What is loaded, by name."""
        return dict(self._loaded)

    def slot_tensors(self, slot: int) -> Mapping[str, Tensor]:
        """The parameters of one slot by their name in the PeftModel. The objects never change."""
        return dict(self._slots[slot])

    def prepare(self, desired: DesiredAdapter) -> PreparedAdapter:
        """Read, check and pad an adapter's tensors. Touches no slot and reads no slot's bytes.

        Raises:
            AdapterError: it is registered no more, or its directory or tensors are wrong or do not fit.
        """
        fitted = self._read(desired.name, self.registry.source_of(desired))
        tensors, exact = {}, {}
        for path, (down, up) in self._slot_names(desired.slot).items():
            given = fitted.factors.get(path, (None, None))
            for name, value in zip((down, up), given, strict=True):
                slot = self._slots[desired.slot][name]
                tensors[name] = pad(desired.name, name, value, slot)
                if (unrounded := pad_exact(desired.name, name, value, slot)) is not None:
                    exact[name] = unrounded
        return PreparedAdapter(desired, fitted.rank, fitted.alpha, fitted.target_modules, tensors, exact)

    def install(self, prepared: PreparedAdapter) -> None:
        """Record that the slot now holds this adapter: its rank, scale and targets. No bytes."""
        one = prepared.desired
        loaded = LoadedAdapter(
            one.name,
            one.registration_id,
            one.slot,
            prepared.rank,
            prepared.alpha,
            prepared.target_modules,
            self._is_trainable(one),
        )
        self._loaded[one.name] = loaded
        self._set_scale(one.slot, prepared.alpha / prepared.rank)
        self._settle()

    def uninstall(self, name: str) -> None:
        """Record that the slot of *name* is empty. No bytes. Who was using it goes on with the named successor.

        Raises:
            AdapterError: it is not loaded, or it is in use without a successor.
        """
        gone = self._find(name)
        self._refuse_in_use(name)
        del self._loaded[name]
        self._set_scale(gone.slot, 0.0)
        self._settle()

    def freed(self, adapters: tuple[DesiredAdapter, ...]) -> None:
        """The reconcile that uninstalled these is committed: the registry may give their slots out again."""
        for one in adapters:
            self.registry.release(_desired(one))

    def reinstate(self, loaded: Mapping[str, DesiredAdapter]) -> None:
        """Undo: put the record of what is loaded back to an earlier answer of :meth:`loaded`. No bytes.

        Raises:
            AdapterError: a slot that was freed since has been given out again.
        """
        for one in loaded.values():
            self.registry.reinstate(_desired(one))
        self._loaded = {name: one for name, one in loaded.items() if isinstance(one, LoadedAdapter)}
        for slot in range(self.slots):
            self._set_scale(slot, 0.0)
        for one in self._loaded.values():
            self._set_scale(one.slot, one.alpha / one.rank)
        self._settle()

    def pushed(self, names: tuple[str, ...]) -> None:
        """These adapters were committed in an engine: pending becomes active.

        A name that has been registered anew since is skipped, its new tensors have not been sent.
        """
        self.registry.record_weight_update([_desired(self._loaded[name]) for name in names if name in self._loaded])

    def export(
        self, name: str, read: Callable[[str], Tensor]
    ) -> tuple[int, float, tuple[str, ...], Mapping[str, Tensor]]:
        """The adapter under PEFT names, cut to its own rank; every module of its targets.

        Args:
            name: a loaded adapter.
            read: gives the bytes of a slot tensor by name; the result consists of views of what it returns.

        Returns:
            rank, alpha (the scale is alpha / rank), target_modules, tensors.

        Raises:
            AdapterError: it is not loaded.
        """
        one = self._find(name)
        tensors = {}
        for path, (down, up) in self._slot_names(one.slot).items():
            if self._layout.modules[path] in one.target_modules:
                tensors[peft_key(path, "A")] = read(down)[: one.rank]
                tensors[peft_key(path, "B")] = read(up)[:, : one.rank]
        return one.rank, one.alpha, one.target_modules, tensors

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Parameters and buffers that belong to no slot, by the name they have in the unwrapped model, tied once."""
        slots = {name for names in self._slots for name in names}
        parameters = {self._unwrapped(n): one for n, one in self.model.named_parameters() if n not in slots}
        return parameters, {self._unwrapped(n): one for n, one in self.model.named_buffers()}

    def slot_of(self, name: str) -> int:
        """The slot of a loaded adapter.

        Raises:
            AdapterError: it is not loaded.
        """
        return self._find(name).slot

    def parameters_of(self, name: str) -> list[Tensor]:
        """The parameters of a loaded adapter's slot.

        Raises:
            AdapterError: it is not loaded.
        """
        return list(self._slots[self._find(name).slot].values())

    def optimizers(self, factory: Callable[[list[Tensor]], Optimizer]) -> dict[int, Optimizer]:
        """One optimizer a slot, by slot.

        One over all slots would move neighbours: gradients are kept as zeros, and momentum goes on without them.

        Args:
            factory: makes an optimizer over the parameters of one slot.
        """
        return {slot: factory(list(tensors.values())) for slot, tensors in enumerate(self._slots)}

    def _apply(self, slot: int | None) -> None:
        """PEFT lets only the slot that it applies train; the flags are set right after this."""
        self.model.base_model.set_adapter([] if slot is None else [f"slot_{slot}"])

    def _find(self, name: str) -> LoadedAdapter:
        self._held(name)
        return self._loaded[name]

    def _read(self, name: str, source: AdapterSource) -> FittedAdapter:
        """The adapter that a source describes, at its own rank. Also what a registration is checked with."""
        rank = self._layout.rank if source.rank is None else source.rank
        alpha = float(rank if source.alpha is None else source.alpha)
        if source.path is not None:
            bytes_max = self._file_bytes_max()
            files = read_adapter(name, source.path, bytes_max=bytes_max, identity=source.identity)
            return fit_files(name, files, self._layout)
        if source.tensors is not None:
            return fit_tensors(name, source.tensors, rank, alpha, self._layout)
        return fresh(name, source.seed, rank, alpha, source.target_modules, self._layout)

    def _file_bytes_max(self) -> int:
        """A file that fits one slot, in float64, and its header."""
        return sum(8 * one.numel() + _HEADER_BYTES for one in self._slots[0].values())

    def _set_scale(self, slot: int, scale: float) -> None:
        for layer in self._layers.values():
            layer.scaling[f"slot_{slot}"] = scale
            layer.lora_alpha[f"slot_{slot}"] = scale * self._layout.rank

    def _slot_names(self, slot: int) -> dict[str, tuple[str, str]]:
        """Module path to the names of its A and B in one slot."""
        sides = ("lora_A", "lora_B")
        return {
            path: (f"{_PREFIX}{path}.{sides[0]}.slot_{slot}.weight", f"{_PREFIX}{path}.{sides[1]}.slot_{slot}.weight")
            for path in self._layout.modules
        }

    def _name_tensors(self, slot: int) -> dict[str, Tensor]:
        return {name: self.model.get_parameter(name) for pair in self._slot_names(slot).values() for name in pair}

    def _unwrapped(self, name: str) -> str:
        name = name.removeprefix(_PREFIX)
        path, found, rest = name.rpartition(".base_layer.")
        return f"{path}.{rest}" if found and path in self._layout.modules else name


def _desired(one: DesiredAdapter) -> DesiredAdapter:
    """The registration alone, as the registry knows it."""
    return DesiredAdapter(one.name, one.registration_id, one.slot)
