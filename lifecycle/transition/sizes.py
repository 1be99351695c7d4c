"""Gathers what a hand-over is planned from: who holds and takes how many bytes. Looks, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from torch import Tensor

from lifecycle.engines.protocol import EngineReport, RolloutEngine
from lifecycle.errors import EngineError
from lifecycle.memory import host
from lifecycle.saver import Backup, TagInfo
from lifecycle.transition.engine_facts import ask_engines
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Parts, Request
from states import ACTOR, BUFFERS, FROZEN_BASE, TRAINABLE_BASE, Facts, TrainerEvent, groups_to_copy
from states.handover_needs import (
    CUDA_GRAPH,
    KV_CACHE,
    RESUME_ORDER,
    WEIGHTS,
    EngineBytes,
    HandoverConfig,
    HandoverSizes,
    MemoryPeak,
    TrainerBytes,
)

_BASE: Final = (FROZEN_BASE, TRAINABLE_BASE, BUFFERS)
_Reports = Sequence[tuple[EngineBytes, EngineReport | None]]


def sizes_of(parts: Parts, engines: Sequence[RolloutEngine]) -> HandoverSizes:
    """The sizes of a hand-over to these engines, as they are now.

    Raises:
        EngineError: an engine reports a size that is none.
    """
    facts = gather(parts, Request(), TrainerEvent.SLEEP)
    saver_tags, shares = parts.saver.tags(), parts.config.colocate
    found = [
        (_engine_bytes(one.name, said, _groups_bytes(parts, one.stale), saver_tags, shares=shares), said)
        for one, said in ask_engines(parts, engines, facts.contents)
    ]
    held_host, held_device = _held(parts, found if shares else [], saver_tags)
    return HandoverSizes(
        trainer=_trainer_bytes(parts, facts),
        engines=tuple(one for one, _ in found),
        host_held_bytes=held_host,
        device_held_bytes=held_device,
    )


def config_of(parts: Parts, sizes: HandoverSizes, memory_peak: MemoryPeak | None) -> HandoverConfig:
    """What the configuration asks for. Budgets are no more than what the operating system and the saver have to give.

    Args:
        parts: the trainer.
        sizes: what is held now.
        memory_peak: what this one hand-over asks for; None leaves it to the configuration.
    """
    config, device_room = parts.config, parts.saver.device_free_bytes()
    asked = None if config.memory_peak is None else MemoryPeak(config.memory_peak)
    device_limit = None if device_room is None else sizes.device_held_bytes + device_room
    return HandoverConfig(
        memory_peak=memory_peak if memory_peak is not None else asked,
        lora=config.lora,
        engine_keeps_weights=config.engine_keeps_weights,
        host_budget_bytes=_least(config.host_budget_bytes, sizes.host_held_bytes + host.host_free_bytes()),
        device_budget_bytes=_least(config.device_budget_bytes, device_limit),
    )


class Levels:
    """What is held on the host and on the device as a hand-over goes on: the books, and what engines elsewhere say.

    Args:
        parts: the trainer.
        engines: the engines of the hand-over.
    """

    def __init__(self, parts: Parts, engines: Sequence[RolloutEngine]) -> None:
        self._parts = parts
        self._engines = {one.name: one for one in engines} if parts.config.colocate else {}
        self._said: dict[str, tuple[EngineBytes, EngineReport | None]] = {}
        for name in self._engines:
            self._ask(name)

    def after(self, engine: str) -> tuple[int, int]:
        """Host and device bytes after a step of this engine, or of the trainer for an empty name."""
        if engine in self._engines:
            self._ask(engine)
        return _held(self._parts, tuple(self._said.values()), self._parts.saver.tags())

    def _ask(self, name: str) -> None:
        said = _report(self._engines[name])
        try:
            one = _engine_bytes(name, said, 0, self._parts.saver.tags(), shares=True)
        except EngineError:  # it was asked before the first step, and a turn does not end because of a record
            one = EngineBytes(name=name)
        self._said[name] = one, said


def _held(parts: Parts, engines: _Reports, tags: Mapping[str, TagInfo]) -> tuple[int, int]:
    """Host and device bytes that are held now; the saver's books count the engines that are its tenants."""
    elsewhere = [one for one, said in engines if not _is_tenant(said, tags)]
    usage = parts.saver.usage()
    copies = parts.snapshots.host_bytes() + parts.gradients.kept_bytes()
    mirrors = sum(one.mirror_held_bytes for one in elsewhere)
    on_device = sum(one.device_bytes(tuple(one.resident)) for one in elsewhere)
    return usage.host_bytes + copies + mirrors, usage.device_bytes + on_device


