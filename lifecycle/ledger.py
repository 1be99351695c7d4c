"""The ledger: bytes held, by place and tag, and bytes moved, by event and kind.

Held bytes are read from the books (of the saver, the snapshots, the base file) whenever they are asked for;
nothing keeps a second account of them. Tests compare them with the operating system's figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lifecycle.places import (
    BASE_FILE,
    DEVICE,
    HOST_PLACES,
    KEPT_GRADIENTS,
    OTHERS,
    SAVER_DISK,
    SAVER_HOST,
    SNAPSHOTS,
    TRANSPORT,
)
from lifecycle.saver import Backup, TagInfo
from lifecycle.transition.parts import Parts
from states import FROZEN_BASE


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes held at one moment. What is empty is left out.

    Attributes:
        device: device bytes of regions that are active, by tag, of every tenant of the saver.
        saver_host: host bytes of the saver's backups, by tag, of every tenant.
        saver_disk: bytes of the saver's backup files, by tag.
        base_file: bytes of the file behind the frozen base: page cache that a node holds once, not memory of a rank.
        snapshots: host bytes of named copies, by snapshot tag; what several share counts for the first of them.
        kept_gradients: host bytes of gradients of an accumulation under way.
        transport: bytes of buffers that receivers of a sync have not closed, by receiver; on the device or on the
            host, as its transport has them.
    """

    device: Mapping[str, int]
    saver_host: Mapping[str, int]
    saver_disk: Mapping[str, int]
    base_file: Mapping[str, int]
    snapshots: Mapping[str, int]
    kept_gradients: Mapping[str, int]
    transport: Mapping[str, int]

    def by_place(self) -> dict[str, dict[str, int]]:
        """Place to tag to bytes, in the order of :data:`lifecycle.places.PLACES`; empty places are left out."""
        return {place: dict(held) for place, held in self._places() if held}

    def totals(self) -> dict[str, int]:
        """Place to bytes, every place of :data:`lifecycle.places.PLACES`."""
        return {place: sum(held.values()) if held else 0 for place, held in self._places()}

    def _places(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        return (
            (DEVICE, self.device),
            (SAVER_HOST, self.saver_host),
            (SAVER_DISK, self.saver_disk),
            (BASE_FILE, self.base_file),
            (SNAPSHOTS, self.snapshots),
            (KEPT_GRADIENTS, self.kept_gradients),
            (TRANSPORT, self.transport),
        )


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a trainer holds now, and what it has moved since it was attached.

    Attributes:
        held: bytes by place and tag.
        moved: bytes by (event, kind); ``attach`` and the calls of :class:`states.guards_snapshots.SnapshotCall` stand
            among the events. Transitions that failed count for what they moved until then. The kinds are those of
            :meth:`lifecycle.transition.parts.Work.count`.
    """

    held: Held
    moved: Mapping[tuple[str, str], int]

    @property
    def device_bytes(self) -> int:
        """Device bytes of active regions."""
        return sum(self.held.device.values())

    @property
    def host_bytes(self) -> int:
        """Host bytes of backups, copies and kept gradients: memory of this process. The base file is not in it."""
        totals = self.held.totals()
        return sum(totals[place] for place in HOST_PLACES)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the saver's backup files."""
        return sum(self.held.saver_disk.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of the base file."""
        return sum(self.held.base_file.values())

    @property
    def moved_bytes(self) -> int:
        """Bytes moved since attach, of every kind."""
        return sum(self.moved.values())

    def moved_by(self, event: str) -> dict[str, int]:
        """Bytes moved by one event since attach, by kind."""
        return {kind: count_bytes for (by, kind), count_bytes in sorted(self.moved.items()) if by == event}

    def as_rows(self) -> list[dict[str, object]]:
        """The ledger as a table.

        Returns:
            Rows of ``{"account": "held", "where": PLACE, "what": TAG, "bytes": n}`` and then
            ``{"account": "moved", "where": EVENT, "what": KIND, "bytes": n}``.
        """
        held = [(place, tag, size) for place, tags in self.held.by_place().items() for tag, size in tags.items()]
        moved = [(event, kind, size) for (event, kind), size in sorted(self.moved.items())]
        return [
            {"account": account, "where": where, "what": what, "bytes": size}
            for account, rows in (("held", held), ("moved", moved))
            for where, what, size in rows
        ]


def held_now(parts: Parts) -> Held:
    """What is held at this moment: the saver's books of all its tenants, and this trainer's copies."""
    tags = parts.saver.tags().values()
    return Held(
        device={info.tag: info.size_bytes for info in tags if not info.paused and info.size_bytes},
        saver_host={info.tag: info.backup_bytes for info in tags if info.backup_bytes},
        saver_disk=_disk_bytes(parts, tags),
        base_file=_nonzero({FROZEN_BASE: parts.file.size_bytes()}),
        snapshots=_nonzero(parts.snapshots.host_bytes_by_tag()),
        kept_gradients=_nonzero({"gradients": parts.gradients.kept_bytes()}),
        transport={name: size for name, size in parts.runtime.receivers.outstanding().items() if size},
    )


def _disk_bytes(parts: Parts, tags: Iterable[TagInfo]) -> dict[str, int]:
    """A backup file stays when its region is active again; of other tenants only the sum is known then."""
    on_disk = [info for info in tags if info.backup is Backup.DISK]
    if not on_disk:
        return {}
    own = {info.tag: info.size_bytes for info in on_disk if info.paused or info.tag in parts.on_disk}
    return _nonzero({**own, OTHERS: parts.saver.usage().disk_bytes - sum(own.values())})


def _nonzero(held: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in held.items() if size}
