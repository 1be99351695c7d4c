"""The version book: which bytes the trainer's regions hold, and which ones are the actor's newest.

Version ids only grow and are never used twice, also by the next controller: an engine that outlives
the trainer must not take the new one's bytes for the old one's. Equal ids mean equal bytes: restoring
a snapshot brings its id back, training takes a new one. No flag decides freshness.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

_EPOCH_SHIFT: Final = 20
"""Ids of one book before it could meet the next second's: a million; an id still fits a JSON number (53 bits)."""

TAKEN_MAX: Final = 1 << 12
"""More ids than one event takes: one for each content group."""

HISTORY_MAX: Final = 256
"""So many of a group's last ids are remembered, to say how far a sample is behind."""

Saved = tuple[dict[str, int], dict[str, int | None], dict[str, deque[int]]]

_last_epoch = 0
_epoch_lock = Lock()


def next_epoch() -> int:
    """A number for the ids of a new book to begin with: the seconds of the clock, never the same twice."""
    global _last_epoch  # noqa: PLW0603 - one counter a process
    with _epoch_lock:
        _last_epoch = max(int(time.time()), _last_epoch + 1)
        return _last_epoch


@dataclass
class VersionBook:
    """Versions by content group.

    Attributes:
        wanted: id of the actor's newest bytes.
        region: id of the bytes in the trainer's own memory (on the device, or in the backup that
            brings them back); None when they are lost or unknown.
        retained: id of the bytes in a backup that the saver retained at the last resume, by group.
        digests: id to the SHA-256 of a group's bytes, where it was computed.
        newest: the largest id that was given out or seen.
        history: the last ids that each group was given, oldest first.
    """

    wanted: dict[str, int] = field(default_factory=dict)
    region: dict[str, int | None] = field(default_factory=dict)
    retained: dict[str, int | None] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    newest: int = field(default_factory=lambda: (next_epoch() << _EPOCH_SHIFT) - 1)
    history: dict[str, deque[int]] = field(default_factory=dict)

    def new_id(self) -> int:
        """An id that was never used."""
        self.newest += 1
        return self.newest

    def given(self, group: str, version: int) -> None:
        """The actor's bytes of *group* are this version from now on."""
        self.wanted[group] = version
        # Anew, not appended to: an undo brings the ids of before back.
        self.history[group] = deque((*self.history.get(group, ()), version), maxlen=HISTORY_MAX)

    def rise_above(self, version: int) -> None:
        """Give out no id up to this one: somebody else has used it."""
        self.newest = max(self.newest, version)

    def pass_over(self, newest: int) -> None:
        """Something of an event failed: go on above all ids that it can have taken, which is the same on every rank.

        Args:
            newest: :attr:`newest` when it began. How many it has taken since depends on where it failed.
        """
        self.rise_above(newest + TAKEN_MAX)

    def renew(self, group: str) -> int:
        """The actor's bytes of *group* changed in place: take a new id for them."""
        version = self.new_id()
        self.given(group, version)
        self.region[group] = version
        return version

    def known(self, groups: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """The last ids of those of these groups that there are, oldest first, up to the one that is wanted."""
        found = {}
        for group in self.wanted.keys() & set(groups):
            version = self.wanted[group]
            ids = tuple(self.history.get(group, ()))
            found[group] = ids[: ids.index(version) + 1] if version in ids else (version,)
        return found

    def renumber(self, group: str) -> tuple[int, int]:
        """The same bytes under a new id, above all others.

        Returns:
            The id before and the new one.
        """
        before, version = self.wanted[group], self.new_id()
        self.given(group, version)
        for held in (self.region, self.retained):
            if held.get(group) == before:
                held[group] = version
        if before in self.digests:
            self.digests[version] = self.digests[before]
        return before, version

    def drop(self, group: str) -> None:
        """The group is gone (a retired adapter)."""
        self.wanted.pop(group, None)
        self.region.pop(group, None)
        self.retained.pop(group, None)
        self.history.pop(group, None)

    def forget_digests(self, kept: Iterable[int | None]) -> None:
        """Drop the digests of versions that nothing holds any more.

        Args:
            kept: ids that are held besides those of this book.
        """
        held = {*self.wanted.values(), *self.region.values(), *self.retained.values(), *kept}
        self.digests = {version: one for version, one in self.digests.items() if version in held}

    def save(self) -> Saved:
        """The books as they are, for :meth:`load`."""
        return dict(self.wanted), dict(self.region), dict(self.history)

    def load(self, saved: Saved) -> None:
        """Undo: the books as they were, whatever this rank had come to. Ids taken since then stay used."""
        self.wanted, self.region, self.history = dict(saved[0]), dict(saved[1]), dict(saved[2])