def _trainer_bytes(parts: Parts, facts: Facts) -> TrainerBytes:
    split, target = parts.layout.tags(), parts.config.offload_target
    active = [info for info in split.weights if not info.paused]
    takes_cpu = [info for info in split.weights if info.backup is Backup.CPU and (target is not None or info.paused)]
    backups = 0 if parts.saver.retain_host_backup else sum(info.size_bytes for info in takes_cpu)
    quiesces = any(not info.paused for info in split.scratch)
    gradients = _size(parts.gradients.homes(parts.parameter_names(parts.runtime.accumulated))) if quiesces else 0
    return TrainerBytes(
        target=target,
        weights_bytes=sum(info.size_bytes for info in active),
        scratch_bytes=sum(info.size_bytes for info in split.scratch if not info.paused),
        awake_bytes=sum(info.size_bytes for info in (*split.weights, *split.scratch)),
        kept_bytes=gradients + (facts.copy_need_bytes if quiesces else 0),
        replaced_bytes=parts.snapshots.would_free(ACTOR, groups_to_copy(facts)) if quiesces else 0,
        backup_bytes=sum(max(0, one.size_bytes - one.backup_bytes) for one in active if one.backup is Backup.CPU),
        returned_bytes=backups + gradients + parts.gradients.kept_bytes(),
        base_bytes=_groups_bytes(parts, _BASE),
    )


def _groups_bytes(parts: Parts, groups: Iterable[str]) -> int:
    held = parts.inventory.groups()
    return sum(_size(held[group].values()) for group in groups if group in held)


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def _report(engine: RolloutEngine) -> EngineReport | None:
    try:
        return engine.report()
    except Exception:  # noqa: BLE001 - whatever an engine raises, its sizes are unknown; the first step will tell why
        return None


def _engine_bytes(
    name: str, said: EngineReport | None, behind_bytes: int, tags: Mapping[str, TagInfo], *, shares: bool
) -> EngineBytes:
    if not shares:
        return EngineBytes(name=name, tags=(), behind_bytes=behind_bytes)
    if said is None:
        return EngineBytes(name=name, behind_bytes=behind_bytes)
    sizes = _checked_sizes(name, said)
    resident = said.resident & set(RESUME_ORDER) if not said.unknown else frozenset[str]()
    gone = said.discarded - resident if not _is_tenant(said, tags) else frozenset()
    has_mirror = not said.discards and WEIGHTS not in resident | gone
    return EngineBytes(
        name=name,
        tags=_tags(said),
        resident=resident,
        discarded=said.discarded & set(RESUME_ORDER),
        weights_bytes=sizes.get(WEIGHTS, 0),
        kv_cache_bytes=sizes.get(KV_CACHE, 0),
        cuda_graph_bytes=sizes.get(CUDA_GRAPH, 0),
        mirror_bytes=said.mirror_bytes,
        mirror_held_bytes=said.mirror_bytes if has_mirror else 0,
        behind_bytes=behind_bytes,
        releases_apart=said.releases_apart,
        discards=said.discards,
    )


def _tags(said: EngineReport) -> tuple[str, ...]:
    """The tags that it names, in the order of resuming. One that names none is asked for what every engine has."""
    named = {*said.resident, *said.released, *said.device_bytes}
    return tuple(tag for tag in RESUME_ORDER if tag in named) or (WEIGHTS, KV_CACHE)


def _checked_sizes(name: str, said: EngineReport) -> dict[str, int]:
    """Its device bytes by tag.

    Raises:
        EngineError: one of its sizes is no number of bytes.
    """
    sizes = dict(said.device_bytes)
    every = sizes | {"mirror": said.mirror_bytes}
    odd = {what: one for what, one in every.items() if not isinstance(one, int) or one < 0}
    if odd:
        raise EngineError(name, f"it reports sizes that are no numbers of bytes: {odd}; mend its report()")
    return sizes


def _is_tenant(said: EngineReport | None, tags: Mapping[str, TagInfo]) -> bool:
    """Whether its memory lies in the trainer's saver, whose books count it already."""
    return said is not None and bool(said.saver_tags) and set(said.saver_tags) <= tags.keys()


def _least(*limits: int | None) -> int | None:
    known = [one for one in limits if one is not None]
    return min(known) if known else None
