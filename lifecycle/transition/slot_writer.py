"""Writing a slot and everything that belongs to it, through the door, with a way back for each single write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from lifecycle.adapters.protocol import AdapterHost, PreparedAdapter
from lifecycle.memory.main_copies import MAIN, is_rounded_from
from lifecycle.transition.parts import Parts
from lifecycle.weights.door import write


class SlotWriter:
    """Writes slots and remembers what was there.

    Args:
        parts: the trainer.

    Attributes:
        moved_bytes: bytes written so far.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._undos: list[Callable[[], object]] = []
        self.moved_bytes = 0

    def load(self, host: AdapterHost, prepared: PreparedAdapter) -> None:
        """Write an adapter's weights and main copies; zero what the last tenant left, or put back what it resumes."""
        slot, mains = prepared.desired.slot, self._parts.moments.mains
        for name, tensor in host.slot_tensors(slot).items():
            value = prepared.tensors[name]
            if name in mains:
                # The parameter is what its main copy rounds to: so a step without gradient changes nothing.
                exact = prepared.exact.get(name, value).float()
                self._write(f"{name}#{MAIN}", mains[name], exact)
                value = exact.to(tensor.dtype)
            self._write(name, tensor, value)
        self._begin(host, slot)
        if prepared.record is not None:
            from lifecycle.memory.slot_record import put_record  # noqa: PLC0415 - needs msgspec

            put_record(self._parts.slots, slot, prepared.record, self._write)

    def clear(self, host: AdapterHost, slot: int) -> None:
        """Write zeros over a slot's weights and everything that belongs to it."""
        mains, tensors = self._parts.moments.mains, host.slot_tensors(slot)
        self._zero({f"{name}#{MAIN}": mains[name] for name in tensors if name in mains})
        self._zero(tensors)
        self._begin(host, slot)

    def follow_parameters(self, names: Iterable[str]) -> list[str]:
        """Write those main copies again whose parameter was loaded behind their back: the next step would undo it.

        Returns:
            The parameters that it was so of.
        """
        door, mains, parameters = self._parts.door, self._parts.moments.mains, self._parts.inventory.trainable()
        behind = []
        for name in (name for name in names if name in mains):
            parameter = door.own_bytes(name, parameters[name])
            if not is_rounded_from(parameter, door.own_bytes(f"{name}#{MAIN}", mains[name])):
                self._write(f"{name}#{MAIN}", mains[name], parameter.float())
                behind.append(name)
        return behind

    def _begin(self, host: AdapterHost, slot: int) -> None:
        parts, names = self._parts, tuple(host.slot_tensors(slot))
        self._zero(parts.slots.tensors(slot))
        parts.slots.begin(slot, self._undos.append)
        parts.gradients.drop_kept(names)
        parts.gradients.take_home(names, self._undos.append)
        if not any(info.paused for info in parts.layout.tags().scratch):  # else the resume zeroes them
            self._zero({f"gradient {number}": one for number, one in enumerate(parts.gradients.homes(names))})

    def _zero(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self._write(name, tensor, torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape))

    def _write(self, name: str, tensor: Tensor, value: Tensor) -> None:
        into = self._parts.door.own_bytes(name, tensor)
        self._undos.append(partial(write, into, into.clone()))
        self.moved_bytes += write(into, value)

    def mark(self) -> int:
        """Where the writes stand now, for :meth:`undo`."""
        return len(self._undos)

    def undo(self, mark: int) -> None:
        """Everything as it was at *mark*, the last write first. If it fails, it goes on where it was next time."""
        while len(self._undos) > mark:
            self._undos[-1]()
            self._undos.pop()


def unknown_slot_state(parts: Parts, changing: Iterable[str]) -> tuple[str, ...]:
    """What belongs to the slots of these adapters, wanted or loaded, and cannot be handed over."""
    host, names = parts.adapters, set(changing)
    if host is None or not names:
        return ()
    slots = {one.slot for held in (host.desired(), host.loaded()) for name, one in held.items() if name in names}
    return tuple(told for slot in sorted(slots) for told in parts.slots.unknown(slot))
