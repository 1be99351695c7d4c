"""The way back from ``faulted``: drive the tags to one state, verify the bytes, then commit."""

from __future__ import annotations

from lifecycle.errors import DigestMismatch, UnreadableTensor
from lifecycle.memory import regions
from lifecycle.saver import Backup
from lifecycle.transition.parts import Parts, Undo, Work, nothing
from lifecycle.weights.digests import digest
from states import OFFLOADED, TrainerState


def drive_tags(parts: Parts, work: Work) -> Undo:
    """Pause or resume what differs from the target state. The books say where a failure left it."""
    split = parts.layout.tags()
    target = work.step.target
    if target in OFFLOADED:
        _scratch_away(parts, work)
        regions.pause_tags(parts, split.weights, regions.restore_lost)
    else:
        regions.resume_tags(parts, split.weights)
        regions.restore_lost(parts, work.count)
    if target is TrainerState.SLEEPING:
        _scratch_away(parts, work)
    if target is TrainerState.AWAKE:
        if regions.resume_tags(parts, split.scratch):
            parts.gradients.give_back()
        if parts.groups is not None:
            parts.groups.rebuild()
    parts.runtime.step, parts.runtime.loads, parts.runtime.origin = None, False, None
    return nothing


def _scratch_away(parts: Parts, work: Work) -> None:
    """Pause scratch; gradients of an accumulation that is under way are copied first, unless they were."""
    scratch = parts.layout.tags().scratch
    if any(not info.paused for info in scratch):
        work.count("gradients", parts.gradients.keep(parts.parameter_names(parts.runtime.accumulated)))
    regions.pause_tags(parts, scratch, lambda _: parts.gradients.give_back())


def verify_and_mend(parts: Parts, work: Work) -> Undo:
    """Compare the bytes with the digests of their versions; mend from a copy where they differ.

    Groups without a digest, or whose bytes cannot be read in the target state, are named as
    unverified in the outcome.

    Raises:
        DigestMismatch: a group's bytes are wrong or lost and no copy of their version exists.
    """
    unverified, mended = [], []
    for group, version in list(parts.versions.region.items()):
        try:
            problem = _problem(parts, group, version)
        except UnreadableTensor:
            unverified.append(group)
            continue
        if problem == "unknown":
            unverified.append(group)
        elif problem:
            _mend(parts, group, problem)
            mended.append(group)
    work.details |= {"unverified": unverified, "mended": mended}
    return nothing


def check_digests(parts: Parts, _: Work) -> Undo:
    """Bytes that come from a file may have been changed there: compare them before anybody uses them.

    Raises:
        DigestMismatch: a group is not what it was. The trainer is then faulted, never trained or served.
    """
    for group, version in parts.versions.region.items():
        if (problem := _problem(parts, group, version)) and problem != "unknown":
            raise DigestMismatch(group, problem, _holders(parts, group))
    return nothing


def _holders(parts: Parts, group: str) -> tuple[str, ...]:
    """Tags of the snapshots that hold the newest version of the group."""
    return parts.snapshots.holders(group, parts.versions.wanted[group])


def _problem(parts: Parts, group: str, version: int | None) -> str:
    if _is_in_the_file(parts, group):
        parts.versions.region[group] = parts.file.version
        return ""
    if version is None:
        return "its bytes are lost"
    known = parts.versions.digests.get(version)
    if known is None:
        return "unknown"
    return "" if digest(parts.own_bytes(group)) == known else f"its bytes are not those of version {version}"


def _is_in_the_file(parts: Parts, group: str) -> bool:
    """It is paused without a backup, and the base file will bring it back."""
    held = parts.inventory.groups()[group].values()
    away = any(not parts.door.is_live(one) and parts.backup_kind(one) is Backup.NONE for one in held)
    return away and parts.file.version == parts.versions.wanted[group]


def _mend(parts: Parts, group: str, problem: str) -> None:
    parts.versions.region[group] = None
    regions.restore_group(parts, group, parts.runtime.active_model)
    version = parts.versions.region[group]
    if version is None or _problem(parts, group, version) not in ("", "unknown"):
        raise DigestMismatch(group, problem, _holders(parts, group))
