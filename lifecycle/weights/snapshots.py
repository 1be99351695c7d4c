"""Named host copies of the model, with the method names that trainers use today.

A tag holds content groups, each with the version of the bytes it was copied from. A stored group
never changes: a backup copies what no tag holds in that version into new memory and shares the rest,
so equal bytes are stored once however many tags hold them, and a failed backup leaves the old copy
whole. A frozen group that the trainer keeps readable by itself is not copied at all, if the strategy
says so. A restore is decided by versions too, never by which tag is called active.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import Tensor

from lifecycle.errors import ConfigError, LifecycleError, UnknownTag, UnreadableTensor
from lifecycle.weights.stored import Gate, Sharing, SnapshotSource, Stored, copy_group, host_copy, write_group


@dataclass
class SnapshotStore:
    """Host copies by tag. Pinned where CUDA is available. Belongs to one trainer.

    The controller connects it to the trainer's memory; until then only tags can be asked for.
    """

    _tags: dict[str, dict[str, Stored]] = field(default_factory=dict)
    _source: SnapshotSource | None = None
    _gate: Gate | None = None
    _sharing: Sharing = Sharing.STORED

    def connect(self, source: SnapshotSource, gate: Gate | None = None, sharing: Sharing = Sharing.STORED) -> None:
        """Attach the trainer's memory. Called once by the controller.

        Args:
            source: the memory.
            gate: what decides whether a call of the user's may be made now.
            sharing: how much the tags share.
        """
        self.check_free()
        self._source, self._gate, self._sharing = source, gate, sharing

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
            source = self._connected()
            versions = source.versions()
            wanted = [group for group in versions if groups is None or group in groups]
            shared = {group: one for group in wanted if (one := self._shared(tag, group, versions[group])) is not None}
            return self._put(tag, wanted, shared, whole=groups is None)

    def keep_own(self, tag: str, groups: tuple[str, ...]) -> int:
        """Copy groups into the tag in bytes of its own, also where it could borrow: they are about to be overwritten.

        Every tag that has the same version shares the copy from then on.

        Returns:
            The bytes copied.
        """
        versions = self._connected().versions()
        stored = {group: one for group in groups if (one := self._stored(tag, group, versions[group])) is not None}
        return self._put(tag, list(groups), stored, whole=False)

    def _put(self, tag: str, wanted: list[str], shared: dict[str, Stored], *, whole: bool) -> int:
        source = self._connected()
        copied = {group: copy_group(source, group) for group in wanted if group not in shared}
        present = source.versions()
        kept = {} if whole else {group: one for group, one in self._tags.get(tag, {}).items() if group in present}
        self._tags[tag] = {**kept, **shared, **copied}
        for group, one in copied.items():
            self._return_what_was_borrowed(group, one)
        return sum(one.size_bytes() for one in copied.values())

    def keep(self, tag: str, group: str, version: int, tensors: Mapping[str, Tensor]) -> int:
        """Store given tensors as one group of a tag, unless a tag or the trainer holds that version already.

        Returns:
            The bytes copied.
        """
        stored = self._shared(tag, group, version)
        moved = 0
        if stored is None:
            stored = Stored(version, {name: host_copy(tensor) for name, tensor in tensors.items()})
            moved = stored.size_bytes()
        self._tags.setdefault(tag, {})[group] = stored
        return moved

    def get(self, tag: str) -> Mapping[str, Tensor]:
        """Name to tensor of everything the tag holds: the copies themselves, read-only by contract.

        They belong to the store and are valid until the next backup into the tag or its release. Those of
        a borrowed group alias the trainer's memory: as long as one lives, no transition takes it away.

        Raises:
            UnknownTag: the tag does not exist.
            UnreadableTensor: a borrowed version is gone.
        """
        held = self._tag(tag)
        found = {name: one for group in held for name, one in self._tensors(tag, group, f'get("{tag}")').items()}
        return MappingProxyType(found)

    def stored(self, tag: str, group: str, version: int) -> Mapping[str, Tensor]:
        """The tensors of a stored group, which never change and live as long as somebody has them.

        Raises:
            UnreadableTensor: the tag has no such version of it, in bytes of its own.
        """
        held = self._tags.get(tag, {}).get(group)
        if held is None or held.version != version or held.tensors is None:
            raise UnreadableTensor(f"version {version} of {group}", f'snapshot "{tag}" does not hold it any more')
        return held.tensors

    def tensor(self, tag: str, group: str, name: str) -> Tensor:
        """The copy of one tensor; see :meth:`get` for who owns it.

        Raises:
            UnknownTag: the tag does not exist.
            LifecycleError: the tag does not hold the tensor.
        """
        held = self._tensors(tag, group, f'tensor("{tag}")') if group in self._tag(tag) else {}
        if name not in held:
            raise LifecycleError(f'snapshot "{tag}" holds no {name} of {group}; backup("{tag}") again')
        return held[name]

    def copy(self, *, src_tag: str, dst_tag: str) -> int:
        """Copy one tag onto another, which is created if it does not exist.

        Returns:
            The bytes copied: 0 where stored groups, which never change, are shared.

        Raises:
            UnknownTag: the source does not exist.
            EventRefused: see :class:`lifecycle.weights.snapshot_gate.SnapshotGate`.
        """
        source = self._tag(src_tag)
        with self._passing("copy", dst_tag):
            if self._sharing is not Sharing.NOTHING:
                self._tags[dst_tag] = dict(source)
                return 0
            self._tags[dst_tag] = {group: _duplicate(one) for group, one in source.items()}
            return sum(one.size_bytes() for one in self._tags[dst_tag].values())

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
        return write_group(source, group, held.version, self._tensors(tag, group, f'restore("{tag}")'))

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
        """The tags that hold bytes of this version of a group, sorted; none for a version that is unknown."""
        if version is None:
            return ()
        return tuple(
            tag
            for tag in self.backup_tags
            if (one := self._tags[tag].get(group)) and one.version == version and one.tensors is not None
        )

    def borrowers(self, group: str) -> tuple[str, ...]:
        """The tags that have this group without bytes of their own, sorted."""
        return tuple(tag for tag in self.backup_tags if (one := self._tags[tag].get(group)) and one.tensors is None)

    def host_bytes(self) -> int:
        """Host bytes of all copies, each counted once."""
        return sum(self.host_bytes_by_tag().values())

    def host_bytes_by_tag(self) -> dict[str, int]:
        """Host bytes by tag; what several tags share counts for the first of them."""
        counted: set[int] = set()
        found: dict[str, int] = {}
        for tag in self.backup_tags:
            new = {id(one): one for one in self._tags[tag].values() if id(one) not in counted}
            counted |= new.keys()
            found[tag] = sum(one.size_bytes() for one in new.values())
        return found

    def forget(self, group: str) -> None:
        """Drop a group from every tag: whoever gets its name next has other bytes, and maybe another slot."""
        for groups in self._tags.values():
            groups.pop(group, None)

    def forget_stale(self, tag: str, wanted: Mapping[str, int]) -> None:
        """Drop the groups of a tag that hold another version than the one that is wanted of them."""
        held = self._tags.get(tag, {})
        for group in [group for group, one in held.items() if one.version != wanted.get(group)]:
            del held[group]
        if tag in self._tags and not held:
            del self._tags[tag]

    def save(self) -> dict[str, dict[str, Stored]]:
        """The books as they are, for :meth:`load`. Copies no bytes."""
        return {tag: dict(groups) for tag, groups in self._tags.items()}

    def load(self, saved: dict[str, dict[str, Stored]]) -> None:
        """Undo: the tags as they were at :meth:`save`."""
        self._tags = {tag: dict(groups) for tag, groups in saved.items()}

    def _shared(self, tag: str, group: str, version: int | None) -> Stored | None:
        """What serves as the tag's copy of this version without copying a byte, None when a copy is needed."""
        stored = self._stored(tag, group, version)
        borrows = self._sharing is Sharing.BORROWED and self._connected().lends(group, version)
        return Stored(version, None) if stored is None and borrows else stored

    def _stored(self, tag: str, group: str, version: int | None) -> Stored | None:
        if version is None:
            return None
        tags = (tag,) if self._sharing is Sharing.NOTHING else (tag, *self.backup_tags)
        found = (one for each in tags if (one := self._tags.get(each, {}).get(group)) and one.version == version)
        return next((one for one in found if one.tensors is not None), None)

    def _return_what_was_borrowed(self, group: str, stored: Stored) -> None:
        for groups in self._tags.values():
            one = groups.get(group)
            if one is not None and one.tensors is None and one.version == stored.version:
                groups[group] = stored

    def _tensors(self, tag: str, group: str, holder: str) -> Mapping[str, Tensor]:
        held = self._tag(tag)[group]
        if held.tensors is not None:
            return held.tensors
        assert held.version is not None  # what is borrowed has a version
        return self._connected().lent(holder, group, held.version)

    def _tag(self, tag: str) -> dict[str, Stored]:
        if tag not in self._tags:
            raise UnknownTag(tag, self.backup_tags)
        return self._tags[tag]

    def _passing(self, call: str, tag: str) -> AbstractContextManager[None]:
        return nullcontext() if self._gate is None else self._gate.passing(call, tag)

    def _connected(self) -> SnapshotSource:
        if self._source is None:
            raise LifecycleError("this SnapshotStore is not connected; give it to TrainerLifecycle(snapshots=...)")
        return self._source


def _duplicate(stored: Stored) -> Stored:
    return Stored(stored.version, {name: host_copy(one) for name, one in (stored.tensors or {}).items()})
