"""What a host of adapter slots does whatever the model is: records, scales, padding, exports.

A host on one kind of model says how its slots are named, applied and scaled, and, where a slot holds only a
part of each factor (tensor parallel), how a part is cut out and put together again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor
from torch.optim import Optimizer

from lifecycle.adapters.files import read_adapter
from lifecycle.adapters.fit import FittedAdapter, SlotLayout, fit_files, fit_tensors, fresh, pad, pad_exact, peft_key
from lifecycle.adapters.in_use import InUse
from lifecycle.adapters.protocol import DesiredAdapter, PreparedAdapter
from lifecycle.adapters.records import LoadedAdapter
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.sources import AdapterSource
from lifecycle.errors import ConfigError

_HEADER_BYTES: Final = 2**20
_ELEMENT_BYTES_MAX: Final = 8


class SlotsHost(InUse):
    """Adapter slots, and the record of what is in them. They start empty, with a scale of 0.

    Args:
        model: the model, its slots built.
        registry: what should be loaded; it is connected to this host.
        layout: the shape of every slot, whole.

    Attributes:
        model: the model that the slots are in.
        registry: what should be loaded.
    """

    def __init__(self, model: Any, registry: AdapterRegistry, layout: SlotLayout) -> None:
        self.model = model
        self.registry = registry
        self._layout = layout
        self._tensors = tuple(self._find_tensors(slot) for slot in range(registry.slots))
        self._loaded: dict[str, LoadedAdapter] = {}
        self._set_scales()
        self._start_use()
        registry.connect(self._read, self.loaded)

    @abstractmethod
    def _name_of(self, slot: int, module: str, side: str) -> str:
        """The name of a slot's tensor: *module* by its path in the layout, *side* ``A`` or ``B``."""

    @abstractmethod
    def _set_scale(self, slot: int, scale: float) -> None:
        """Let forward passes that apply this slot scale what it adds."""

    def _cut(self, key: str, whole: Tensor) -> Tensor:  # noqa: ARG002 - for hosts that hold parts
        """This process's part of a factor, by its PEFT key."""
        return whole

    def _join(self, name: str, parts: dict[str, Tensor]) -> Mapping[str, Tensor]:  # noqa: ARG002
        """The whole factors of an adapter, by PEFT key."""
        return parts

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self._tensors)

    def desired(self) -> Mapping[str, DesiredAdapter]:
        """What should be loaded: pending and active registrations, by name."""
        return self.registry.desired()

    def loaded(self) -> Mapping[str, DesiredAdapter]:
        """What is loaded, by name."""
        return dict(self._loaded)

    def slot_tensors(self, slot: int) -> Mapping[str, Tensor]:
        """The parameters of one slot by their name in the model. The objects never change."""
        return dict(self._tensors[slot])

    def prepare(self, desired: DesiredAdapter) -> PreparedAdapter:
        """Read, check, cut and pad an adapter's tensors. Touches no slot and reads no slot's bytes.

        Raises:
            AdapterError: it is registered no more, or its directory or tensors are wrong or do not fit.
        """
        fitted = self._read(desired.name, self.registry.source_of(desired))
        tensors, exact = {}, {}
        for path in self._layout.modules:
            given = fitted.factors.get(path, (None, None))
            for side, whole in zip("AB", given, strict=True):
                name = self._name_of(desired.slot, path, side)
                slot, part = self._tensors[desired.slot][name], None
                if whole is not None:
                    part = self._cut(peft_key(path, side), whole)
                tensors[name] = pad(desired.name, name, part, slot)
                if (unrounded := pad_exact(desired.name, name, part, slot)) is not None:
                    exact[name] = unrounded
        return PreparedAdapter(desired, fitted.rank, fitted.alpha, fitted.target_modules, tensors, exact)

    def install(self, prepared: PreparedAdapter) -> None:
        """Record that the slot now holds this adapter: its rank, scale and targets. No bytes."""
        one = prepared.desired
        self._loaded[one.name] = LoadedAdapter(
            one.name,
            one.registration_id,
            one.slot,
            prepared.rank,
            prepared.alpha,
            prepared.target_modules,
            self._is_trainable(one),
        )
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
        self._set_scales()
        self._settle()

    def pushed(self, names: tuple[str, ...]) -> None:
        """These adapters were committed in an engine: pending becomes active.

        A name that has been registered anew since is skipped, its new tensors have not been sent.
        """
        self.registry.record_weight_update([_desired(self._loaded[name]) for name in names if name in self._loaded])

    def export(
        self, name: str, read: Callable[[str], Tensor]
    ) -> tuple[int, float, tuple[str, ...], Mapping[str, Tensor]]:
        """The adapter under PEFT names, whole, cut to its own rank; every module of its targets.

        Args:
            name: a loaded adapter.
            read: gives the bytes of a slot tensor by name; where a slot holds whole factors, the result
                consists of views of what it returns.

        Returns:
            rank, alpha (the scale is alpha / rank), target_modules, tensors.

        Raises:
            AdapterError: it is not loaded.
        """
        one = self._find(name)
        parts = {}
        for path, target in self._layout.modules.items():
            if target in one.target_modules:
                parts[peft_key(path, "A")] = read(self._name_of(one.slot, path, "A"))[: one.rank]
                parts[peft_key(path, "B")] = read(self._name_of(one.slot, path, "B"))[:, : one.rank]
        return one.rank, one.alpha, one.target_modules, self._join(name, parts)

    def exported(self, name: str) -> frozenset[str]:
        """The PEFT names that :meth:`export` has to give: both factors of every module of the adapter's targets.

        Raises:
            AdapterError: it is not loaded.
        """
        targets = self._find(name).target_modules
        paths = [path for path, target in self._layout.modules.items() if target in targets]
        return frozenset(peft_key(path, side) for path in paths for side in "AB")

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
        return list(self._tensors[self._find(name).slot].values())

    def optimizers(self, factory: Callable[[list[Tensor]], Optimizer]) -> dict[int, Optimizer]:
        """One optimizer a slot, by slot.

        One over all slots would move neighbours: gradients are kept as zeros, and momentum goes on without them.

        Args:
            factory: makes an optimizer over the parameters of one slot.
        """
        return {slot: factory(list(tensors.values())) for slot, tensors in enumerate(self._tensors)}

    def _set_scales(self) -> None:
        """The scale of every slot, by what is recorded: alpha / rank, 0 where it is empty."""
        scales = {one.slot: one.alpha / one.rank for one in self._loaded.values()}
        for slot in range(self.slots):
            self._set_scale(slot, scales.get(slot, 0.0))

    def _find_tensors(self, slot: int) -> dict[str, Tensor]:
        names = [self._name_of(slot, path, side) for path in self._layout.modules for side in "AB"]
        return {name: self.model.get_parameter(name) for name in names}

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
        elements = sum(self._layout.rank * (size_in + size_out) for size_in, size_out in self._layout.shapes.values())
        return _ELEMENT_BYTES_MAX * elements + 2 * _HEADER_BYTES * len(self._layout.shapes)


def registry_for(slots: int, given: AdapterRegistry | None) -> AdapterRegistry:
    """The registry that was given for a host of this many slots, or a new one.

    Raises:
        ConfigError: it has another number of slots.
    """
    registry = AdapterRegistry(slots) if given is None else given
    if registry.slots != slots:
        raise ConfigError(f"the registry has {registry.slots} slots, the host is to have {slots}")
    return registry


def _desired(one: DesiredAdapter) -> DesiredAdapter:
    """The registration alone, as the registry knows it."""
    return DesiredAdapter(one.name, one.registration_id, one.slot)
