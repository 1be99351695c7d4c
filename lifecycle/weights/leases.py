"""Leases: reading weights pins the memory they are read from until the reader is done.

A transition that would free or change leased bytes is refused and names the holder. A tensor that
outlives its lease is found, because every tensor that is handed out has a storage of its own, and
keeps refusing such transitions until it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import Self

from torch import Tensor

from lifecycle.errors import LeaseError
from lifecycle.weights.aliases import Watched
from states import LeaseFacts, Read, Source

_PRUNED_FROM = 4096
"""So many tensors may be handed out by a lease before those that are gone are forgotten."""


@dataclass
class _Record:
    """One lease: what it pins, and what it has handed out, by name and where it was read.

    While it is open nobody asks what is still alive of that, so it is looked through rarely.
    """

    holder: str
    groups_by_source: dict[str, tuple[str, ...]]
    closed: bool = False
    handed: Watched[tuple[str, Read]] = field(default_factory=Watched)
    prune_at: int = field(default_factory=lambda: _PRUNED_FROM)

    def hand(self, name: str, read: Read, tensor: Tensor) -> None:
        self.handed.add(tensor, (name, read))
        if len(self.handed) >= self.prune_at:
            self.prune_at = max(_PRUNED_FROM, 2 * len(self.handed.alive()))

    def outlived(self) -> list[tuple[str, str]]:
        """Source and name of what is still alive of a closed lease; nothing outlives an open one."""
        return [(source_name(read), name) for name, read in self.handed.alive()] if self.closed else []


def source_name(read: Read) -> str:
    """The memory a read pins: ``live``, ``saver-backup`` or ``snapshot:TAG``."""
    return f"snapshot:{read.tag}" if read.source is Source.SNAPSHOT else str(read.source)


class WeightLease(Mapping[str, Tensor]):
    """A lazy mapping of tensor name to tensor, from the decided sources. Close it when done.

    Each access gives a new alias of the bytes (no copy), valid while the lease is open: same dtype
    and shape as the parameter, on the device for live weights, on the host for backups and
    snapshots. The bytes belong to the trainer; do not write to them.

    Used as a context manager it closes on exit; :meth:`stream` closes it when exhausted.
    """

    def __init__(
        self,
        record: _Record,
        tensors: Mapping[str, tuple[Tensor, Read]],
        read: Callable[[str, Tensor, Read], Tensor],
    ) -> None:
        self._record = record
        self._tensors = tensors
        self._read = read

    @property
    def holder(self) -> str:
        """Who reads, as refusals name it."""
        return self._record.holder

    @property
    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """The memory that is pinned, with the content groups read from it."""
        return self._record.groups_by_source

    def __getitem__(self, name: str) -> Tensor:
        record = self._record
        if record.closed:
            raise LeaseError(f"the lease of {self.holder} is closed, {name} is not read; open a new one with weights()")
        if name not in self._tensors:
            raise KeyError(
                f"{name} is none of the {len(self)} tensors of this lease; iterating over it gives their names"
            )
        tensor, read = self._tensors[name]
        found = self._read(name, tensor, read)
        record.hand(name, read, found)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def stream(self) -> Iterator[tuple[str, Tensor]]:
        """The weights one by one. The lease ends when the stream is exhausted or closed.

        Raises:
            LeaseError: the lease was closed while the stream was still being read.
        """
        try:
            for name in self._tensors:
                yield name, self[name]
        finally:
            self.close()

    def materialise(self) -> dict[str, Tensor]:
        """Copies that the caller owns, on the host; the lease ends. The only way to read across a transition."""
        try:
            return {name: self[name].detach().cpu().clone() for name in self._tensors}
        finally:
            self.close()

    def close(self) -> None:
        """End the lease. Tensors that are still alive are reported until they are gone."""
        if not self._record.closed:
            self._record.closed = True
            self._record.handed.alive()  # forgets what is gone now, so that the next event need not look through it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._record.closed = True


class LeaseBook:
    """All leases that are open, and all tensors that outlived one."""

    def __init__(self) -> None:
        self._records: list[_Record] = []
        self._lock = Lock()

    def open(
        self,
        holder: str,
        tensors: Mapping[str, tuple[Tensor, Read]],
        read: Callable[[str, Tensor, Read], Tensor],
    ) -> WeightLease:
        """Open a lease over tensors whose sources have been decided.

        Args:
            holder: who reads.
            tensors: name to the trainer's tensor and the decision for its group.
            read: the door.
        """
        groups: dict[str, tuple[str, ...]] = {}
        for decided in {id(read): read for _, read in tensors.values()}.values():
            name = source_name(decided)
            groups[name] = tuple(dict.fromkeys((*groups.get(name, ()), decided.group)))
        record = _Record(holder, groups)
        with self._lock:
            self._records.append(record)
        return WeightLease(record, tensors, read)

    def facts(self) -> tuple[LeaseFacts, ...]:
        """One entry for each pinned memory of each lease that is open or was outlived."""
        found: list[LeaseFacts] = []
        with self._lock:
            kept = []
            for record in self._records:
                outlived = record.outlived()
                if record.closed and not outlived:
                    continue
                kept.append(record)
                found.extend(_facts_of(record, outlived))
            self._records = kept
        return tuple(found)


def _facts_of(record: _Record, outlived: list[tuple[str, str]]) -> Iterator[LeaseFacts]:
    for source, groups in record.groups_by_source.items():
        names = tuple(sorted({name for where, name in outlived if where == source}))
        if not record.closed:
            yield LeaseFacts(record.holder, source, groups)
        elif names:
            yield LeaseFacts(record.holder, source, groups, leaked=names)
