"""Pausing and resuming the trainer's tags. Each call is written into the books before the next is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lifecycle.saver import Backup, TagInfo
from lifecycle.transition.parts import Parts, undone_by
from states import ACTOR


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
        if parts.saver.tags()[tag].backup is Backup.NONE:
            _mark_lost(parts, tag)


def _mark_lost(parts: Parts, tag: str) -> None:
    for group, held in parts.inventory.groups().items():
        if any(parts.saver.tag_of(tensor) == tag for tensor in held.values()):
            parts.versions.region[group] = None


def restore_lost(parts: Parts) -> int:
    """Write groups that came back without values from a copy of the active model.

    Returns:
        The bytes written.
    """
    moved = 0
    for group, version in list(parts.versions.region.items()):
        if version is None:
            moved += restore_group(parts, group, parts.runtime.active_model)
    return moved


def restore_group(parts: Parts, group: str, model: str) -> int:
    """Write one group from the snapshot of *model*.

    A group that the model keeps no copy of it shares with the actor: it comes, like those of the actor
    itself, from any copy of the actor's newest version.
    """
    store = parts.snapshots
    if model != ACTOR and store.has(model) and store.versions(model).get(group) is not None:
        return store.restore_group(model, group)
    fresh = store.holders(group, parts.versions.wanted.get(group))
    return store.restore_group(fresh[0], group) if fresh else 0
