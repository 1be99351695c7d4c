"""Pausing and resuming the trainer's tags. Each call is written into the books before the next is made."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle.parts import Parts, undone_by
from lifecycle.saver import Backup, TagInfo
from states import ACTOR


def pause_tags(parts: Parts, tags: Iterable[TagInfo]) -> list[str]:
    """Pause those of the tags that are active. All or nothing.

    Returns:
        The tags that were paused now, for :func:`resume_tags` as the undo.
    """
    done: list[str] = []

    def undo() -> None:
        resume_named(parts, reversed(done))
        restore_lost(parts)

    with undone_by(undo):
        for info in tags:
            if not info.paused:
                parts.saver.pause(info.tag)
                done.append(info.tag)
    return done


def resume_tags(parts: Parts, tags: Iterable[TagInfo]) -> list[str]:
    """Resume those of the tags that are paused. All or nothing.

    Returns:
        The tags that were resumed now.
    """
    wanted = [info.tag for info in tags if info.paused]
    done: list[str] = []
    with undone_by(lambda: pause_named(parts, reversed(done))):
        for tag in wanted:
            resume_named(parts, (tag,))
            done.append(tag)
    return done


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
    wanted = parts.versions.wanted.get(group)
    fresh = (tag for tag in store.backup_tags if wanted is not None and store.versions(tag).get(group) == wanted)
    tag = next(fresh, None)
    return 0 if tag is None else store.restore_group(tag, group)
