"""The way back from ``faulted``: drive the tags to one state, verify the bytes, then commit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from lifecycle.errors import DigestMismatch, UnreadableTensor
from lifecycle.memory import regions
from lifecycle.saver import Backup
from lifecycle.transition.parts import Parts, Undo, Work, nothing
from lifecycle.transition.verify import moments, note_what_is_not, own_bytes
from lifecycle.weights.digests import digest
from lifecycle.weights.door import write
from states import OFFLOADED, TrainerState, Verify

_UNKNOWN = "unknown"


def drive_tags(parts: Parts, work: Work) -> Undo:
    """Finish an undo that is owed, then pause or resume what differs from the target state, as the books say it."""
    if parts.runtime.owed is not None:
        parts.runtime.owed()
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
        regions.resume_tags(parts, split.scratch)
        _give_gradients_back(parts)
        parts.gradients.drop_kept()
        if parts.groups is not None:
            parts.groups.rebuild()
    parts.runtime.step, parts.runtime.loads, parts.runtime.origin = None, False, None
    return nothing


def _scratch_away(parts: Parts, work: Work) -> None:
    """Pause scratch; gradients of an accumulation that is under way are copied first, unless they were."""
    scratch = parts.layout.tags().scratch
    if any(not info.paused for info in scratch):
        _give_gradients_back(parts)
        work.count("gradients", parts.gradients.keep(parts.parameter_names(parts.runtime.accumulated)))
    regions.pause_tags(parts, scratch, lambda _: parts.gradients.give_back())


def _give_gradients_back(parts: Parts) -> None:
    """What failed may have resumed their region and not come to writing them."""
    if parts.gradients.without_values:
        parts.gradients.give_back()


def verify_and_mend(parts: Parts, work: Work) -> Undo:
    """Compare the bytes with the digests of their versions, or with what was noted before the pause; mend them.

    What differs is mended from a copy, and copies that have gone bad from what is right. Groups without a
    digest or a note, or whose bytes cannot be read in the target state, are named as unverified in the outcome.

    Raises:
        DigestMismatch: bytes are wrong or lost and no copy of their version is right.
    """
    unverified, mended = [], []
    damaged = parts.file.compare()
    for group, version in list(parts.versions.region.items()):
        try:
            problem = _problem(parts, group, version)
        except UnreadableTensor:
            unverified.append(group)
            continue
        if problem == _UNKNOWN:
            unverified.append(group)
        elif problem:
            _mend(parts, group, problem)
            mended.append(group)
        else:
            mended += [f"{group} in {tag}" for tag in _mend_copies(parts, group)]
    _check_moments(parts)
    work.details |= {"unverified": unverified, "mended": mended} | ({"base_file": damaged} if damaged else {})
    _note_for_the_wake(parts, work)
    return nothing


def _note_for_the_wake(parts: Parts, work: Work) -> None:
    """What goes on lying in a backup has to come back as it is now; awake there is nothing to compare any more."""
    if work.step.target not in OFFLOADED:
        work.on_commit.append(parts.notes.clear)
    elif parts.config.verify != Verify.OFF:
        if not parts.notes.open:
            parts.notes.begin(full=parts.config.verify == Verify.ALWAYS)
        with parts.saver.unmanaged():
            note_what_is_not(parts)


def _check_moments(parts: Parts) -> None:
    """Moments have no copy: if they are not what was noted of them, there is nothing to mend them from.

    Raises:
        DigestMismatch: they are not.
    """
    for name, held in moments(parts).items():
        note = parts.notes.of(name, None)
        try:
            found = note.difference(own_bytes(parts, held)) if note is not None else None
        except UnreadableTensor:
            continue
        if found is not None:
            raise DigestMismatch(name, found.why, (), found.tensors)


def _problem(parts: Parts, group: str, version: int | None) -> str:
    if _is_in_the_file(parts, group):
        parts.versions.region[group] = parts.file.version
        return ""
    if version is None:
        return "its bytes are lost"
    return _against_version(parts, group, version, parts.own_bytes(group))


def _against_version(parts: Parts, group: str, version: int, tensors: Mapping[str, Tensor]) -> str:
    """What is wrong with bytes that should be of this version; empty when nothing is."""
    known, note = parts.versions.digests.get(version), parts.notes.of(group, version)
    if known is None and note is None:
        return _UNKNOWN
    if known is not None:
        return "" if digest(tensors) == known else f"its bytes are not those of version {version}"
    found = note.difference(tensors) if note is not None else None
    return "" if found is None else found.why


def _is_in_the_file(parts: Parts, group: str) -> bool:
    """It is paused without a backup, and the base file will bring it back."""
    held = parts.inventory.groups()[group].values()
    away = any(not parts.door.is_live(one) and parts.backup_kind(one) is Backup.NONE for one in held)
    return away and parts.file.version == parts.versions.wanted[group]


def _mend(parts: Parts, group: str, problem: str) -> None:
    """Write the group from the first copy that proves right: the base file, then each snapshot that has it.

    Raises:
        DigestMismatch: none is.
    """
    parts.versions.region[group] = None
    regions.restore_group(parts, group, parts.runtime.active_model)
    holders = parts.snapshots.holders(group, parts.versions.region[group])
    for tag in ("", *holders):
        if tag:
            parts.versions.region[group] = None
            parts.snapshots.restore_group(tag, group)
        version = parts.versions.region[group]
        if version is not None and _problem(parts, group, version) in ("", _UNKNOWN):
            _mend_copies(parts, group)
            return
    parts.versions.region[group] = None
    raise DigestMismatch(group, f"{problem}; nor are those of: {', '.join(holders)}" if holders else problem, ())


def _mend_copies(parts: Parts, group: str) -> list[str]:
    """Write copies of a group that have gone bad from the trainer's own bytes, which are right.

    Returns:
        The tags they were found in.
    """
    version, mended = parts.versions.region[group], []
    for tag in parts.snapshots.holders(group, version):
        copy = parts.snapshots.tensors(tag, group)
        if version is not None and _against_version(parts, group, version, copy) not in ("", _UNKNOWN):
            for name, right in parts.own_bytes(group).items():
                write(copy[name], right)
            mended.append(tag)
    return mended
