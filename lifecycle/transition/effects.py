"""What each effect of the table does, and how it is undone.

An effect gets no handle on the machine. It is all or nothing in itself, returns its undo, and
leaves deciding to ``states/``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from threading import get_ident
from typing import Final

import torch

from lifecycle.cleanup import Deferred, clear_device_cache
from lifecycle.memory import regions
from lifecycle.saver import Backup, TagInfo
from lifecycle.transition import recovery, verify
from lifecycle.transition.freed import check_freed
from lifecycle.transition.gather import content_facts
from lifecycle.transition.parts import Parts, Undo, Work, nothing, undone_by
from lifecycle.transition.reconcile import write_adapters
from lifecycle.transition.slot_writer import SlotWriter
from lifecycle.transition.steps import forget_old, renew
from lifecycle.transition.switch import keep_outgoing, restore_model
from lifecycle.transition.sync import send_weights
from states import ACTOR, FROZEN_BASE, Effect, groups_to_copy


def keep_gradients(parts: Parts, work: Work) -> Undo:
    """Copy accumulated gradients to the host. Nothing is copied when nothing is accumulated."""
    work.count("gradients", parts.gradients.keep(parts.parameter_names(parts.runtime.accumulated)))
    return lambda: _forget(parts)


def _forget(parts: Parts) -> None:
    parts.gradients.drop_kept()


def tear_down_groups(parts: Parts, work: Work) -> Undo:
    """Tear down the process groups that the user listed."""
    if parts.groups is None:
        return nothing
    work.details["groups"] = parts.groups.tear_down()
    return lambda: _rebuild(parts)


def _rebuild(parts: Parts) -> None:
    if parts.groups is not None:
        parts.groups.rebuild()


def rebuild_groups(parts: Parts, _: Work) -> Undo:
    """Rebuild what sleep tore down."""
    if parts.groups is None:
        return nothing
    groups = parts.groups
    groups.rebuild()
    return lambda: _tear_down(parts)


def _tear_down(parts: Parts) -> None:
    if parts.groups is not None:
        parts.groups.tear_down()


def clear_caches(parts: Parts, work: Work) -> Undo:
    """Give cached blocks back before anything is paused: later they may lie in paused memory.

    Another tenant of the saver may be paused already: then it waits, if this saver makes that necessary.
    """
    answer = parts.cleanup.ask("sleep", _collect_young)
    if isinstance(answer, Deferred):
        work.details["caches"] = f"deferred: {answer.because}"
    return nothing


def _collect_young() -> None:
    gc.collect(0)
    clear_device_cache()


def synchronize_device(_: Parts, __: Work) -> Undo:
    """Wait for the device; the saver's pause does not."""
    if _uses_cuda():
        torch.cuda.synchronize()
    return nothing


def _uses_cuda() -> bool:
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def pause_scratch(parts: Parts, work: Work) -> Undo:
    """Give scratch regions back. Their bytes need not survive; accumulated gradients were copied before."""
    done = _pause(parts, work, parts.layout.tags().scratch, _gradients_back)
    return lambda: _scratch_back(parts, done)


def _pause(parts: Parts, work: Work, tags: tuple[TagInfo, ...], bring_back: Callable[[Parts], None]) -> list[str]:
    work.used_before_bytes = parts.saver.device_used_bytes()
    work.paused = regions.pause_tags(parts, tags, bring_back)
    work.details["paused"] = work.paused
    return work.paused


def _scratch_back(parts: Parts, done: list[str]) -> None:
    regions.resume_named(parts, reversed(done))
    _gradients_back(parts)


def _gradients_back(parts: Parts) -> None:
    parts.gradients.give_back()


def pause_weights(parts: Parts, work: Work) -> Undo:
    """Write backups and give the device memory of everything that must survive back."""
    split = parts.layout.tags()
    done = _pause(parts, work, split.weights, regions.restore_lost)
    parts.on_disk |= {info.tag for info in parts.layout.tags().weights if info.paused and info.backup is Backup.DISK}
    if parts.ignored_files and (parts.file.wanted or parts.saver.usage().disk_bytes):
        why = "a backup belongs to the process that wrote it, a base file to the content of its digest"
        work.details["ignored_files"] = {"names": list(parts.ignored_files), "why": why}
    work.count("backup", _backed_bytes(split.weights, done))
    return lambda: _weights_back(parts, done)


def _backed_bytes(tags: tuple[TagInfo, ...], done: list[str]) -> int:
    """Bytes that a pause of these tags writes into backups, and a resume reads back."""
    return sum(info.size_bytes for info in tags if info.tag in done and info.backup is not Backup.NONE)


def _weights_back(parts: Parts, done: list[str]) -> None:
    regions.resume_named(parts, reversed(done))
    regions.restore_lost(parts)


def resume_weights(parts: Parts, work: Work) -> Undo:
    """Take the device memory again and read the backups back."""
    split, held = parts.layout.tags(), dict(parts.versions.region)
    done = regions.resume_tags(parts, split.weights)
    work.count("restore", _backed_bytes(split.weights, done))
    work.details["resumed"] = done

    def undo() -> None:
        regions.pause_named(parts, reversed(done))
        parts.versions.region.update(held)

    return undo


def resume_scratch(parts: Parts, work: Work) -> Undo:
    """Take scratch regions again; they come back without values."""
    done = regions.resume_tags(parts, parts.layout.tags().scratch)
    work.details["resumed_scratch"] = done
    return lambda: regions.pause_named(parts, reversed(done))


