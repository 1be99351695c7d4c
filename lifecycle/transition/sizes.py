"""Gathers what a hand-over is planned from: who holds and takes how many bytes. Looks, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from lifecycle.engines.protocol import EngineReport, RolloutEngine
from lifecycle.errors import EngineError
from lifecycle.memory import host
from lifecycle.saver import Backup, TagInfo
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Parts, Request
from states import TrainerEvent, groups_to_copy
from states.handover_needs import KV_CACHE, WEIGHTS, EngineBytes, HandoverNeeds, TrainerBytes


def needs_of(parts: Parts, engines: Sequence[RolloutEngine]) -> HandoverNeeds:
    """The sizes of a hand-over to these engines, as they are now.

    Engines that do not share the device with the trainer are left out. The budgets are those of the configuration,
    and no more than what the operating system and the saver have to give.

    Raises:
        EngineError: an engine reports a size that is none.
    """
    reports = [(one.name, _report(one)) for one in engines] if parts.config.colocate else []
    sizes = tuple(_engine_bytes(name, report) for name, report in reports)
    tags = parts.saver.tags()
    elsewhere = [one for one, (_, report) in zip(sizes, reports, strict=True) if not _is_tenant(report, tags)]
    usage = parts.saver.usage()
    copies = parts.snapshots.host_bytes() + parts.gradients.kept_bytes()
    held_host = usage.host_bytes + copies + sum(_mirror_now(one) for one in elsewhere)
    held_device = usage.device_bytes + sum(_device_now(one) for one in elsewhere)
    host_room, device_room = host.host_free_bytes(), parts.saver.device_free_bytes()
    return HandoverNeeds(
        trainer=_trainer_bytes(parts),
        engines=sizes,
        host_held_bytes=held_host,
        device_held_bytes=held_device,
        host_budget_bytes=_least(parts.config.host_budget_bytes, held_host + host_room),
        device_budget_bytes=_least(
            parts.config.device_budget_bytes, None if device_room is None else held_device + device_room
        ),
    )


def _trainer_bytes(parts: Parts) -> TrainerBytes:
    split, target = parts.layout.tags(), parts.config.offload_target
    active = [info for info in split.weights if not info.paused]
    takes_cpu = [info for info in split.weights if info.backup is Backup.CPU and (target is not None or info.paused)]
    sleep_takes = _sleep_takes(parts) if any(not info.paused for info in split.scratch) else 0
    backups = 0 if parts.saver.retain_host_backup else sum(info.size_bytes for info in takes_cpu)
    return TrainerBytes(
        target=target,
        weights_bytes=sum(info.size_bytes for info in active),
        scratch_bytes=sum(info.size_bytes for info in split.scratch if not info.paused),
        awake_bytes=sum(info.size_bytes for info in (*split.weights, *split.scratch)),
        kept_bytes=sleep_takes,
        backup_bytes=sum(max(0, one.size_bytes - one.backup_bytes) for one in active if one.backup is Backup.CPU),
        returned_bytes=backups,
    )


def _sleep_takes(parts: Parts) -> int:
    """Gradients that are accumulated, and the copy of the actor that sleep makes where one is due."""
    gradients = parts.gradients.homes(parts.parameter_names(parts.runtime.accumulated))
    held = parts.inventory.groups()
    copied = [held[group] for group in groups_to_copy(gather(parts, Request(), TrainerEvent.SLEEP))]
    return _size(gradients) + sum(_size(tuple(tensors.values())) for tensors in copied)


def _size(tensors: Sequence[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def _report(engine: RolloutEngine) -> EngineReport | None:
    try:
        return engine.report()
    except Exception:  # noqa: BLE001 - whatever an engine raises, its sizes are unknown; the first step will tell why
        return None


def _engine_bytes(name: str, report: EngineReport | None) -> EngineBytes:
    if report is None:
        return EngineBytes(name=name)
    sizes = dict(report.device_bytes) | {"mirror": report.mirror_bytes}
    odd = {what: one for what, one in sizes.items() if not isinstance(one, int) or one < 0}
    if odd:
        raise EngineError(name, f"it reports sizes that are no numbers of bytes: {odd}; mend its report()")
    return EngineBytes(
        name=name,
        weights_bytes=sizes.get(WEIGHTS, 0),
        kv_cache_bytes=sizes.get(KV_CACHE, 0),
        mirror_bytes=report.mirror_bytes,
        resident=report.resident,
    )


def _is_tenant(report: EngineReport | None, tags: Mapping[str, TagInfo]) -> bool:
    """Whether its memory lies in the trainer's saver, whose books count it already."""
    return report is not None and bool(report.saver_tags) and set(report.saver_tags) <= tags.keys()


def _mirror_now(engine: EngineBytes) -> int:
    return 0 if WEIGHTS in engine.resident else engine.mirror_bytes


def _device_now(engine: EngineBytes) -> int:
    sizes = {WEIGHTS: engine.weights_bytes, KV_CACHE: engine.kv_cache_bytes}
    return sum(size for tag, size in sizes.items() if tag in engine.resident)


def _least(*limits: int | None) -> int | None:
    known = [one for one in limits if one is not None]
    return min(known) if known else None
