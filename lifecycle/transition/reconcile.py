"""Bringing the slots to what the registry says. Prepare everything, write bytes, then record.

Bytes go through the door: to the device while the trainer is awake, into the saver's host backup
while it is offloaded, where they are on the device after the next resume. All of it is one transaction;
when what succeeds is to be kept, each adapter is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from lifecycle.adapters.custody import refuse_ended
from lifecycle.adapters.protocol import AdapterHost, DesiredAdapter, PreparedAdapter
from lifecycle.errors import AdapterError, ConfigError, DigestMismatch, SlotWriteError
from lifecycle.outcome import FailedAdapter
from lifecycle.transition.checkpoint import resumed_record
from lifecycle.transition.parts import Parts, Undo, UndoFailed, Work, undone_by
from lifecycle.transition.slot_writer import SlotWriter
from lifecycle.transition.verify import note_written
from lifecycle.weights.digests import digest
from states import Facts, adapter_group, plan_reconcile


@dataclass
class _Pass:
    """One reconcile under way.

    Attributes:
        before: what was loaded when it began.
        desired: what is to be loaded.
        failed: the adapters that were left as they were, because what succeeds is kept.
    """

    parts: Parts
    host: AdapterHost
    keeps_partial: bool
    writer: SlotWriter
    before: dict[str, DesiredAdapter]
    desired: Mapping[str, DesiredAdapter]
    loaded: list[PreparedAdapter] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    failed: list[FailedAdapter] = field(default_factory=list)


def write_adapters(parts: Parts, work: Work) -> Undo:
    """Load, replace and retire adapters.

    A retired slot is zeroed; a new tenant starts with zero moments, counts and gradients, and its schedule at the
    beginning. If anything fails, every slot is as it was; if what succeeds is to be kept, every slot of an adapter
    that failed is.

    Raises:
        AdapterError: an adapter's file or tensors do not fit; it names the adapter.
        SlotWriteError: an adapter that fits could not be written; it names the adapter.
    """
    host = parts.adapters
    if host is None:
        raise ConfigError("there is nothing to reconcile: the controller was built without adapters")
    to_load, to_retire = work.facts.to_load, work.facts.to_retire
    accumulated, keeps = parts.runtime.accumulated, work.request.keeps_partial
    one = _Pass(parts, host, keeps, SlotWriter(parts), dict(host.loaded()), host.desired())
    _refuse_another_plan(one, work.facts)
    undo = _undo_of(one)
    with undone_by(undo):
        (_apply_each if keeps else _apply_all)(one, to_load, to_retire)
        _refuse_stranded(one)
    gone = tuple(one.before[name] for name in one.retired)
    work.on_commit.append(lambda: host.freed(gone))
    work.on_commit.append(parts.forget_digests)
    work.count("adapters", one.writer.moved_bytes)
    work.details |= {
        "loaded": [each.desired.name for each in one.loaded],
        "retired": list(one.retired),
        "dropped_gradients_of": sorted(accumulated - parts.runtime.accumulated),
        "versions": {(group := adapter_group(each.desired.name)): parts.versions.wanted[group] for each in one.loaded},
    }
    resumed = {each.desired.name: each.record.told for each in one.loaded if each.record is not None}
    if resumed:
        work.details["resumed"] = resumed
    if one.failed:
        work.details["failed"] = tuple(sorted(one.failed, key=lambda each: each.name))
    return undo


def _refuse_stranded(one: _Pass) -> None:
    """Who is in use was retired for a successor that then could not be loaded: forward passes would go without any."""
    stranded: tuple[str, ...] = () if one.parts.chooser is None else one.parts.chooser.stranded()
    for name in stranded:
        told = "".join(f"; {each.name}: {each.why}" for each in one.failed)
        raise AdapterError(name, f"it is in use, and the successor that use() names is not loaded{told}")


def _refuse_another_plan(one: _Pass, facts: Facts) -> None:
    """What was decided is loaded, and not what has been registered since: other ranks load that, too.

    Raises:
        AdapterError: a name was registered anew. One that was deregistered fails for itself.
    """
    if not one.desired.keys() >= {*facts.to_load}:
        return
    stays = {name: held for name, held in one.before.items() if name not in facts.to_retire}
    loads = {name: one.desired[name] for name in facts.to_load}
    if plan_reconcile(stays | loads, one.before).digest != facts.plan_digest:
        newest = max(loads.values(), key=lambda held: held.registration_id)
        raise AdapterError(newest.name, "it was registered anew while the reconcile began; reconcile again")


def _apply_all(one: _Pass, to_load: tuple[str, ...], to_retire: tuple[str, ...]) -> None:
    """Everything or nothing: read and check all, then write."""
    prepared = []
    for name in to_load:
        with _named(name):
            prepared.append(_prepare(one, name))
    for name in to_retire:
        with _named(name):
            _retire(one, name)
    for each in prepared:
        with _named(each.desired.name):
            _load(one, each)


def _apply_each(one: _Pass, to_load: tuple[str, ...], to_retire: tuple[str, ...]) -> None:
    """Each adapter by itself. One that is registered anew stays as it is if its new tensors cannot be loaded.

    One whose slot is that of another which moves comes after it; those that take each other's slots go together.
    """
    for name in (name for name in to_retire if name not in to_load):
        _attempt(one, (name,), "retire", lambda name=name: _retire(one, name))  # type: ignore[misc]
    waiting = list(to_load)
    while waiting:
        names = _next_of(one, waiting)
        _attempt(one, names, "load", lambda names=names: _put(one, names))  # type: ignore[misc]
        waiting = [name for name in waiting if name not in names]


def _next_of(one: _Pass, waiting: list[str]) -> tuple[str, ...]:
    """The first whose slot is not that of one which waits itself; if there is none, a ring of them."""
    tenants = {held.slot: name for name, held in one.host.loaded().items()}
    before = {name: tenants.get(one.desired[name].slot) if name in one.desired else None for name in waiting}
    for name in waiting:
        if before[name] == name or before[name] not in waiting:
            return (name,)
    ring = [waiting[0]]
    while (tenant := before[ring[-1]]) not in ring:
        ring.append(str(tenant))
    return tuple(ring[ring.index(str(tenant)) :])


def _attempt(one: _Pass, names: tuple[str, ...], change: str, do: Callable[[], None]) -> None:
    """One change; if it fails, what it did is undone and noted. An interrupt, or wrong bytes, ends them all."""
    loaded, retired = list(one.loaded), list(one.retired)
    try:
        with undone_by(_undo_of(one)), _named(names[0]):
            do()
    except (DigestMismatch, UndoFailed):
        raise
    except Exception as error:  # noqa: BLE001 - it is reported with the adapter's name; the others go on
        one.loaded, one.retired = loaded, retired
        culprit, why = getattr(error, "adapter", names[0]), str(getattr(error, "why", error))
        for name in names:
            told = why if name == culprit else f"it changes slots with {culprit!r}, which failed: {why}"
            is_replaced = change == "load" and name in one.before
            one.failed.append(FailedAdapter(name, "replace" if is_replaced else change, told))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Whatever fails inside names the adapter."""
    try:
        yield
    except (AdapterError, SlotWriteError, DigestMismatch, UndoFailed):
        raise
    except Exception as error:
        raise SlotWriteError(name, f"{type(error).__name__}: {error}") from error


