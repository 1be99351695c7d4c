"""Host copies by tag, of which equal bytes are stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from lifecycle.compat.backuper import TensorBackuper
from lifecycle.compat.live_tensors import LiveTensors
from lifecycle.compat.names import NamedTensors
from lifecycle.errors import ConfigError, LifecycleError, UnknownTag, UnreadableTensor
from lifecycle.saver import MemorySaver
from lifecycle.weights.snapshots import SnapshotStore
from lifecycle.weights.stored import check_tag

BATCH_BYTES: Final = 256 * 2**20
"""What changed is copied in batches of about so much: so many bytes more than the copies take are held meanwhile."""


class HostCopies(TensorBackuper):
    """Copies in host memory, pinned where CUDA is available; equal bytes are stored once for all tags."""

    def __init__(
        self,
        source_getter: Callable[[], NamedTensors],
        *,
        frozen: Iterable[str] = (),
        saver: MemorySaver | None = None,
    ) -> None:
        self._store = SnapshotStore()
        self._live = LiveTensors(source_getter, frozen, saver, self._store)
        self._store.connect(self._live)
        self._names: dict[str, dict[str, None]] = {}
        self._torn: set[str] = set()
        self._counters: dict[tuple[str, int | None], int] = {}

    @property
    def backup_tags(self) -> list[str]:
        """The tags that exist, in the order in which they were made."""
        return list(self._names)

    def host_bytes(self) -> int:
        """Host bytes of all copies, each counted once."""
        return self._store.host_bytes()

    def get(self, tag: str) -> dict[str, Tensor]:
        """The copies of a tag; see :meth:`TensorBackuper.get`.

        Raises:
            UnknownTag: the tag does not exist.
            LifecycleError: its last backup was interrupted, or somebody has written into its copies.
        """
        return {name: copy for name, (_, copy) in self._copies(tag, self._whole(tag)).items()}

    def backup(self, tag: str) -> int:
        """Keep the present bytes under a tag: what no tag holds is copied, the rest is shared.

        Names that the source does not give this time stay as they are.

        Returns:
            The bytes copied.

        Raises:
            ConfigError: no tag, or the source gives no named tensors.
            UnreadableTensor: a tensor is paused and its backup is not host memory. The tag is as before.
            FrozenChanged: a tensor that is said to be frozen has changed. The tag is as before.
        """
        check_tag(tag)
        with _exactly():
            names = self._live.look()
            self._live.identify()
            with self._tearing(tag):
                moved = sum(self._store.take(tag, batch) for batch in self._batches(tag, names))
            self._names.setdefault(tag, {}).update(dict.fromkeys(names))
            self._count_writes()
            self._live.settle()
        return moved

    def copy(self, *, src_tag: str, dst_tag: str) -> None:
        """Let a tag share what another one holds; see :meth:`TensorBackuper.copy`. No byte is copied.

        Raises:
            UnknownTag: the source does not exist.
            UnreadableTensor: it lacks a tensor of the other tag. Nothing changed.
            LifecycleError: see :meth:`get`.
        """
        check_tag(dst_tag)
        source = self._whole(src_tag)
        names = self._whole(dst_tag) if dst_tag in self._names else source
        self._refuse_missing(src_tag, names)
        copies = self._copies(src_tag, names)
        for name, (version, copy) in copies.items():
            self._store.keep(dst_tag, name, version, {name: copy})
        self._names[dst_tag] = dict(names)

    def restore(self, tag: str) -> int:
        """Write a tag into the source's tensors, but for what surely is there already.

        That is what has these bytes since the last backup or restore, is frozen or was not marked since, and lies in
        memory that the saver has not paused since.

        Returns:
            The bytes written.

        Raises:
            UnknownTag: the tag does not exist.
            UnreadableTensor: it lacks a tensor of the source, or one is paused where it cannot be written. Nothing
                was written.
            ConfigError: a tensor has another shape or dtype than its copy. Nothing was written.
            LifecycleError: see :meth:`get`.
        """
        self._whole(tag)
        with _exactly():
            names = self._live.look()
            self._refuse_missing(tag, names)
            copies = self._copies(tag, names)
            for name, tensor in names.items():
                self._live.own_bytes(name, name)
                copy = copies[name][1]
                if copy.shape != tensor.shape or copy.dtype != tensor.dtype:
                    raise ConfigError(f'{name} is {tensor.dtype} {tuple(tensor.shape)}, "{tag}" holds {copy.dtype} '
                                      f"{tuple(copy.shape)} of it; backup again")  # fmt: skip
            for name, held in copies.items():
                if not self._live.is_proved(name, *held):
                    self._live.doubt(name)
            moved = sum(self._store.restore_group(tag, name) for name in names)
            self._live.settle()
        return moved

    def release(self, tag: str) -> None:
        """Drop a tag and the memory that no other tag shares.

        Raises:
            UnknownTag: the tag does not exist.
        """
        self._known(tag)
        del self._names[tag]
        self._torn.discard(tag)
        self._store.release(tag)
        self._count_writes()

    def mark_dirty(self, names: Iterable[str] | None = None) -> None:
        """Say what changed since the last backup or restore; see :meth:`TensorBackuper.mark_dirty`.

        Raises:
            ConfigError: one string. A name that the source does not give is refused by the next backup or restore.
        """
        if isinstance(names, str):
            raise ConfigError(f"mark_dirty({names!r}); give a list of names")
        self._live.mark(names)

    def forget(self) -> None:
        """The source's tensors were written by somebody else: nothing is known of them, and what was told is void."""
        self._live.forget()

    def _batches(self, tag: str, names: Iterable[str]) -> Iterator[tuple[str, ...]]:
        """The names of which the tag lacks the present version, in batches; at least one, which makes the tag."""
        held, present = self._store.versions(tag) if self._store.has(tag) else {}, dict(self._live.versions())
        batch, size_bytes = list[str](), 0
        for name in names:
            if held.get(name) == present[name]:
                continue
            batch.append(name)
            size_bytes += self._live.size_bytes(name)
            if size_bytes >= BATCH_BYTES:
                yield tuple(batch)
                batch, size_bytes = [], 0
        yield tuple(batch)

    @contextmanager
    def _tearing(self, tag: str) -> Iterator[None]:
        """The tag changes inside. If that fails half-way it holds bytes of two times, and says so from then on."""
        before, was_torn = self._stored_versions(tag), tag in self._torn
        self._torn.add(tag)
        try:
            yield
        except BaseException:
            if self._stored_versions(tag) == before and not was_torn:
                self._torn.discard(tag)
            else:
                self._names.setdefault(tag, {})
            raise
        self._torn.discard(tag)

    def _stored_versions(self, tag: str) -> dict[str, int | None] | None:
        return dict(self._store.versions(tag)) if self._store.has(tag) else None

    def _known(self, tag: str) -> dict[str, None]:
        check_tag(tag)
        if tag not in self._names:
            raise UnknownTag(tag, self.backup_tags)
        return self._names[tag]

    def _whole(self, tag: str) -> dict[str, None]:
        names = self._known(tag)
        if tag in self._torn:
            raise LifecycleError(f'the last backup of "{tag}" was interrupted: it holds bytes of two times; '
                                 f'put the right weights in place and backup("{tag}") again')  # fmt: skip
        return names

    def _refuse_missing(self, tag: str, names: Iterable[str]) -> None:
        held = self._names[tag]
        missing = next((name for name in names if name not in held), None)
        if missing is not None:
            raise UnreadableTensor(missing, f'"{tag}" was backed up without it; backup("{tag}") with it first')

    def _copies(self, tag: str, names: Iterable[str]) -> dict[str, tuple[int, Tensor]]:
        """Version and copy of these tensors.

        Raises:
            LifecycleError: somebody has written into one.
        """
        versions, found = self._store.versions(tag), dict[str, tuple[int, Tensor]]()
        for name in names:
            version, copy = versions[name], self._store.tensors(tag, name)[name]
            assert version is not None  # a tag holds nothing of no version
            if copy._version != self._counters[name, version]:  # noqa: SLF001
                raise LifecycleError(
                    f'somebody has written into the copy of {name} that get("{tag}") gave: it is shared by all tags '
                    f'with these bytes and not to be written to; put the right weights in place and backup("{tag}")'
                )
            found[name] = version, copy
        return found

    def _count_writes(self) -> None:
        """Remember how often torch has seen each copy written to, to tell whether somebody did it since."""
        before, after = self._counters, {}
        for groups in self._store.save().values():
            for name, stored in groups.items():
                key = name, stored.version
                after[key] = before.get(key, (stored.tensors or {})[name]._version)  # noqa: SLF001
        self._counters = after


@contextmanager
def _exactly() -> Iterator[None]:
    """No autograd inside, whatever the caller's mode is, and the device is done before and afterwards."""
    with torch.inference_mode(mode=False), torch.no_grad():
        _synchronize()
        yield
        _synchronize()


def _synchronize() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
