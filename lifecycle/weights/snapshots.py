"""Named host copies of the model, with the method names that trainers use today.

A tag holds content groups, each with the version of the bytes it was copied from. A stored group
never changes: a backup copies what no tag holds in that version into new memory and shares the rest,
so equal bytes are stored once however many tags hold them, and a failed backup leaves the old copy
whole. A restore is decided by versions too, never by which tag is called active.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from lifecycle.errors import ConfigError, LifecycleError, UnknownTag


class Gate(Protocol):
    """Decides whether a call may be made, and holds the trainer's turn while it is."""

    def passing(self, call: str, tag: str) -> AbstractContextManager[None]:
        """Enter to make the call.

        Raises:
            EventRefused: it may not be made now.
        """


class SnapshotSource(Protocol):
    """Where backups are read and restores are written: the trainer's own memory."""

    def versions(self) -> Mapping[str, int | None]:
        """Version of the bytes that the trainer's memory holds, by content group."""

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
    _gate: Gate | None = None

    def connect(self, source: SnapshotSource, gate: Gate | None = None) -> None:
        """Attach the trainer's memory. Called once by the controller.

        Args:
            source: the memory.
            gate: what decides whether a call of the user's may be made now.
        """
        self.check_free()
        self._source, self._gate = source, gate

    def check_free(self) -> None:
        """Refuse a store that belongs to another trainer.

        Raises:
            ConfigError: it does.
        """
        if self._source is not None:
            raise ConfigError("this SnapshotStore belongs to a trainer already; give each trainer its own")

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
            EventRefused: see :class:`lifecycle.weights.snapshot_gate.SnapshotGate`.
        """
        with self._passing("backup", tag):
            return self._backup(tag, groups)

    def _backup(self, tag: str, groups: tuple[str, ...] | None) -> int:
        source = self._connected()
        versions = source.versions()
        wanted = [group for group in versions if groups is None or group in groups]
        held = self._tags.get(tag, {})
        stored = {group: self._stored(group, versions[group]) for group in wanted}
        shared = {group: one for group, one in stored.items() if one is not None}
        copied = {group: _copy_group(source, group) for group in wanted if group not in shared}
        kept = {} if groups is None else {group: one for group, one in held.items() if group in versions}
        self._tags[tag] = {**kept, **shared, **copied}
        return sum(_size(one) for one in copied.values())

    def keep(self, tag: str, group: str, version: int, tensors: Mapping[str, Tensor]) -> int:
        """Store given tensors as one group of a tag. They are copied, unless a tag holds that version already.

        Returns:
            The bytes copied.
        """
        stored = self._stored(group, version)
        if stored is None:
            stored = _Group(version, {name: _host_copy(tensor) for name, tensor in tensors.items()})
            self._tags.setdefault(tag, {})[group] = stored
            return _size(stored)
        self._tags.setdefault(tag, {})[group] = stored
        return 0

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
            The bytes copied: 0, stored groups never change and are shared.

        Raises:
            UnknownTag: the source does not exist.
            EventRefused: see :class:`lifecycle.weights.snapshot_gate.SnapshotGate`.
        """
        source = self._tag(src_tag)
        with self._passing("copy", dst_tag):
            self._tags[dst_tag] = dict(source)
        return 0

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
        held = self._tag(tag)
        with self._passing("restore", tag):
            return sum(self.restore_group(tag, group) for group in held)

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
            EventRefused: see :class:`lifecycle.weights.snapshot_gate.SnapshotGate`.
        """
        self._tag(tag)
        with self._passing("release", tag):
            del self._tags[tag]

    def holders(self, group: str, version: int | None) -> tuple[str, ...]:
        """The tags that hold this version of a group, sorted; none for a version that is unknown."""
        if version is None:
            return ()
        return tuple(tag for tag in self.backup_tags if (one := self._tags[tag].get(group)) and one.version == version)

    def host_bytes(self) -> int:
        """Host bytes of all copies, each counted once."""
        distinct = {id(held): held for groups in self._tags.values() for held in groups.values()}
        return sum(_size(held) for held in distinct.values())

    def forget(self, group: str) -> None:
        """Drop a group from every tag: whoever gets its name next has other bytes, and maybe another slot."""
        for groups in self._tags.values():
            groups.pop(group, None)

    def _stored(self, group: str, version: int | None) -> _Group | None:
        found = (one for groups in self._tags.values() if (one := groups.get(group)) and one.version == version)
        return next(found, None) if version is not None else None

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

    def _passing(self, call: str, tag: str) -> AbstractContextManager[None]:
        return nullcontext() if self._gate is None else self._gate.passing(call, tag)

    def _connected(self) -> SnapshotSource:
        if self._source is None:
            raise LifecycleError("this SnapshotStore is not connected; give it to TrainerLifecycle(snapshots=...)")
        return self._source


def _copy_group(source: SnapshotSource, group: str) -> _Group:
    copies = {name: _host_copy(source.own_bytes(group, name)) for name in source.names(group)}
    return _Group(source.versions()[group], copies)


def _write_group(source: SnapshotSource, group: str, held: _Group) -> int:
    source.written(group, None)
    for name, value in held.tensors.items():
        with torch.no_grad():
            source.own_bytes(group, name).copy_(value)
    source.written(group, held.version)
    return _size(held)


def _host_copy(tensor: Tensor) -> Tensor:
    into = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=torch.cuda.is_available())
    return into.copy_(tensor.detach())


def _size(group: _Group) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in group.tensors.values())
