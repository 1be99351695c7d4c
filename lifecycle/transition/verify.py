"""Verify mode: what bytes are is noted before a pause, and compared after it and before anything is sent.

A mismatch is :class:`~lifecycle.errors.DigestMismatch`, which faults the trainer: wrong bytes are never
trained on and never served.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Final

from torch import Tensor

from lifecycle.errors import DigestMismatch
from lifecycle.saver import Backup
from lifecycle.transition.leasing import open_lease
from lifecycle.transition.parts import Parts, Undo, Work, nothing, undone_by
from lifecycle.weights.digests import digest
from lifecycle.weights.notes import Difference
from states import BUFFERS, FROZEN_BASE, Read, Verify

BASE_MOMENTS: Final = "base-moments"
SLOT_MOMENTS: Final = "adapter-moments/slot {}"

OUTSIDE: Final = "changed outside of step() and loading_checkpoint(), or damaged"
"""What has happened where a push finds other bytes than the last commit left."""
SMALL_BYTES: Final = 16 * 2**20
"""A group of at most so many bytes is compared in full before it is sent, also in ``sampled``."""


def note_digests(parts: Parts, _: Work) -> Undo:
    """Note every content group and the moments, before their memory is given back.

    Full digests in ``always``, samples in ``sampled`` (others in every cycle), and in both a full digest of what
    the saver writes to disk, where it may change while nobody looks.

    Raises:
        DigestMismatch: in ``always``, bytes are not those of their version: they changed without an event.
    """
    saved = parts.notes.save()

    def undo() -> None:
        parts.notes.load(saved)

    if parts.config.verify == Verify.OFF:
        parts.notes.clear()
        return undo
    with undone_by(undo), parts.saver.unmanaged():
        _renew_buffers(parts)
        parts.notes.begin(full=parts.config.verify == Verify.ALWAYS)
        note_what_is_not(parts)
    return undo


def _renew_buffers(parts: Parts) -> None:
    """Buffers change in forward passes outside of steps too: other bytes are another version, not a fault."""
    version = parts.versions.region.get(BUFFERS)
    known = parts.versions.digests.get(version or 0)
    if version is not None and version == parts.versions.wanted.get(BUFFERS) and known is not None:
        held = parts.inventory.base[BUFFERS]
        if _readable(parts, held) and digest(own_bytes(parts, held)) != known:
            parts.versions.renew(BUFFERS)


def note_what_is_not(parts: Parts) -> None:
    """Note what can be read and was not noted in its version."""
    for group, (version, held) in contents(parts).items():
        if parts.notes.of(group, version) is None and is_known(group, version) and _readable(parts, held):
            tensors = own_bytes(parts, held)
            in_full = parts.config.verify == Verify.ALWAYS or _goes_to_disk(parts, held)
            parts.notes.take(group, version, tensors, _full_digest(parts, group, version, tensors) if in_full else None)


def _full_digest(parts: Parts, group: str, version: int | None, tensors: Mapping[str, Tensor]) -> str:
    digests, is_always = parts.versions.digests, parts.config.verify == Verify.ALWAYS
    known = digests.get(version) if version is not None else None
    found = digest(tensors) if known is None or is_always else known
    if known is not None and found != known:
        why = f"its bytes are not those of version {version}: they were changed without an event"
        raise DigestMismatch(group, why, copies_of(parts, group))
    if version is not None:
        digests[version] = found
    return found


def note_written(parts: Parts, group: str, slot: int) -> None:
    """A slot was written while a pause is noted: what was written is what has to come back."""
    parts.notes.drop(group)
    parts.notes.drop(SLOT_MOMENTS.format(slot))
    if parts.notes.open:
        note_what_is_not(parts)


def check_digests(parts: Parts, work: Work) -> Undo:
    """Compare what came back with what was noted, before anybody uses it.

    Raises:
        DigestMismatch: a group is not what it was. The trainer is then faulted, never trained or served.
    """
    if parts.config.verify != Verify.OFF:
        with parts.saver.unmanaged():
            for group, (version, held) in contents(parts).items():
                if (found := _after_the_pause(parts, group, version, held)) is not None:
                    raise DigestMismatch(group, found.why, copies_of(parts, group), found.tensors)
    work.on_commit.append(parts.notes.clear)
    return nothing


def _after_the_pause(parts: Parts, group: str, version: int | None, held: Mapping[str, Tensor]) -> Difference | None:
    if not is_known(group, version):
        return Difference("its bytes are lost")
    note, known = parts.notes.of(group, version), parts.versions.digests.get(version or 0)
    if note is not None:
        return note.difference(own_bytes(parts, held))
    in_full = parts.config.verify == Verify.ALWAYS or _goes_to_disk(parts, held)
    if known is None or not in_full or digest(own_bytes(parts, held)) == known:
        return None
    return Difference(f"its bytes are not those of version {version}")


def check_sources(parts: Parts, work: Work) -> Undo:
    """Compare what is about to be sent with what is known of its version.

    In full in ``always`` and where it is small; else its samples, if a pause is noted.

    Raises:
        DigestMismatch: the source does not hold the bytes of its version. Nothing was sent.
    """
    if parts.config.verify == Verify.OFF:
        return nothing
    stale = {group for engine in work.facts.engines for group in engine.stale}
    for read in work.step.reads:
        if read.group in stale and (found := _at_the_source(parts, read)) is not None:
            why = f"{found.why} (read from {read.tag or read.source})"
            raise DigestMismatch(read.group, why, copies_of(parts, read.group), found.tensors)
    return nothing


def _at_the_source(parts: Parts, read: Read) -> Difference | None:
    try:
        with open_lease(parts, "update_weights, comparing", (read,)) as lease, parts.saver.unmanaged():
            return _compared(parts, read, {name: lease[name] for name in lease})
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they hold tensors of the lease, which would refuse the wake
        raise


def _compared(parts: Parts, read: Read, tensors: Mapping[str, Tensor]) -> Difference | None:
    known, note = parts.versions.digests.get(read.version), parts.notes.of(read.group, read.version)
    is_always = parts.config.verify == Verify.ALWAYS
    if is_always or (known is not None and _size_bytes(tensors) <= SMALL_BYTES):
        found = digest(tensors)
        if parts.versions.digests.setdefault(read.version, found) == found:
            return None
        named = note.difference(tensors) if note is not None else None
        return named or Difference(f"its bytes are not those of version {read.version}: {OUTSIDE}")
    return note.difference(tensors) if note is not None else None


def contents(parts: Parts) -> dict[str, tuple[int | None, Mapping[str, Tensor]]]:
    """Everything that must survive a pause, by name: version (None for moments, and for what is lost) and tensors."""
    groups = parts.inventory.groups()
    found: dict[str, tuple[int | None, Mapping[str, Tensor]]] = {
        group: (version, groups[group]) for group, version in parts.versions.region.items()
    }
    return found | {name: (None, held) for name, held in moments(parts).items()}


def moments(parts: Parts) -> dict[str, Mapping[str, Tensor]]:
    """The optimizers' moments that lie in a region, of each slot and of the base."""
    owner: dict[str, str] = {}
    if parts.adapters is not None:
        for slot in range(parts.adapters.slots):
            owner |= dict.fromkeys(parts.adapters.slot_tensors(slot), SLOT_MOMENTS.format(slot))
    found: dict[str, dict[str, Tensor]] = {}
    for name, one in parts.moments.tensors().items():
        if parts.saver.tag_of(one) is not None:
            found.setdefault(owner.get(name.rpartition("#")[0], BASE_MOMENTS), {})[name] = one
    return dict(found)


def is_known(group: str, version: int | None) -> bool:
    """Whether the bytes are of a version, or of the kind that has none."""
    return version is not None or group == BASE_MOMENTS or group.startswith(SLOT_MOMENTS.format(""))


def own_bytes(parts: Parts, held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their bytes in the trainer's own memory.

    Raises:
        UnreadableTensor: one is paused where it cannot be read.
    """
    return {name: parts.door.own_bytes(name, one) for name, one in held.items()}


def copies_of(parts: Parts, group: str) -> tuple[str, ...]:
    """Where else the newest version of a group is: tags of snapshots, and the base file."""
    wanted = parts.versions.wanted.get(group)
    in_file = group == FROZEN_BASE and wanted is not None and parts.file.version == wanted
    return (*parts.snapshots.holders(group, wanted), *(("the base file",) if in_file else ()))


def _goes_to_disk(parts: Parts, held: Mapping[str, Tensor]) -> bool:
    return any(parts.backup_kind(one) is Backup.DISK for one in held.values())


def _readable(parts: Parts, held: Mapping[str, Tensor]) -> bool:
    return all(parts.door.is_live(one) or parts.door.has_backup(one) for one in held.values())


def _size_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors.values())