def restore_lost(parts: Parts, work: Work) -> Undo:
    """Write what came back without values from a fresh copy."""
    lost = [group for group, version in parts.versions.region.items() if version is None]
    if lost and (damage := parts.file.problem()):
        work.details["base_file"] = damage
    with undone_by(lambda: parts.versions.region.update(dict.fromkeys(lost))):
        regions.restore_lost(parts, work.count)

    def undo() -> None:
        parts.versions.region.update(dict.fromkeys(lost))

    return undo


def return_gradients(parts: Parts, work: Work) -> Undo:
    """Write accumulated gradients back and zero all others."""
    work.count("gradients", parts.gradients.give_back())
    work.on_commit.append(lambda: _forget(parts))
    return nothing


def backup_actor(parts: Parts, work: Work) -> Undo:
    """``backup("actor")``: copy the groups whose version the copy lacks; under ``lean`` those that a pause hides."""
    saved = parts.snapshots.save()
    # The plan was made on the facts of before: what the effects since then have renewed is due as well.
    groups = groups_to_copy(replace(work.facts, contents=content_facts(parts)))
    moved = parts.snapshots.take(ACTOR, groups)
    work.count("snapshot", moved)
    work.details["backed_up_bytes"] = moved
    return lambda: parts.snapshots.load(saved)


def write_base_file(parts: Parts, work: Work) -> Undo:
    """Write the file of a frozen base that was loaded anew; nothing is written as long as it is the same."""
    version = parts.versions.wanted.get(FROZEN_BASE)
    if not parts.file.wanted or version is None or parts.file.held()[1] == version:
        return nothing
    held = parts.file.held()
    moved = parts.file.write(parts.own_bytes(FROZEN_BASE), parts.versions.digests[version], version)
    work.count("base-file-write", moved)
    if held[0] is not None:
        work.on_commit.append(held[0].discard)
    return lambda: parts.file.take_back(held)


def open_step(parts: Parts, work: Work) -> Undo:
    """A step is in flight from now on; its gradients are in their region."""
    groups = parts.touched(work.request.adapters, loads=work.request.loads)
    keep = bool(set(groups) & parts.runtime.accumulated)
    parts.gradients.lead_home(parts.parameter_names(groups), keep=keep)
    saved = parts.snapshots.save()
    parts.runtime.step, parts.runtime.loads = work.request.adapters, work.request.loads
    parts.runtime.opened, parts.runtime.opener = parts.runtime.opened + 1, get_ident()

    def undo() -> None:
        parts.runtime.step, parts.runtime.loads = None, False
        parts.snapshots.load(saved)

    with undone_by(undo):
        for tag in parts.snapshots.borrowers(FROZEN_BASE) if parts.runtime.loads else ():
            work.count("snapshot", parts.snapshots.keep_own(tag, (FROZEN_BASE,)))
    return undo


def commit_versions(parts: Parts, work: Work) -> Undo:
    """The step's bytes are the newest: new ids for what it touched, and for a loaded checkpoint what differs."""
    saved, runtime = parts.versions.save(), parts.runtime
    step, loads, accumulated = runtime.step, runtime.loads, runtime.accumulated
    groups = parts.touched(step or ())
    names, writer = parts.parameter_names(groups), SlotWriter(parts)

    def undo() -> None:
        writer.undo(0)
        parts.versions.load(saved)
        runtime.step, runtime.loads, runtime.accumulated = step, loads, accumulated

    with undone_by(undo):
        if loads and (behind := writer.follow_parameters(names)):
            work.details["main_copies_refreshed"] = behind
        renewed = renew(parts, groups)
    runtime.step, runtime.loads, runtime.accumulated = None, False, accumulated - set(groups)
    work.on_commit.append(lambda: parts.gradients.lead_home(names, keep=False))
    work.on_commit.append(lambda: forget_old(parts))
    work.details["versions"] = {group: parts.versions.wanted[group] for group in renewed}
    return undo


EFFECTS: Final[dict[Effect, Callable[[Parts, Work], Undo]]] = {
    Effect.KEEP_GRADIENTS: keep_gradients,
    Effect.TEAR_DOWN_GROUPS: tear_down_groups,
    Effect.CLEAR_CACHES: clear_caches,
    Effect.PAUSE_SCRATCH: pause_scratch,
    Effect.SYNCHRONIZE_DEVICE: synchronize_device,
    Effect.NOTE_DIGESTS: verify.note_digests,
    Effect.PAUSE_WEIGHTS: pause_weights,
    Effect.CHECK_FREED: check_freed,
    Effect.RESUME_WEIGHTS: resume_weights,
    Effect.RESUME_SCRATCH: resume_scratch,
    Effect.RESTORE_LOST: restore_lost,
    Effect.RETURN_GRADIENTS: return_gradients,
    Effect.REBUILD_GROUPS: rebuild_groups,
    Effect.WRITE_ADAPTERS: write_adapters,
    Effect.BACKUP_ACTOR: backup_actor,
    Effect.COMMIT_VERSIONS: commit_versions,
    Effect.KEEP_OUTGOING: keep_outgoing,
    Effect.WRITE_BASE_FILE: write_base_file,
    Effect.OPEN_STEP: open_step,
    Effect.RESTORE_MODEL: restore_model,
    Effect.CHECK_SOURCES: verify.check_sources,
    Effect.SEND_WEIGHTS: send_weights,
    Effect.DRIVE_TAGS: recovery.drive_tags,
    Effect.CHECK_DIGESTS: verify.check_digests,
    Effect.VERIFY_AND_MEND: recovery.verify_and_mend,
}
"""Every effect of the table. A test compares it with :class:`states.Effect`."""
