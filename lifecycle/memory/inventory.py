"""Which tensors the trainer has, by content group. Names are the model's own; tied weights appear once."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import Tensor, nn

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.errors import ConfigError
from states import BUFFERS, FROZEN_BASE, TRAINABLE_BASE, adapter_group


class Inventory:
    """The trainer's tensors by content group and name.

    Args:
        model: the module that trains.
        adapters: its adapter slots, None in a full-parameter run.
        frozen_buffers: glob patterns of buffers that never change.

    Raises:
        ConfigError: a tensor on the meta device (it has no bytes), or a frozen-buffer pattern that
            matches nothing.
    """

    def __init__(self, model: nn.Module, adapters: AdapterHost | None, frozen_buffers: tuple[str, ...]) -> None:
        self._adapters = adapters
        if adapters is None:
            parameters: Mapping[str, Tensor] = dict(model.named_parameters())
            buffers: Mapping[str, Tensor] = dict(model.named_buffers())
        else:
            parameters, buffers = adapters.base_tensors()
        frozen = {name: one for name, one in parameters.items() if not one.requires_grad}
        frozen |= {name: one for name, one in buffers.items() if _matches(name, frozen_buffers)}
        mutable = {name: one for name, one in buffers.items() if name not in frozen}
        trainable = {name: one for name, one in parameters.items() if name not in frozen}
        found = {FROZEN_BASE: frozen, TRAINABLE_BASE: trainable, BUFFERS: mutable}
        self.base: dict[str, dict[str, Tensor]] = {group: held for group, held in found.items() if held}
        self.tied_names = _tied_names(model, adapters)
        _refuse_meta(self.base)
        _refuse_idle_patterns(frozen_buffers, tuple(buffers))

    def groups(self) -> dict[str, Mapping[str, Tensor]]:
        """Every content group that exists now: the base groups, then loaded adapters by name."""
        found: dict[str, Mapping[str, Tensor]] = dict(self.base)
        if self._adapters is not None:
            for name, loaded in sorted(self._adapters.loaded().items()):
                found[adapter_group(name)] = self._adapters.slot_tensors(loaded.slot)
        return found

    def slot_tensors(self) -> dict[str, Tensor]:
        """The tensors of every slot, loaded or empty."""
        if self._adapters is None:
            return {}
        found: dict[str, Tensor] = {}
        for slot in range(self._adapters.slots):
            found.update(self._adapters.slot_tensors(slot))
        return found

    def unfrozen(self) -> tuple[str, ...]:
        """Parameters that were frozen at attach and are not any more: their changes would go unseen."""
        return tuple(name for name, one in self.base.get(FROZEN_BASE, {}).items() if one.requires_grad)

    def trainable(self) -> dict[str, Tensor]:
        """Every parameter that may get a gradient: trainable base and all slots."""
        return {**self.base.get(TRAINABLE_BASE, {}), **self.slot_tensors()}


def _tied_names(model: nn.Module, adapters: AdapterHost | None) -> tuple[str, ...]:
    """Further names of tied parameters, which a state dict has and this inventory lists once."""
    unwrapped = model if adapters is None else getattr(adapters, "unwrapped", model)
    once = {name for name, _ in unwrapped.named_parameters()}
    return tuple(name for name, _ in unwrapped.named_parameters(remove_duplicate=False) if name not in once)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_meta(groups: Mapping[str, Mapping[str, Tensor]]) -> None:
    meta = [name for held in groups.values() for name, tensor in held.items() if tensor.is_meta]
    if meta:
        raise ConfigError(f"{len(meta)} tensor(s) are on the meta device and have no bytes: {', '.join(meta[:3])}")


def _refuse_idle_patterns(patterns: tuple[str, ...], names: tuple[str, ...]) -> None:
    idle = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        raise ConfigError(f"frozen_buffers matches no buffer: {', '.join(idle)}; the buffers are: {', '.join(names)}")
