"""Weight sync as a reconcile: what each engine should hold against what it has acknowledged.

Only what differs is sent. Versions move when the engine commits, never before. If a push fails, that
engine is aborted and fenced: it serves nothing until a later pass has sent everything again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from torch import Tensor

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.cleanup import clear_device_cache
from lifecycle.engines.protocol import AdapterPayload, RolloutEngine
from lifecycle.transition.parts import Parts, Undo, Work, nothing
from lifecycle.transport import HoldsTransport
from lifecycle.weights.leases import WeightLease
from states import ADAPTER_PREFIX, EngineFacts, Read


def open_lease(
    parts: Parts, holder: str, reads: tuple[Read, ...], groups: tuple[str, ...] | None = None
) -> WeightLease:
    """A lease over content groups from their decided sources.

    Args:
        parts: the trainer.
        holder: who reads.
        reads: the decisions.
        groups: only these; all when None.
    """
    held = parts.inventory.groups()
    by_group = {read.group: read for read in reads if groups is None or read.group in groups}
    tensors = {name: (one, read) for group, read in by_group.items() for name, one in held[group].items()}
    pins = {group: parts.door.pin(read) for group, read in by_group.items()}

    def read_pinned(name: str, tensor: Tensor, read: Read) -> Tensor:
        return parts.door.read(name, tensor, read, pins[read.group])

    return parts.leases.open(holder, tensors, read_pinned)


def send_weights(parts: Parts, work: Work) -> Undo:
    """Update every engine that is behind.

    Raises:
        EngineError: an engine failed, or whatever it raises; it is fenced. Engines before it are and stay up to date.
    """
    behind = {one.name: one for one in work.facts.engines if one.stale or one.extra or one.fenced}
    promoted: set[str] = set()
    sent: dict[str, object] = {}
    work.details["engines"] = sent
    for engine in work.request.engines:
        if engine.name in behind:
            before = work.moved_bytes
            _update_engine(parts, work, engine, behind[engine.name])
            one, moved = behind[engine.name], work.moved_bytes - before
            sent[engine.name] = {"sent": list(one.stale), "unloaded": list(one.extra), "bytes": moved}
            new = {group for group in one.stale if group.startswith(ADAPTER_PREFIX)} - promoted
            promoted |= new
            _promote(parts, new)
    _settle_transport(parts, work)
    return nothing


def _settle_transport(parts: Parts, work: Work) -> None:
    """Name the receivers that still hold buffers; once all have closed, what they held is collected."""
    outstanding = parts.runtime.receivers.outstanding()
    if outstanding:
        work.details["transport"] = outstanding
    elif any(isinstance(engine, HoldsTransport) for engine in work.request.engines):
        parts.cleanup.ask("the receivers of a sync have closed their buffers", clear_device_cache)


def _update_engine(parts: Parts, work: Work, engine: RolloutEngine, behind: EngineFacts) -> None:
    parts.runtime.receivers.remember(engine)
    try:
        holder = f"update_weights to {engine.name}"
        with open_lease(parts, holder, work.step.reads, behind.stale) as lease, parts.saver.unmanaged():
            engine.begin_update()
            for name in behind.extra:
                engine.unload_adapter(name)
            for group in behind.stale:
                work.count("sync", _send_group(parts, engine, group, lease))
            engine.commit_update()
    except BaseException as error:
        _fence(parts, engine, error)
        raise
    parts.runtime.fences.pop(engine.name, None)


def _fence(parts: Parts, engine: RolloutEngine, error: BaseException) -> None:
    """What the engine holds is unknown now. It is told so, and probed before it gets anything else.

    The frames of the error hold tensors of the lease; they are cleared, or the error itself would keep
    the saver's backup in use and the trainer could not wake.
    """
    traceback.clear_frames(error.__traceback__)
    parts.runtime.fences[engine.name] = f"a push failed: {error}"
    try:
        engine.abort_update()
    except Exception as abort_error:  # noqa: BLE001 - whatever an engine raises, why the push failed is what is raised
        parts.runtime.fences[engine.name] += f"; the abort failed too: {abort_error}"


def _send_group(parts: Parts, engine: RolloutEngine, group: str, lease: WeightLease) -> int:
    version = parts.versions.wanted[group]
    if group.startswith(ADAPTER_PREFIX) and parts.adapters is not None:
        payload = payload_of(parts.adapters, group.removeprefix(ADAPTER_PREFIX), version, lease)
        engine.load_adapter(payload)
        return sum(_size(one) for one in payload.tensors.values())
    names = tuple(parts.inventory.groups()[group])
    engine.send_base(group, version, _stream(names, lease))
    return sum(_size(one) for one in parts.inventory.groups()[group].values())


def _stream(names: tuple[str, ...], lease: WeightLease) -> Iterator[tuple[str, Tensor]]:
    for name in names:
        yield name, lease[name]


def payload_of(host: AdapterHost, name: str, version: int, lease: WeightLease) -> AdapterPayload:
    """One adapter as it is sent or saved; its tensors are views of what the lease gives."""
    rank, alpha, targets, tensors = host.export(name, lease.__getitem__)
    return AdapterPayload(name, version, rank, alpha, targets, tensors)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _promote(parts: Parts, groups: set[str]) -> None:
    """Adapters that an engine has committed have been pushed."""
    if parts.adapters is not None and groups:
        parts.adapters.pushed(tuple(sorted(group.removeprefix(ADAPTER_PREFIX) for group in groups)))
