"""The way back from ``faulted``: drive the tags to one state, verify the bytes, then commit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from lifecycle.errors import DigestMismatch, UnreadableTensor
from lifecycle.memory import regions
from lifecycle.saver import Backup
from lifecycle.transition.parts import Parts, Undo, Work, nothing
from lifecycle.transition.steps import abort_step
from lifecycle.transition.verify import moments, note_what_is_not, own_bytes
from lifecycle.weights.digests import digest
from lifecycle.weights.door import write
from states import FROZEN_BASE, OFFLOADED, TrainerState, Verify

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
    if parts.runtime.step is not None:
        abort_step(parts)  # nobody commits it any more: what it may have changed is of no version that was told
    parts.runtime.origin = None
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
    digest or a note, or whose bytes cannot be read in the target state, are named as unverified in the outcome,
    also those that were mended from a copy of which nothing is known.

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
            unverified += [] if _mend(parts, group, problem) else [group]
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


def _mend(parts: Parts, group: str, problem: str) -> bool:
    """Write the group from a copy that proves right, or where none does from one that nobody can judge.

    Of the version that was there, else of the one that the active model consists of. Copies are judged before they
    are written: what was written would be judged by itself.

    Returns:
        Whether the copy proved right.

    Raises:
        DigestMismatch: there is no copy, or each is known to be wrong.
    """
    wrong, unjudged = [], None
    for version, tag in _copies(parts, group):
        found = _against_version(parts, group, version, parts.snapshots.tensors(tag, group)) if tag else ""
        if not found:
            _write_copy(parts, group, version, tag)
            return True
        if found == _UNKNOWN:
            unjudged = unjudged or (version, tag)
        else:
            wrong.append(tag)
    if unjudged is not None:
        _write_copy(parts, group, *unjudged)
        return False
    parts.versions.region[group] = None
    raise DigestMismatch(group, f"{problem}; nor are those of: {', '.join(wrong)}" if wrong else problem, ())


def _copies(parts: Parts, group: str) -> list[tuple[int, str]]:
    """Where the group can be written from: version and tag, no tag for the base file, which was compared in full."""
    versions = (parts.versions.region[group], regions.version_of(parts, group, parts.runtime.active_model))
    found: list[tuple[int, str]] = []
    for version in dict.fromkeys(one for one in versions if one is not None):
        if group == FROZEN_BASE and parts.file.version == version:
            found.append((version, ""))
        found += [(version, tag) for tag in parts.snapshots.holders(group, version)]
    return found


def _write_copy(parts: Parts, group: str, version: int, tag: str) -> None:
    parts.versions.region[group] = None
    if tag:
        parts.snapshots.restore_group(tag, group)
    else:
        regions.write_version(parts, group, version)
    _mend_copies(parts, group)


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
