"""The books of the named copies: which tag holds which version of which content group, and whose bytes those are.

A tag holds content groups, each with the version of the bytes it was copied from. A stored group never changes: a
backup copies what no tag holds in that version into new memory and shares the rest, so equal bytes are stored once
however many tags hold them, and a failed backup leaves the old copy whole. A frozen group that the trainer keeps
readable by itself is not copied at all, if the strategy says so.

Effects work on these books inside their event, which was decided; users come in through
:class:`lifecycle.weights.snapshots.SnapshotStore`, where each call is decided by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from lifecycle.errors import LifecycleError, UnknownTag, UnreadableTensor
from lifecycle.weights.stored import Sharing, SnapshotSource, Stored, check_tag, copy_group, host_copy, write_group


@dataclass
class Tags:
    """Host copies by tag. Pinned where CUDA is available."""

    _tags: dict[str, dict[str, Stored]] = field(default_factory=dict)
    _source: SnapshotSource | None = None
    _sharing: Sharing = Sharing.STORED

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

    def take(self, tag: str, groups: tuple[str, ...] | None = None) -> int:
        """Copy the trainer's present bytes into the tag, where no tag holds their version and none can be borrowed.

        Args:
            tag: created if it does not exist.
            groups: only these; all when None, and groups that the trainer no longer has are dropped from the tag.

        Returns:
            The bytes copied.

        Raises:
            UnreadableTensor: the bytes are paused where they cannot be read. The tag is as before.
        """
        versions = self._connected().versions()
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

    def would_copy(self, tag: str, versions: Iterable[tuple[str, int | None]], *, own: bool = False) -> int:
        """The bytes that would be copied to have these versions of these groups in a tag.

        Args:
            tag: the tag.
            versions: (group, version).
            own: in bytes of its own, also where it could borrow.
        """
        has = self._stored if own else self._shared
        source = self._connected()
        return sum(source.size_bytes(group) for group, version in versions if has(tag, group, version) is None)

    def would_free(self, tag: str, groups: Iterable[str]) -> int:
        """The bytes that would be freed if a tag held other copies of these groups: what no other tag shares."""
        shared = {id(one) for other, held in self._tags.items() if other != tag for one in held.values()}
        own = (one for group, one in self._tags.get(tag, {}).items() if group in groups and id(one) not in shared)
        return sum(one.size_bytes() for one in own)

    def stored(self, tag: str, group: str, version: int) -> Mapping[str, Tensor]:
        """The tensors of a stored group, which never change and live as long as somebody has them.

        Raises:
            UnreadableTensor: the tag has no such version of it, in bytes of its own.
        """
        held = self._tags.get(tag, {}).get(group)
        if held is None or held.version != version or held.tensors is None:
            raise UnreadableTensor(f"version {version} of {group}", f'snapshot "{tag}" does not hold it any more')
        return held.tensors

    def restore_group(self, tag: str, group: str) -> int:
        """Write one group of a tag into the trainer's memory, if its version differs.

        The group is marked unknown while it is written, so that an interruption cannot look like a success.

        Returns:
            The bytes written.

        Raises:
            UnreadableTensor: the trainer's memory is paused where it cannot be written. Nothing changed.
        """
        source = self._connected()
        present = source.versions()
        held = self._tag(tag)[group]
        if group not in present or held.version is None or present[group] == held.version:
            return 0
        return write_group(source, group, held.version, self._tensors(tag, group, f'restore("{tag}")'))

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

    def borrow_again(self, group: str) -> None:
        """Give up the stored copies of the version that the trainer keeps readable; their tags borrow it from now on.

        Nothing happens where the trainer does not lend, so no byte is ever lost here.
        """
        source = self._connected()
        for tag, groups in self._tags.items():
            one = groups.get(group)
            if one is not None and one.tensors is not None and source.lends(group, one.version):
                self._tags[tag] = {**groups, group: Stored(one.version, None)}

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

    def renumber(self, group: str, before: int, version: int) -> None:
        """The bytes of a version of a group go under another id from now on, in every tag that has them."""
        renamed: dict[int, Stored] = {}
        for groups in self._tags.values():
            one = groups.get(group)
            if one is not None and one.version == before:
                groups[group] = renamed.setdefault(id(one), Stored(version, one.tensors))

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

    def tensors(self, tag: str, group: str) -> Mapping[str, Tensor]:
        """A group of a tag by name, for effects: stored, or borrowed from the trainer's memory."""
        return self._tensors(tag, group, f'copy in "{tag}"')

    def _tensors(self, tag: str, group: str, holder: str) -> Mapping[str, Tensor]:
        held = self._tag(tag)[group]
        if held.tensors is not None:
            return held.tensors
        assert held.version is not None  # what is borrowed has a version
        return self._connected().lent(holder, group, held.version)

    def _tag(self, tag: str) -> dict[str, Stored]:
        check_tag(tag)
        if tag not in self._tags:
            raise UnknownTag(tag, self.backup_tags)
        return self._tags[tag]

    def _connected(self) -> SnapshotSource:
        if self._source is None:
            raise LifecycleError("this SnapshotStore is not connected; give it to TrainerLifecycle(snapshots=...)")
        return self._source