def _undo_of(one: _Pass) -> Undo:
    """Takes back what is done from now on. If it fails, only the writer has the old bytes: recover calls it again."""
    parts, host, mark = one.parts, one.host, one.writer.mark()
    loaded, saved, copies = dict(host.loaded()), parts.versions.save(), parts.snapshots.save()
    accumulated, kept, notes = parts.runtime.accumulated, parts.gradients.drop_kept(()), parts.notes.save()

    def undo() -> None:
        parts.runtime.owed = undo
        parts.notes.load(notes)
        one.writer.undo(mark)
        host.reinstate(loaded)
        parts.versions.load(saved)
        parts.snapshots.load(copies)
        parts.gradients.set_kept(kept)
        parts.runtime.accumulated = accumulated
        parts.runtime.owed = None

    return undo


def _prepare(one: _Pass, name: str) -> PreparedAdapter:
    if name not in one.desired:
        raise AdapterError(name, "it was deregistered while the reconcile began; reconcile again")
    prepared = one.host.prepare(one.desired[name])
    return replace(prepared, record=resumed_record(one.parts, prepared.desired))


def _put(one: _Pass, names: tuple[str, ...]) -> None:
    """Load adapters; of those that are replaced the old ones go first."""
    prepared = []
    for name in names:
        with _named(name):
            prepared.append(_prepare(one, name))
    for name in names:
        if name in one.before:
            with _named(name):
                _retire(one, name)
    for each in prepared:
        with _named(each.desired.name):
            _load(one, each)


def _retire(one: _Pass, name: str) -> None:
    parts, group, slot = one.parts, adapter_group(name), one.before[name].slot
    one.writer.clear(one.host, slot)
    parts.runtime.accumulated -= {group}
    one.host.uninstall(name)
    parts.versions.drop(group)
    parts.snapshots.forget(group)
    note_written(parts, group, slot)
    one.retired.append(name)


def _load(one: _Pass, prepared: PreparedAdapter) -> None:
    parts, group, slot = one.parts, adapter_group(prepared.desired.name), prepared.desired.slot
    tenant = next((name for name, held in one.host.loaded().items() if held.slot == slot), None)
    if tenant is not None:
        raise AdapterError(prepared.desired.name, f"its slot {slot} still holds {tenant!r}; retire that one first")
    one.writer.load(one.host, prepared)
    parts.runtime.accumulated -= {group}
    version = parts.versions.renew(group)
    one.host.install(prepared)
    refuse_ended(one.host, prepared.desired)
    parts.versions.digests[version] = digest(parts.own_bytes(group))
    note_written(parts, group, slot)
    one.loaded.append(prepared)
