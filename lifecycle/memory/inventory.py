"""Which tensors the trainer has, by content group. Names are the model's own; tied weights appear once."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Final

from torch import Tensor, nn

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.errors import ConfigError
from lifecycle.memory.attach_checks import refuse_expanded, refuse_overlap, refuse_tensors
from lifecycle.memory.sharing import groups_sharing_storage
from lifecycle.memory.strays import stray_bytes, strays
from lifecycle.saver.placement import Obstacle, obstacle
from states import BUFFERS, FROZEN_BASE, TRAINABLE_BASE, adapter_group

_COMPILED: Final = "_orig_mod."

_requires_grad: Final = attrgetter("requires_grad")


class Inventory:
    """The trainer's tensors by content group and name.

    Args:
        model: the module that trains. Names are those of the module inside of wrappers (DataParallel, torch.compile).
        adapters: its adapter slots, None in a full-parameter run.
        frozen_buffers: glob patterns of buffers that never change.

    Attributes:
        base: the base groups that are not empty, by name.
        tied_names: further names of tied parameters.
        resident: tensors that the model holds outside of parameters and buffers, by the path of attributes, with
            the bytes of their storage; they lie in no region and stay where they are.
        aliases: of these, views of attached tensors: path to the tensor's name.

    Raises:
        ConfigError: a tensor that cannot be attached (see :mod:`lifecycle.memory.attachable`), or a
            frozen-buffer pattern that matches nothing. Nothing was changed.
    """

    def __init__(self, model: nn.Module, adapters: AdapterHost | None, frozen_buffers: tuple[str, ...]) -> None:
        self._adapters = adapters
        self._slots: dict[int, Mapping[str, Tensor]] = {}
        if adapters is None:
            inner = _unwrapped(model)
            parameters: Mapping[str, Tensor] = {_plain(name): one for name, one in inner.named_parameters()}
            buffers: Mapping[str, Tensor] = {_plain(name): one for name, one in inner.named_buffers()}
        else:
            parameters, buffers = adapters.base_tensors()
        frozen = {name: one for name, one in parameters.items() if not one.requires_grad}
        frozen |= {name: one for name, one in buffers.items() if _matches(name, frozen_buffers)}
        mutable = {name: one for name, one in buffers.items() if name not in frozen}
        trainable = {name: one for name, one in parameters.items() if name not in frozen}
        found = {FROZEN_BASE: frozen, TRAINABLE_BASE: trainable, BUFFERS: mutable}
        self.base: dict[str, dict[str, Tensor]] = {group: held for group, held in found.items() if held}
        self.tied_names = _tied_names(model, adapters)
        _refuse_idle_patterns(frozen_buffers, tuple(buffers))
        self._refuse_unattachable()
        self.resident, self.aliases = _strays(model, self.tensors())
        self._homes = _homes_of(model, self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name: base and slots."""
        return {name: one for held in self.base.values() for name, one in held.items()} | self.slot_tensors()

    def placement_groups(self) -> dict[str, Mapping[str, Tensor]]:
        """The base groups, and the tensors of each slot, loaded or empty, as a group of its own."""
        slots = range(self._adapters.slots) if self._adapters is not None else ()
        held = {f"slot {slot}": self._adapters.slot_tensors(slot) for slot in slots if self._adapters is not None}
        return {**self.base, **held}

    def _refuse_unattachable(self) -> None:
        refuse_tensors(self.tensors())
        refuse_expanded(self.trainable() | self.base.get(BUFFERS, {}))
        refuse_overlap(groups_sharing_storage(self.placement_groups()))

    def groups(self) -> dict[str, Mapping[str, Tensor]]:
        """Every content group that exists now: the base groups, then loaded adapters by name."""
        found: dict[str, Mapping[str, Tensor]] = dict(self.base)
        if self._adapters is not None:
            for name, loaded in sorted(self._adapters.loaded().items()):
                found[adapter_group(name)] = self._slot(loaded.slot)
        return found

    def slot_tensors(self) -> dict[str, Tensor]:
        """The tensors of every slot, loaded or empty."""
        if self._adapters is None:
            return {}
        found: dict[str, Tensor] = {}
        for slot in range(self._adapters.slots):
            found.update(self._slot(slot))
        return found

    def _slot(self, slot: int) -> Mapping[str, Tensor]:
        """The tensors of one slot, always the same mapping: they never change, and a host may build it each time."""
        assert self._adapters is not None  # asked for only where there are slots
        if slot not in self._slots:
            self._slots[slot] = self._adapters.slot_tensors(slot)
        return self._slots[slot]

    def replaced(self) -> tuple[str, ...]:
        """Tensors in whose place the model has another object by now: nobody pauses, serves or restores that one."""
        return tuple(name for name, held, key, one in self._homes if held.get(key) is not one)

    def unfrozen(self) -> tuple[str, ...]:
        """Parameters that were frozen at attach and are not any more: their changes would go unseen."""
        held = self.base.get(FROZEN_BASE, {})
        if not any(map(_requires_grad, held.values())):
            return ()
        return tuple(name for name, one in held.items() if one.requires_grad)

    def trainable(self) -> dict[str, Tensor]:
        """Every parameter that may get a gradient: trainable base and all slots."""
        return {**self.base.get(TRAINABLE_BASE, {}), **self.slot_tensors()}


