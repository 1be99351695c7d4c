"""What can be asked of a registry. No call in this module changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from lifecycle.adapters.given import as_name
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import AdapterRecord, BatchRecord, RegistrySnapshot
from lifecycle.adapters.refusals import AdapterRefused
from lifecycle.adapters.roster import Roster
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterEvent, AdapterRefusal, AdapterState, decide_adapter

SERVED = (AdapterState.ACTIVE, AdapterState.RETIRING)
WANTED = (AdapterState.PENDING, AdapterState.ACTIVE)


class RegistryReader:
    """The questions. Every method may be called from any thread.

    Args:
        snapshot: what the registry begins with.
    """

    def __init__(self, snapshot: RegistrySnapshot) -> None:
        self._lock = RLock()
        self._roster = Roster(snapshot)
        self._batches: dict[int, BatchRecord] = {one.rollout_id: one for one in snapshot.batches}
        self._ahead: set[int] = set()  # registrations whose tensors have changed since their last count
        self._unaccounted: frozenset[int] = frozenset()  # what the host holds and this registry has never known
        self._changes = 0  # those that the roster does not count

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nobody else changes the registry inside the block: what was looked up stays true."""
        with self._lock:
            yield

    @property
    def revision(self) -> int:
        """A number that grows with every change. While it is the same, so is the registry."""
        with self._lock:
            return self._changes + self._roster.changes

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self._roster.slot_versions)

    def find(self, name: str) -> AdapterRecord | None:
        """The newest registration of *name*; None when none is remembered.

        Raises:
            AdapterError: *name* is no string.
        """
        with self._lock:
            return self._roster.newest(as_name(name))

    def adapter_state(self, name: str) -> AdapterState | None:
        """Where the newest registration of *name* stands; None when none is remembered."""
        record = self.find(name)
        return None if record is None else record.state

    def is_active(self, name: str) -> bool:
        """Whether the adapter is served: active, or retiring and not yet demoted."""
        return self.adapter_state(name) in SERVED

    def step_count(self, name: str) -> int:
        """Optimizer steps that the newest registration of *name* has done, those before it was resumed included.

        Raises:
            AdapterError: none is remembered.
        """
        record = self.find(name)
        if record is None:
            raise AdapterError(name, "no registration of this name is remembered; register it first")
        return record.step

    def slot_version(self, slot: int) -> int:
        """How often weights were pushed from a slot. It never goes back, whoever has the slot.

        Raises:
            ConfigError: there is no such slot.
        """
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < self.slots:
            raise ConfigError(f"slot is {slot!r}; there are {self.slots} slots, from 0")
        with self._lock:
            return self._roster.slot_versions[slot]

    def active_adapters(self) -> tuple[str, ...]:
        """Names of the adapters that are served, sorted."""
        return tuple(self.in_state(*SERVED))

    def uncounted_batch(self, adapter: DesiredAdapter) -> int | None:
        """A noted batch that steps a registration whose tensors have changed since its last count.

        Returns:
            Its rollout id, the oldest; None when its count is that of its tensors, as far as is known here.
        """
        with self._lock:
            if adapter.registration_id not in self._ahead:
                return None
            noted = (one for one in self._batches.values() if adapter.name in one.steps)
            return next((one.rollout_id for one in noted if adapter in dict(one.groups)), None)

    def saver_near(self, name: str, directory: Path) -> tuple[str, Path] | None:
        """Another adapter whose checkpoints those of *name* would meet in a directory, which is a resolved one.

        Returns:
            Who holds a slot and saves there, above or below, and its save directory; None when nobody does.
        """
        with self._lock:
            return self._roster.saver_near(name, directory)

    def desired(self) -> dict[str, DesiredAdapter]:
        """What should be loaded: pending and active registrations, by name, sorted."""
        with self._lock:
            return {name: one.adapter for name, one in sorted(self._roster.live().items()) if one.state in WANTED}

    def in_state(self, *states: AdapterState) -> dict[str, AdapterRecord]:
        """The newest registration of each name, where it is in one of *states*; by name, sorted."""
        with self._lock:
            live = self._roster.live()
            past = self._roster.all_completed() if AdapterState.COMPLETED in states else ()
            found = {one.adapter.name: one for one in past if one.adapter.name not in live}
            found |= {name: one for name, one in live.items() if one.state in states}
            return dict(sorted(found.items()))

    def snapshot(self) -> RegistrySnapshot:
        """Everything, at this moment."""
        with self._lock:
            return RegistrySnapshot(
                adapters=dict(sorted(self._roster.live().items())),
                completed=tuple(self._roster.all_completed()),
                slot_versions=tuple(self._roster.slot_versions),
                free_slots=self._roster.free_slots(),
                next_registration_id=self._roster.next_id,
                batches=tuple(self._batches.values()),
                uncounted=tuple(sorted(self._ahead)),
                unaccounted=tuple(sorted(self._unaccounted)),
            )

    def _decide(self, name: str, event: AdapterEvent) -> AdapterState:
        """The state that *event* leads to.

        Raises:
            AdapterRefused: it leads nowhere.
        """
        record = self._roster.newest(as_name(name))
        state, trainable = (None, True) if record is None else (record.state, record.settings.trainable)
        decision = decide_adapter(state, event, trainable=trainable)
        if isinstance(decision, AdapterRefusal):
            raise AdapterRefused(name, decision)
        return decision

    def _held(self, name: str, event: AdapterEvent) -> AdapterRecord:
        """The registration that *event*, which does not move it, happens to.

        Raises:
            AdapterRefused: it may not.
        """
        self._decide(name, event)
        return self._roster.live()[name]
