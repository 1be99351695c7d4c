"""Pausing and resuming the trainer's tags. Each call is written into the books before the next is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lifecycle.saver import Backup, TagInfo
from lifecycle.transition.parts import Parts, undone_by
from states import ACTOR, FROZEN_BASE


def pause_tags(parts: Parts, tags: Iterable[TagInfo], bring_back: Callable[[Parts], object]) -> list[str]:
    """Pause those of the tags that are active. All or nothing.

    Args:
        parts: the trainer.
        tags: weights or scratch.
        bring_back: writes the values of regions without backup again, when the undo has resumed them.

    Returns:
        The tags that were paused now, for :func:`resume_named` as the undo.
    """
    wanted = [info.tag for info in tags if not info.paused]

    def undo() -> None:
        books = parts.saver.tags()  # the truth also if an interrupt came between a call and its record
        resume_named(parts, [tag for tag in reversed(wanted) if books[tag].paused])
        bring_back(parts)

    with undone_by(undo):
        for tag in wanted:
            parts.saver.pause(tag)
    return wanted


def resume_tags(parts: Parts, tags: Iterable[TagInfo]) -> list[str]:
    """Resume those of the tags that are paused. All or nothing.

    Returns:
        The tags that were resumed now.
    """
    wanted = [info.tag for info in tags if info.paused]

    def undo() -> None:
        books = parts.saver.tags()
        pause_named(parts, [tag for tag in reversed(wanted) if not books[tag].paused])

    with undone_by(undo):
        resume_named(parts, wanted)
    return wanted


def pause_named(parts: Parts, tags: Iterable[str]) -> None:
    """Pause these tags; all are active."""
    for tag in tags:
        parts.saver.pause(tag)


def resume_named(parts: Parts, tags: Iterable[str]) -> None:
    """Resume these tags; all are paused. Groups whose region has no backup have lost their bytes."""
    for tag in tags:
        parts.saver.resume(tag)
        info = parts.saver.tags()[tag]
        if tag in {one.tag for one in parts.layout.tags().scratch}:
            parts.gradients.without_values = True
        if info.backup is Backup.NONE:
            parts.versions.region.update(dict.fromkeys(_groups_in(parts, tag)))
        elif info.backup is Backup.CPU and info.backup_bytes:
            parts.versions.retained.update({one: parts.versions.region[one] for one in _groups_in(parts, tag)})


def _groups_in(parts: Parts, tag: str) -> list[str]:
    """The content groups of which a tensor lies in the tag."""
    groups = parts.inventory.groups().items()
    return [group for group, held in groups if tag in parts.layout.homes.of(group, held)]


def restore_lost(parts: Parts, count: Callable[[str, int], None] = lambda _kind, _bytes: None) -> None:
    """Write groups that came back without values, from the base file or a copy of the active model.

    Args:
        parts: the trainer.
        count: told the kind and the bytes of what was written.
    """
    for group, version in list(parts.versions.region.items()):
        if version is None:
            kind, moved = restore_group(parts, group, parts.runtime.active_model)
            count(kind, moved)


def restore_group(parts: Parts, group: str, model: str) -> tuple[str, int]:
    """Write one group of *model* into the trainer's memory, from wherever its version is kept.

    A group that the model keeps no copy of it shares with the actor.

    Returns:
        The kind of the source, as :meth:`lifecycle.transition.parts.Work.count` takes it, and the bytes written.
    """
    return write_version(parts, group, version_of(parts, group, model))


def version_of(parts: Parts, group: str, model: str) -> int | None:
    """What a model consists of; a group that it keeps no copy of it shares with the actor."""
    kept = parts.snapshots.versions(model).get(group) if model != ACTOR and parts.snapshots.has(model) else None
    return parts.versions.wanted.get(group) if kept is None else kept


def write_version(parts: Parts, group: str, version: int | None) -> tuple[str, int]:
    """Write this version of a group from the base file or a snapshot.

    Returns:
        The kind of the source and the bytes written: 0 when nothing holds the version.
    """
    if group == FROZEN_BASE and version is not None and parts.file.version == version:
        return "base-file-read", _restore_from_file(parts, group, version)
    holders = parts.snapshots.holders(group, version)
    return "snapshot", parts.snapshots.restore_group(holders[0], group) if holders else 0


def _restore_from_file(parts: Parts, group: str, version: int) -> int:
    parts.versions.region[group] = None
    moved = sum(parts.file.read_into(name, one) for name, one in parts.own_bytes(group).items())
    parts.versions.region[group] = version
    return moved