_Home = tuple[str, Mapping[str, Tensor | None], str, Tensor]


def _homes_of(model: nn.Module, tensors: Mapping[str, Tensor]) -> tuple[_Home, ...]:
    """Where the model keeps its tensors: name, the dictionary of the module, the key there, and the tensor."""
    names = {id(one): name for name, one in tensors.items()}
    found: list[_Home] = []
    for module in model.modules():
        for held in (module._parameters, module._buffers):  # noqa: SLF001 - named_parameters() takes ten times as long
            found.extend(
                (names[id(one)], held, key, one) for key, one in held.items() if one is not None and id(one) in names
            )
    return tuple(found)


def _strays(model: nn.Module, known: Mapping[str, Tensor]) -> tuple[dict[str, int], dict[str, str]]:
    """What lies outside: bytes by path, each storage once, and which of it are views of known tensors."""
    owners = {int(one.untyped_storage().data_ptr()): name for name, one in known.items() if one.numel()}
    resident: dict[str, int] = {}
    aliases: dict[str, str] = {}
    counted: set[int] = set()
    for path, one in strays(model, known).items():
        is_plain = obstacle(one) in {None, Obstacle.NON_LEAF, Obstacle.LAZY_VIEW}
        address = int(one.untyped_storage().data_ptr()) if is_plain else 0
        if address in owners and address:
            aliases[path] = owners[address]
            continue
        resident[path] = 0 if address in counted else stray_bytes(one)
        counted |= {address} - {0}
    return resident, aliases


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module inside of wrappers: one child named ``module`` or compiled, and no tensor of their own."""
    while True:
        children = dict(model.named_children())
        only = next(iter(children)) if len(children) == 1 else ""
        own = [*model.parameters(recurse=False), *model.buffers(recurse=False)]
        if own or only not in {"module", _COMPILED.rstrip(".")}:
            return model
        model = children[only]


def _plain(name: str) -> str:
    """A name without the level that torch.compile puts between."""
    return name.replace(_COMPILED, "")


def _tied_names(model: nn.Module, adapters: AdapterHost | None) -> tuple[str, ...]:
    """Further names of tied parameters, which a state dict has and this inventory lists once."""
    inner = _unwrapped(model) if adapters is None else getattr(adapters, "unwrapped", model)
    once = {name for name, _ in inner.named_parameters()}
    return tuple(_plain(name) for name, _ in inner.named_parameters(remove_duplicate=False) if name not in once)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_idle_patterns(patterns: tuple[str, ...], names: tuple[str, ...]) -> None:
    idle = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
    if idle:
        raise ConfigError(f"frozen_buffers matches no buffer: {', '.join(idle)}; the buffers are: {', '.join(names)}")
