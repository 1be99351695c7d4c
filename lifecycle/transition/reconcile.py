"""Bringing the slots to what the registry says. Prepare everything, write bytes, then record.

Bytes go through the door: to the device while the trainer is awake, into the saver's host backup
while it is offloaded, where they are on the device after the next resume.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from lifecycle.adapters.protocol import AdapterHost, DesiredAdapter, PreparedAdapter
from lifecycle.errors import AdapterError, ConfigError
from lifecycle.transition.parts import Parts, Undo, Work, undone_by
from lifecycle.transition.verify import note_written
from lifecycle.weights.digests import digest
from lifecycle.weights.door import write
from states import adapter_group


class _SlotWriter:
    """Writes slots and remembers what was there."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._before: list[tuple[Tensor, Tensor]] = []
        self._notes = parts.notes.save()
        self.moved_bytes = 0

    def write(self, slot: int, values: Mapping[str, Tensor] | None, host: AdapterHost) -> None:
        """Write a slot's weights (zeros when *values* is None) and zero what belongs to the last tenant."""
        tensors = host.slot_tensors(slot)
        for name, tensor in tensors.items():
            into = self._parts.door.own_bytes(name, tensor)
            self._put(into, torch.zeros_like(into) if values is None else values[name])
        for name, tensor in self._parts.moments.of(tensors).items():
            into = self._parts.door.own_bytes(name, tensor)
            self._put(into, torch.zeros_like(into))

    def zero(self, tensors: Iterable[Tensor]) -> None:
        """Zero these tensors."""
        for tensor in tensors:
            self._put(tensor, torch.zeros_like(tensor))

    def _put(self, into: Tensor, value: Tensor) -> None:
        self._before.append((into, into.clone()))
        self.moved_bytes += write(into, value)

    def undo(self) -> None:
        """Every byte as it was, the last write first, and what was noted of them. If it fails, it goes on next time."""
        self._parts.notes.load(self._notes)
        while self._before:
            write(*self._before[-1])
            self._before.pop()


def write_adapters(parts: Parts, work: Work) -> Undo:
    """Load, replace and retire adapters.

    A retired slot is zeroed; a new tenant starts with zero moments and gradients. If anything fails,
    every slot is as it was.

    Raises:
        AdapterError: an adapter's file or tensors do not fit; it names the adapter.
    """
    host = parts.adapters
    if host is None:
        raise ConfigError("there is nothing to reconcile: the controller was built without adapters")
    to_load, to_retire = work.facts.to_load, work.facts.to_retire
    desired, loaded = host.desired(), dict(host.loaded())
    prepared = [host.prepare(_still(desired, name)) for name in to_load]
    writer, accumulated = _SlotWriter(parts), parts.runtime.accumulated
    undo = _undo_of(parts, writer, host)

    with undone_by(undo):
        for name in to_retire:
            _retire(parts, writer, host, loaded[name].slot, name)
        for one in prepared:
            _load(parts, writer, host, one)
    work.on_commit.append(lambda: host.freed(tuple(loaded[name] for name in to_retire)))
    work.on_commit.append(parts.forget_digests)
    work.count("adapters", writer.moved_bytes)
    work.details |= {
        "loaded": list(to_load),
        "retired": list(to_retire),
        "dropped_gradients_of": sorted(accumulated - parts.runtime.accumulated),
        "versions": {adapter_group(one.desired.name): _version(parts, one) for one in prepared},
    }
    return undo


def _undo_of(parts: Parts, writer: _SlotWriter, host: AdapterHost) -> Undo:
    """Takes back what is done from now on. If it fails, only the writer has the old bytes: recover calls it again."""
    loaded, saved, copies = dict(host.loaded()), parts.versions.save(), parts.snapshots.save()
    accumulated, kept = parts.runtime.accumulated, parts.gradients.drop_kept(())

    def undo() -> None:
        parts.runtime.owed = undo
        writer.undo()
        host.reinstate(loaded)
        parts.versions.load(saved)
        parts.snapshots.load(copies)
        parts.gradients.set_kept(kept)
        parts.runtime.accumulated = accumulated
        parts.runtime.owed = None

    return undo


def _still(desired: Mapping[str, DesiredAdapter], name: str) -> DesiredAdapter:
    if name not in desired:
        raise AdapterError(name, "it was deregistered while the reconcile began; reconcile again")
    return desired[name]


def _version(parts: Parts, prepared: PreparedAdapter) -> int:
    return parts.versions.wanted[adapter_group(prepared.desired.name)]


def _retire(parts: Parts, writer: _SlotWriter, host: AdapterHost, slot: int, name: str) -> None:
    group = adapter_group(name)
    names = tuple(host.slot_tensors(slot))
    writer.write(slot, None, host)
    _drop_gradients(parts, writer, names, group)
    host.uninstall(name)
    parts.versions.drop(group)
    parts.snapshots.forget(group)
    note_written(parts, group, slot)


def _load(parts: Parts, writer: _SlotWriter, host: AdapterHost, prepared: PreparedAdapter) -> None:
    group = adapter_group(prepared.desired.name)
    slot = prepared.desired.slot
    writer.write(slot, prepared.tensors, host)
    _drop_gradients(parts, writer, tuple(host.slot_tensors(slot)), group)
    version = parts.versions.renew(group)
    host.install(prepared)
    parts.versions.digests[version] = digest(parts.own_bytes(group))
    note_written(parts, group, slot)


def _drop_gradients(parts: Parts, writer: _SlotWriter, names: tuple[str, ...], group: str) -> None:
    """Gradients of the last tenant go: now if they are mapped, else with the resume that zeroes them."""
    parts.gradients.drop_kept(names)
    parts.runtime.accumulated -= {group}
    if not any(info.paused for info in parts.layout.tags().scratch):
        writer.zero(parts.gradients.homes(names))
