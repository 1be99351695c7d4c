"""Gathers the facts of this moment. Looks, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from torch import Tensor

from lifecycle.adapters.custody import unaccounted_of
from lifecycle.memory import host
from lifecycle.saver import Backup, TagInfo
from lifecycle.transition.copies import with_copy_need
from lifecycle.transition.engine_facts import engines_facts
from lifecycle.transition.parts import Parts, Request
from lifecycle.transition.slot_writer import unknown_slot_state
from states import (
    FROZEN_BASE,
    ContentFacts,
    Facts,
    ReconcilePlan,
    TrainerEvent,
    plan_reconcile,
)

_NAMED = 3


def gather(parts: Parts, request: Request, event: TrainerEvent | None = None) -> Facts:
    """The record that guards decide on.

    Args:
        parts: the trainer.
        request: what the event is asked with.
        event: what is asked; facts that only one event looks at are gathered for that event alone.
    """
    runtime = parts.runtime
    offloads = event in (None, TrainerEvent.OFFLOAD) and _is_on_the_device(parts)
    if offloads:
        parts.layout.homes.forget()  # before memory is given back, also what user code has repointed is seen
    contents = content_facts(parts)
    plan = _plan_facts(parts)
    loaded = parts.adapters.loaded() if parts.adapters is not None else {}
    step = runtime.step if runtime.step is not None else request.adapters
    commits = event is TrainerEvent.TRAINED and runtime.step is not None
    facts = Facts(
        **parts.config.facts_settings(),
        active_model=runtime.active_model,
        models=parts.snapshots.backup_tags,
        contents=contents,
        origin=runtime.origin,
        **plan,
        unaccounted=unaccounted_of(parts.adapters),
        unknown_slot_state=_unknown(parts, (*plan["to_load"], *plan["to_retire"]), event),
        touched=parts.touched(step, loads=request.loads),
        step_open=runtime.step is not None,
        step_differs=tuple(sorted(set(step) ^ set(request.adapters))) if commits else (),
        step_unknown=tuple(sorted(name for name in step if name not in loaded)),
        reference_open=runtime.references > 0,
        **_use_facts(parts, step, plan["to_retire"]),
        accumulated=tuple(sorted(runtime.accumulated)),
        switch_target=request.target,
        engines=engines_facts(parts, request.engines, contents),
        **_memory_facts(parts, event, offloads=offloads, reconciles=bool(plan["plan_digest"])),
    )
    return with_copy_need(parts, facts, event, loads=request.loads)


def _unknown(parts: Parts, changing: tuple[str, ...], event: TrainerEvent | None) -> tuple[str, ...]:
    return unknown_slot_state(parts, changing) if event in (None, TrainerEvent.RECONCILE_ADAPTERS) else ()


def _use_facts(parts: Parts, step: tuple[str, ...], to_retire: tuple[str, ...]) -> dict[str, Any]:
    """What a host knows that chooses the adapter of forward passes."""
    host = parts.chooser
    if host is None:
        return {}
    return {"step_frozen": tuple(sorted(host.frozen() & set(step))), "unsucceeded": host.unsucceeded(to_retire)}


def _plan_facts(parts: Parts) -> dict[str, Any]:
    """What a reconcile would do. A name that was registered anew, or has another slot, is to be retired and loaded."""
    plan = ReconcilePlan()
    if parts.adapters is not None:
        plan = plan_reconcile(parts.adapters.desired(), parts.adapters.loaded())
    return {
        "to_load": tuple(one.name for one in plan.loads),
        "to_retire": tuple(one.name for one in plan.retires),
        "plan_digest": "" if plan.is_empty else plan.digest,
    }


def content_facts(parts: Parts) -> tuple[ContentFacts, ...]:
    """Where each content group stands."""
    copies = {tag: parts.snapshots.versions(tag) for tag in parts.snapshots.backup_tags}
    return tuple(_content(parts, group, held, copies) for group, held in parts.inventory.groups().items())


def _content(
    parts: Parts, group: str, tensors: Mapping[str, Tensor], copies: Mapping[str, Mapping[str, int | None]]
) -> ContentFacts:
    standing, region = parts.layout.homes.standing(group, tensors), parts.versions.region.get(group)
    kept = tuple([(tag, version) for tag, held in copies.items() if (version := held.get(group)) is not None])
    live = region if standing.is_live else None
    saver = region if standing.is_readable and not standing.is_live else None
    if standing.is_retained:
        saver = parts.versions.retained.get(group)
    wanted, file = parts.versions.wanted[group], parts.file.version if group == FROZEN_BASE else None
    borrowed = parts.snapshots.borrowers(group)
    served = wanted in (live, saver, file, *(version for tag, version in kept if tag not in borrowed))
    unreadable = () if served else standing.lost[:_NAMED]
    return _same_or_new(
        group, wanted, live, saver, standing.is_retained, file, kept, borrowed, standing.backup,
        group == FROZEN_BASE, unreadable,
    )  # fmt: skip


_same_or_new: Final = lru_cache(maxsize=1024)(ContentFacts)
"""From event to event few groups stand otherwise than before, and a frozen record is dear to make."""


def _memory_facts(parts: Parts, event: TrainerEvent | None, *, offloads: bool, reconciles: bool) -> dict[str, Any]:
    split = parts.layout.tags()
    paused = [info for info in (*split.weights, *split.scratch) if info.paused]
    found: dict[str, Any] = {
        "saver_enabled": parts.saver.enabled,
        "gradients_kept": _gradients_can_be_kept(parts),
        "leases": parts.leases.facts(),
        "active_tags": sum(not info.paused for info in split.weights),
        "paused_tags": sum(info.paused for info in split.weights),
        "scratch_paused": any(info.paused for info in split.scratch),
        "resume_need_bytes": sum(info.size_bytes for info in paused),
        "device_free_bytes": parts.saver.device_free_bytes(),
        "base_file_problem": parts.file.problem(),
    }
    if offloads:
        found |= _room_facts(parts, split.weights) | {"strays": strays(parts)}
    if event is TrainerEvent.BEGIN_STEP:
        misflagged = parts.chooser.misflagged() if parts.chooser is not None else ()
        found["strays"] = (*parts.inventory.unfrozen(), *parts.inventory.replaced(), *misflagged)
    if event is TrainerEvent.TRAINED:
        found["strays"] = parts.inventory.replaced()
    if event in (None, TrainerEvent.OFFLOAD, TrainerEvent.WAKE_UP):
        found |= parts.runtime.receivers.facts()
    if event is None or (event is TrainerEvent.RECONCILE_ADAPTERS and reconciles):
        found["unwritable"] = _unwritable(parts)
    return found


def _is_on_the_device(parts: Parts) -> bool:
    """Whether an offload would give anything back. One that was done already asks nobody for room."""
    split = parts.layout.tags()
    return not split.weights or not all(info.paused for info in split.weights)


def _gradients_can_be_kept(parts: Parts) -> bool:
    """Accumulated gradients are where they are copied from before a pause."""
    if not parts.runtime.accumulated:
        return True
    return not parts.gradients.strays(parts.parameter_names(parts.runtime.accumulated))


def _room_facts(parts: Parts, weights: tuple[TagInfo, ...]) -> dict[str, object]:
    going = [info for info in weights if not info.paused]
    usage = parts.saver.usage()
    held = usage.host_bytes + parts.snapshots.host_bytes()
    disk_need = sum(info.size_bytes for info in going if info.backup is Backup.DISK and info.tag not in parts.on_disk)
    need = _backup_need_bytes(going)
    found: dict[str, object] = {
        "backup_need_bytes": need,
        "host_free_bytes": host.host_room_for(need, parts.config.host_budget_bytes, held),
        "disk_need_bytes": disk_need,
    }
    if disk_need:
        directory = parts.saver.disk_dir
        problem = host.disk_problem(directory)
        found["disk_problem"] = problem
        if directory is not None and not problem:
            found["disk_free_bytes"] = host.disk_free_bytes(directory)
            found["disk_is_real"] = host.is_real_disk(directory)
    return found


def _backup_need_bytes(going: list[TagInfo]) -> int:
    return sum(max(0, one.size_bytes - one.backup_bytes) for one in going if one.backup is Backup.CPU)


def strays(parts: Parts) -> tuple[str, ...]:
    """Gradients outside any region, and moments outside any region that keeps them, although a target is set."""
    if parts.config.offload_target is None:
        return ()
    tags = parts.saver.tags()
    lost = (None, *(tag for tag, info in tags.items() if info.backup is Backup.NONE))
    moments = {name for name, one in parts.moments.tensors().items() if parts.saver.tag_of(one) in lost}
    replaced = parts.inventory.replaced()
    moved = parts.layout.moved(parts.inventory.tensors())
    return tuple(sorted({*moments, *parts.gradients.strays(), *replaced, *moved}))


def _unwritable(parts: Parts) -> tuple[str, ...]:
    slots = parts.inventory.slot_tensors()
    return tuple(name for name, one in slots.items() if not (parts.door.is_live(one) or parts.door.has_backup(one)))
