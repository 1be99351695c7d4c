"""The trainer's named tensors as a store of copies sees them: what is in them, as far as it was seen or told.

No event says what changed. Each tensor is a content group of its own, and gets a version by what its bytes turn out
to be: that of a copy with the same bytes, or a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

from torch import Tensor

from lifecycle.compat.errors import FrozenChanged
from lifecycle.compat.names import FrozenNames, NamedTensors, checked_saver, listed
from lifecycle.errors import ConfigError, UnreadableTensor
from lifecycle.saver import Backup, MemorySaver
from lifecycle.weights.digests import BLOCK_BYTES, BLOCKS, same_bytes, sample
from lifecycle.weights.door import Door
from lifecycle.weights.snapshots import SnapshotStore

_SAMPLE_BYTES: Final = (BLOCKS + 2) * BLOCK_BYTES
"""A tensor of no more than that is its own sample."""

_Seen = tuple[int, tuple[int, ...], tuple[int, ...], object, int]
"""Address, shape, strides and dtype of a tensor, and the revision of the saver's books."""


class LiveTensors:
    """A :class:`~lifecycle.weights.stored.SnapshotSource` over a function that gives named tensors.

    Args:
        source_getter: called anew for each backup and restore.
        frozen: names or patterns of tensors that never change.
        saver: whose books say what is paused; None if nothing can be known of that.
        store: whose copies the bytes are compared with.

    Raises:
        ConfigError: *frozen* or *saver* is none.
    """

    def __init__(
        self,
        source_getter: Callable[[], NamedTensors],
        frozen: Iterable[str],
        saver: MemorySaver | None,
        store: SnapshotStore,
    ) -> None:
        self._getter = source_getter
        self._frozen = FrozenNames(frozen)
        self._saver = None if saver is None else checked_saver(saver)
        self._door = None if saver is None else Door(saver, store)
        self._store = store
        self._ids = count(1)
        self._looks = 0
        self._held: dict[str, int | None] = {}
        self._seen: dict[str, _Seen] = {}
        self._marked: set[str] | None = None
        self._all_marked = False
        self.tensors: dict[str, Tensor] = {}

    # What the store asks

    def versions(self) -> Mapping[str, int | None]:
        """What is known of every tensor that was ever given: the version of its bytes, None when it is not known."""
        return self._held

    def names(self, group: str) -> tuple[str, ...]:
        """A group is one tensor."""
        return (group,)

    def size_bytes(self, group: str) -> int:
        """Bytes of the tensor."""
        return int(self.tensors[group].nbytes)

    def own_bytes(self, group: str, name: str) -> Tensor:
        """The tensor, or its host backup while it is paused, which a resume brings back.

        Raises:
            UnreadableTensor: it is paused and its backup is not host memory.
        """
        tensor = self.tensors[group].detach()
        return tensor if self._door is None else self._door.own_bytes(name, tensor)

    def written(self, group: str, version: int | None) -> None:
        """The tensor has these bytes now."""
        self._held[group] = version
        self._seen[group] = self._look_at(group)

    def lends(self, group: str, version: int | None) -> bool:  # noqa: ARG002 - the protocol's names
        """Nothing: who says that it is frozen only says so."""
        return False

    def lent(self, holder: str, group: str, version: int) -> Mapping[str, Tensor]:
        """Nothing is.

        Raises:
            UnreadableTensor: always.
        """
        raise UnreadableTensor(group, f"{holder} asks for version {version} of what is not lent")

    # What the backuper asks

    def mark(self, names: Iterable[str] | None) -> None:
        """Since the last backup or restore these tensors changed (all when None), besides those already named."""
        self._marked = set() if self._marked is None else self._marked
        self._all_marked |= names is None
        self._marked |= set(names or ())

    def settle(self) -> None:
        """A backup or a restore is over: what was told is used up."""
        self._marked, self._all_marked = None, False

    def forget(self) -> None:
        """Nothing is known of what is not frozen, nor was anything told."""
        self._held.update(dict.fromkeys(name for name in self._held if name not in self._frozen))
        self.settle()

    def look(self) -> dict[str, Tensor]:
        """The tensors that there are now. What is known of one that was moved, replaced or left out is forgotten.

        Raises:
            ConfigError: what the function gives are no named tensors, or a name that was told is none of them.
        """
        self.tensors = listed(self._getter())
        if not self._looks:
            self._frozen.check(self.tensors)
        for name in sorted(self._marked or ()):
            if name not in self.tensors or name in self._frozen:
                what = "is said to be frozen" if name in self._frozen else "is no tensor of the source"
                raise ConfigError(f"mark_dirty() named {name}, which {what}")
        for name in self.tensors:
            if self._held.setdefault(name, None) is not None and self._look_at(name)[:-1] != self._seen[name][:-1]:
                self._held[name] = None
        self._held.update(dict.fromkeys(self._held.keys() - self.tensors.keys()))
        self._looks += 1
        return self.tensors

    def identify(self) -> None:
        """Find out the version of the bytes of every tensor, by what was told of them or by comparing them.

        Raises:
            UnreadableTensor: a tensor is paused and its backup is not host memory.
            FrozenChanged: a tensor that is said to be frozen has changed.
        """
        candidates: dict[str, dict[int, Tensor]] = {name: {} for name in self.tensors}
        for groups in self._store.save().values():
            for name, stored in groups.items():
                if name in candidates and stored.version is not None and stored.tensors is not None:
                    candidates[name][stored.version] = stored.tensors[name]
        for name in self.tensors:
            self.written(name, self._version_of(name, candidates[name]))

    def is_proved(self, name: str, version: int, copy: Tensor) -> bool:
        """Whether the tensor surely has the bytes of a copy: they were there, nothing changed and nothing was paused.

        Args:
            name: of the tensor.
            version: of the copy.
            copy: the copy.
        """
        if self._held[name] != version or not self._never_paused(name):
            return False
        return self._same_sample(name, copy) if name in self._frozen else self._is_told_unchanged(name)

    def doubt(self, name: str) -> None:
        """It is not known what the tensor holds."""
        self._held[name] = None

    def _version_of(self, name: str, copies: Mapping[int, Tensor]) -> int:
        held = self._held[name]
        if held is not None and held not in copies:
            held = None  # nothing holds these bytes any more
        if held is not None and name in self._frozen:
            if not self._same_sample(name, copies[held]):
                raise FrozenChanged(name, self._store.holders(name, held))
            return held
        if held is not None and self._is_told_unchanged(name) and self._survived(name):
            return held
        if not self._is_marked(name):
            own = self.own_bytes(name, name)
            for version, copy in copies.items():
                if self._same_sample(name, copy) and same_bytes(own, copy):
                    return version
        return next(self._ids)

    def _is_marked(self, name: str) -> bool:
        return self._all_marked or name in (self._marked or ())

    def _is_told_unchanged(self, name: str) -> bool:
        return self._marked is not None and not self._is_marked(name)

    def _same_sample(self, name: str, copy: Tensor) -> bool:
        own = self.own_bytes(name, name)
        if own.nbytes <= _SAMPLE_BYTES:
            return same_bytes(own, copy)
        return sample({name: own}, self._looks) == sample({name: copy}, self._looks)

    def _never_paused(self, name: str) -> bool:
        """Whether the saver can say that the tensor's memory was not paused since it was last seen."""
        saver = self._saver
        if saver is None:
            return False
        return saver.tag_of(self.tensors[name]) is None or saver.revision == self._seen[name][-1]

    def _survived(self, name: str) -> bool:
        """Whether nothing that the saver did since can have lost the bytes."""
        if self._saver is None or self._never_paused(name):
            return True
        return self._saver.tags()[str(self._saver.tag_of(self.tensors[name]))].backup is not Backup.NONE

    def _look_at(self, name: str) -> _Seen:
        tensor = self.tensors[name]
        revision = -1 if self._saver is None else self._saver.revision
        return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, revision
