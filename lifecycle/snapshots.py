"""Named host copies of the model, with the method names that trainers use today.

A tag holds content groups, each with the version of the bytes it was copied from. A backup copies
only groups whose version differs; a restore likewise, decided by versions and never by which tag
is called active.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from lifecycle.errors import LifecycleError, UnknownTag
from states import ACTOR, TRAINABLE_BASE


class SnapshotSource(Protocol):
    """Where backups are read and restores are written: the trainer's own memory."""

    def versions(self) -> Mapping[str, int | None]:
        """Version of the bytes that the trainer's memory holds, by content group."""

    def active_model(self) -> str:
        """Whose bytes are in live memory."""

    def names(self, group: str) -> tuple[str, ...]:
        """Tensor names of a group."""

    def own_bytes(self, group: str, name: str) -> Tensor:
        """Readable and writable bytes of one tensor."""

    def written(self, group: str, version: int | None) -> None:
        """The group's bytes now are this version; None while they are being written."""


@dataclass
class _Group:
    version: int | None
    tensors: dict[str, Tensor]


@dataclass
class SnapshotStore:
    """Host copies by tag. Pinned where CUDA is available. Belongs to one trainer.

    The controller connects it to the trainer's memory; until then only tags can be asked for.
    """

    _tags: dict[str, dict[str, _Group]] = field(default_factory=dict)
    _source: SnapshotSource | None = None

    def connect(self, source: SnapshotSource) -> None:
        """Attach the trainer's memory. Called once by the controller."""
        if self._source is not None:
            raise LifecycleError("this SnapshotStore belongs to a trainer already; give each trainer its own")
        self._source = source

    @property
    def backup_tags(self) -> tuple[str, ...]:
        """The tags that exist, sorted."""
        return tuple(sorted(self._tags))

    def has(self, tag: str) -> bool:
        """Whether the tag exists."""
        return tag in self._tags

    def versions(self, tag: str) -> Mapping[str, int | None]:
        """Version of each group that the tag holds; None for a group whose copy was interrupted.

        Raises:
            UnknownTag: the tag does not exist.
        """
        return {group: held.version for group, held in self._tag(tag).items()}

    def backup(self, tag: str, groups: tuple[str, ...] | None = None) -> int:
        """Copy the trainer's present bytes into the tag: all groups, or those named.

        A group whose version the tag holds already is not copied. Groups that the trainer no longer
        has (retired adapters) are dropped from the tag.

        Returns:
            The bytes copied.

        Raises:
            UnreadableTensor: the bytes are paused where they cannot be read. The tag is as before.
            LifecycleError: the tag is ``actor`` and another model is in live memory.
        """
        source = self._connected()
        self._spare_the_actor(tag, "backup")
        versions = source.versions()
        wanted = [group for group in versions if groups is None or group in groups]
        held = self._tags.get(tag, {})
        fresh = {group: held[group] for group in wanted if _same(held.get(group), versions[group])}
        copied = {group: _copy_group(source, group, held.get(group)) for group in wanted if group not in fresh}
        kept = {} if groups is None else {group: one for group, one in held.items() if group in versions}
        self._tags[tag] = {**kept, **fresh, **copied}
        return sum(_size(one) for one in copied.values())

    def keep(self, tag: str, group: str, version: int, tensors: Mapping[str, Tensor]) -> int:
        """Store given tensors as one group of a tag. They are copied.

        Returns:
            The bytes copied.
        """
        copies = {name: _host_copy(tensor) for name, tensor in tensors.items()}
        self._tags.setdefault(tag, {})[group] = _Group(version, copies)
        return _size(self._tags[tag][group])

    def get(self, tag: str) -> Mapping[str, Tensor]:
        """Name to tensor of everything the tag holds: the copies themselves, read-only by contract.

        They belong to the store and are valid until the next backup into the tag or its release.

        Raises:
            UnknownTag: the tag does not exist.
        """
        found = {name: tensor for held in self._tag(tag).values() for name, tensor in held.tensors.items()}
        return MappingProxyType(found)

    def tensor(self, tag: str, group: str, name: str) -> Tensor:
        """The copy of one tensor; see :meth:`get` for who owns it.

        Raises:
            UnknownTag: the tag does not exist.
            LifecycleError: the tag does not hold the tensor.
        """
        held = self._tag(tag).get(group)
        if held is None or name not in held.tensors:
            raise LifecycleError(f'snapshot "{tag}" holds no {name} of {group}; backup("{tag}") again')
        return held.tensors[name]

    def copy(self, *, src_tag: str, dst_tag: str) -> int:
        """Copy one tag onto another, which is created if it does not exist.

        Returns:
            The bytes copied.

        Raises:
            UnknownTag: the source does not exist.
            LifecycleError: the destination is ``actor`` and another model is in live memory.
        """
        source = self._tag(src_tag)
        if src_tag == dst_tag:
            return 0
        self._spare_the_actor(dst_tag, "copy")
        copied = {
            group: _Group(held.version, {name: _host_copy(one) for name, one in held.tensors.items()})
            for group, held in source.items()
        }
        self._tags[dst_tag] = copied
        return sum(_size(one) for one in copied.values())

    def restore(self, tag: str) -> int:
        """Write the tag's bytes into the trainer's memory, where they differ in version.

        Groups that the trainer no longer has are left out. A group is marked unknown while it is
        written, so that an interruption cannot look like a success.

        Returns:
            The bytes written.

        Raises:
            UnknownTag: the tag does not exist.
            UnreadableTensor: the trainer's memory is paused where it cannot be written.
        """
        return sum(self.restore_group(tag, group) for group in self._tag(tag))

    def restore_group(self, tag: str, group: str) -> int:
        """Write one group of a tag into the trainer's memory, if its version differs; see :meth:`restore`."""
        source = self._connected()
        present = source.versions()
        held = self._tag(tag)[group]
        if group not in present or held.version is None or present[group] == held.version:
            return 0
        return _write_group(source, group, held)

    def release(self, tag: str) -> None:
        """Drop a tag and its memory.

        Raises:
            UnknownTag: the tag does not exist.
            LifecycleError: the tag is ``actor`` and another model is in live memory.
        """
        self._tag(tag)
        self._spare_the_actor(tag, "release")
        del self._tags[tag]

    def host_bytes(self) -> int:
        """Host bytes of all copies."""
        return sum(_size(held) for groups in self._tags.values() for held in groups.values())

    def save(self) -> dict[str, dict[str, _Group]]:
        """The books as they are, for :meth:`load`. Copies no bytes."""
        return {tag: dict(groups) for tag, groups in self._tags.items()}

    def load(self, saved: dict[str, dict[str, _Group]]) -> None:
        """Undo: the tags as they were at :meth:`save`."""
        self._tags = {tag: dict(groups) for tag, groups in saved.items()}

    def _tag(self, tag: str) -> dict[str, _Group]:
        if tag not in self._tags:
            raise UnknownTag(tag, self.backup_tags)
        return self._tags[tag]

    def _spare_the_actor(self, tag: str, call: str) -> None:
        """While another model is live, the actor's copy may be the only place where its bytes are."""
        active = ACTOR if self._source is None else self._source.active_model()
        if tag == ACTOR and active != ACTOR:
            raise LifecycleError(
                f'{call} would replace the "actor" copy while "{active}" is in live memory; switch_model("actor") first'
            )

    def _connected(self) -> SnapshotSource:
        if self._source is None:
            raise LifecycleError("this SnapshotStore is not connected; give it to TrainerLifecycle(snapshots=...)")
        return self._source


def _same(held: _Group | None, version: int | None) -> bool:
    return held is not None and version is not None and held.version == version


def _copy_group(source: SnapshotSource, group: str, old: _Group | None) -> _Group:
    """A new copy of one group. Only the trainable base, which is large and always changes, reuses its memory."""
    names = source.names(group)
    reuse = old.tensors if old is not None and group == TRAINABLE_BASE and set(old.tensors) == set(names) else {}
    if old is not None and reuse:
        old.version = None
    copies = {name: _host_copy(source.own_bytes(group, name), reuse.get(name)) for name in names}
    return _Group(source.versions()[group], copies)


def _write_group(source: SnapshotSource, group: str, held: _Group) -> int:
    source.written(group, None)
    for name, value in held.tensors.items():
        with torch.no_grad():
            source.own_bytes(group, name).copy_(value)
    source.written(group, held.version)
    return _size(held)


def _host_copy(tensor: Tensor, into: Tensor | None = None) -> Tensor:
    if into is None or into.shape != tensor.shape or into.dtype != tensor.dtype:
        into = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=torch.cuda.is_available())
    return into.copy_(tensor.detach())


def _size(group: _Group) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in group.tensors.values())
