"""Named host copies of the model, with the method names that trainers use today.

Every method here is a call of the user's: it is decided by :mod:`states.guards_snapshots`, takes the trainer's turn
and goes on the record. Effects use :class:`lifecycle.weights.tags.Tags` inside the event that was decided. A restore
is decided by versions, never by which tag is called active.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from lifecycle.errors import ConfigError, LifecycleError
from lifecycle.weights.stored import Gate, Plan, Sharing, SnapshotSource, Stored, check_tag, host_copy
from lifecycle.weights.tags import Tags
from states.guards_snapshots import SnapshotCall


@dataclass
class SnapshotStore(Tags):
    """Host copies by tag. Belongs to one trainer.

    The controller connects it to the trainer's memory; until then only tags can be asked for.
    """

    _gate: Gate | None = None

    def connect(self, source: SnapshotSource, gate: Gate | None = None, sharing: Sharing = Sharing.STORED) -> None:
        """Attach the trainer's memory. Called once by the controller.

        Args:
            source: the memory.
            gate: what decides whether a call of the user's may be made now.
            sharing: how much the tags share.
        """
        self.check_free()
        self._source, self._gate, self._sharing = source, gate, sharing

    def disconnect(self) -> None:
        """Undo of :meth:`connect`, for a trainer that could not be built. Its tags stay."""
        self._source, self._gate, self._sharing = None, None, Sharing.STORED

    @property
    def is_free(self) -> bool:
        """Whether it belongs to no trainer."""
        return self._source is None

    def check_free(self) -> None:
        """Refuse a store that belongs to another trainer.

        Raises:
            ConfigError: it does.
        """
        if not self.is_free:
            raise ConfigError("this SnapshotStore belongs to a trainer already; give each trainer its own")

    def backup(self, tag: str, groups: tuple[str, ...] | None = None) -> int:
        """Copy the trainer's present bytes into the tag: all groups, or those named.

        A group whose version the tag holds already is not copied. Groups that the trainer no longer
        has (retired adapters) are dropped from the tag.

        Returns:
            The bytes copied.

        Raises:
            EventRefused: see :data:`states.guards_snapshots.SNAPSHOT_TABLE`.
        """
        check_tag(tag)
        return self._perform(
            SnapshotCall.BACKUP, tag, lambda: self.plan_of_backup(tag, groups), lambda: self.take(tag, groups)
        )

    def plan_of_backup(self, tag: str, groups: tuple[str, ...] | None = None) -> Plan:
        """What a backup would put into the tag, and the bytes that it would copy."""
        present = self._connected().versions().items()
        puts = tuple((group, version) for group, version in present if groups is None or group in groups)
        copies = tuple(group for group, version in puts if self._shared(tag, group, version) is None)
        return Plan(puts, whole=groups is None, copies=copies, need_bytes=self.would_copy(tag, puts))

    def get(self, tag: str) -> Mapping[str, Tensor]:
        """Name to tensor of everything the tag holds: the copies themselves, read-only by contract.

        They belong to the store and are valid until the next backup into the tag or its release. Those of
        a borrowed group alias the trainer's memory: as long as one lives, no transition takes it away.

        Raises:
            UnknownTag: the tag does not exist.
            UnreadableTensor: a borrowed version is gone.
            EventRefused: the trainer is faulted.
            BusyError: another thread's event did not end in time.
        """
        self._tag(tag)
        with self._looking(tag):
            held = self._tag(tag)
            found = {name: one for group in held for name, one in self._tensors(tag, group, f'get("{tag}")').items()}
            return MappingProxyType(found)

    def tensor(self, tag: str, group: str, name: str) -> Tensor:
        """The copy of one tensor; see :meth:`get` for who owns it, and what else it raises.

        Raises:
            LifecycleError: the tag does not hold the tensor.
        """
        self._tag(tag)
        with self._looking(tag):
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
            EventRefused: see :data:`states.guards_snapshots.SNAPSHOT_TABLE`.
        """
        self._tag(src_tag)
        check_tag(dst_tag)
        return self._perform(
            SnapshotCall.COPY,
            dst_tag,
            lambda: self._plan_of_copy(src_tag, dst_tag),
            lambda: self._copy(src_tag, dst_tag),
        )

    def _plan_of_copy(self, src_tag: str, dst_tag: str) -> Plan:
        puts = tuple((group, one.version) for group, one in self._tag(src_tag).items())
        need = sum(one.size_bytes() for one in self._new_copies(src_tag, dst_tag).values())
        return Plan(puts, whole=True, need_bytes=need)

    def _new_copies(self, src_tag: str, dst_tag: str) -> dict[str, Stored]:
        """What a copy has to copy: nothing where groups are shared, or the destination has the version already."""
        if self._sharing is not Sharing.NOTHING:
            return {}
        source = self._tag(src_tag)
        return {group: one for group, one in source.items() if self._stored(dst_tag, group, one.version) is None}

    def _copy(self, src_tag: str, dst_tag: str) -> int:
        copied = {group: _duplicate(one) for group, one in self._new_copies(src_tag, dst_tag).items()}
        shared = self._tag(src_tag) if self._sharing is not Sharing.NOTHING else self._tags.get(dst_tag, {})
        self._tags[dst_tag] = {group: copied.get(group) or shared[group] for group in self._tag(src_tag)}
        return sum(one.size_bytes() for one in copied.values())

    def restore(self, tag: str) -> int:
        """Write the tag's bytes into the trainer's memory, where they differ in version.

        Groups that the trainer no longer has are left out. A group is marked unknown while it is
        written, so that an interruption cannot look like a success.

        Returns:
            The bytes written.

        Raises:
            UnknownTag: the tag does not exist.
            EventRefused: see :data:`states.guards_snapshots.SNAPSHOT_TABLE`.
        """
        self._tag(tag)
        return self._perform(
            SnapshotCall.RESTORE,
            tag,
            lambda: Plan(memory=tuple(self._connected().versions().items())),
            lambda: sum(self.restore_group(tag, group) for group in self._tag(tag)),
        )

    def release(self, tag: str) -> None:
        """Drop a tag and its memory.

        Raises:
            UnknownTag: the tag does not exist.
            EventRefused: see :data:`states.guards_snapshots.SNAPSHOT_TABLE`.
        """
        self._tag(tag)
        self._perform(SnapshotCall.RELEASE, tag, lambda: Plan(whole=True), lambda: self._drop(tag))

    def _drop(self, tag: str) -> int:
        self._tag(tag)
        del self._tags[tag]
        return 0

    def _perform(self, call: SnapshotCall, tag: str, plan: Callable[[], Plan], do: Callable[[], int]) -> int:
        return do() if self._gate is None else self._gate.perform(call, tag, plan, do)

    def _looking(self, tag: str) -> AbstractContextManager[None]:
        return nullcontext() if self._gate is None else self._gate.looking(tag)


def _duplicate(stored: Stored) -> Stored:
    return Stored(stored.version, {name: host_copy(one) for name, one in (stored.tensors or {}).items()})
