"""The registrations of a registry, found by name, id, slot and save directory without looking through them.

Bookkeeping alone: it decides nothing and locks nothing. Whoever writes a registration has asked the table.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Final

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.settings import AdapterSettings
from lifecycle.adapters.sources import AdapterSource
from states.adapters import AdapterState

COMPLETED_KEPT: Final = 1024
"""How many completed registrations are remembered; the oldest are forgotten."""


class Roster:
    """Who holds which slot, and who did.

    Args:
        snapshot: what it begins with.

    Attributes:
        slot_versions: by slot, how often its weights were pushed. They only grow.
        next_id: the id of the next registration. It only grows.
        changes: how often a registration was written. It only grows.
    """

    def __init__(self, snapshot: RegistrySnapshot) -> None:
        self.slot_versions = list(snapshot.slot_versions)
        self.next_id = snapshot.next_registration_id
        self.changes = 0
        self._live = dict(snapshot.adapters)
        self._completed: dict[int, AdapterRecord] = {}
        self._past_ids: dict[str, list[int]] = {}
        self._free = list(snapshot.free_slots)
        heapify(self._free)
        self._saves: dict[Path, str] = {}
        self._below: dict[Path, dict[str, Path]] = {}
        for record in self._live.values():
            self._keep_save(record)
        for record in snapshot.completed:
            self._remember(record)

    @property
    def has_free_slot(self) -> bool:
        """Whether a registration can be added."""
        return bool(self._free)

    def live(self) -> Mapping[str, AdapterRecord]:
        """The registrations that hold a slot, by name. Not a copy."""
        return self._live

    def newest(self, name: str) -> AdapterRecord | None:
        """The registration of *name* that holds a slot, else the one that was completed last."""
        past = self._past_ids.get(name)
        return self._live.get(name) or (self._completed[past[-1]] if past else None)

    def completed(self, registration_id: int) -> AdapterRecord | None:
        """A completed registration that is remembered."""
        return self._completed.get(registration_id)

    def all_completed(self) -> Iterable[AdapterRecord]:
        """Every completed registration that is remembered, oldest first. Not a copy."""
        return self._completed.values()

    def saver_near(self, name: str, save: Path) -> tuple[str, Path] | None:
        """Another adapter than *name* that holds a slot and saves to this directory, above or below it.

        Returns:
            Its name and its save directory; None when there is none.
        """
        for place in (save, *save.parents):
            holder = self._saves.get(place)
            if holder not in (None, name):
                return holder, place
        return next(((holder, at) for holder, at in self._below.get(save, {}).items() if holder != name), None)

    def is_free(self, slot: int) -> bool:
        """Whether nobody holds the slot."""
        return slot in self._free

    def free_slots(self) -> tuple[int, ...]:
        """In the order in which they are given out."""
        return tuple(sorted(self._free))

    def add(self, name: str, state: AdapterState, source: AdapterSource, settings: AdapterSettings) -> DesiredAdapter:
        """Give a new registration its id and the lowest free slot."""
        adapter = DesiredAdapter(name, self.next_id, heappop(self._free))
        self.next_id += 1
        record = AdapterRecord(adapter, state, source, settings=settings, num_step=settings.num_step)
        if source.checkpoint is not None:
            begun = source.checkpoint.origin
            record = replace(record, step=begun.step, start_step=begun.step, source_step=begun.step, resumed_from=begun)
        self._hold(record)
        return adapter

    def put(self, record: AdapterRecord) -> None:
        """Replace what is known of a registration that holds a slot."""
        self.changes += 1
        self._live[record.adapter.name] = record

    def complete(self, name: str, released_from: AdapterState | None) -> AdapterRecord:
        """Take the slot of a registration, and remember it without its source."""
        self.changes += 1
        held = self._live.pop(name)
        self._drop_save(held)
        heappush(self._free, held.adapter.slot)
        record = replace(held, state=AdapterState.COMPLETED, source=None, lost="", released_from=released_from)
        self._remember(record)
        return record

    def revive(self, record: AdapterRecord) -> None:
        """Undo :meth:`complete`: *record* holds its slot again, which is free. Its source is not remembered."""
        self._forget(record.adapter.registration_id)
        self._free.remove(record.adapter.slot)
        heapify(self._free)
        self._hold(replace(record, lost="its slot was released, and its source was forgotten with it"))

    def _hold(self, record: AdapterRecord) -> None:
        self.changes += 1
        self._live[record.adapter.name] = record
        self._keep_save(record)

    def _keep_save(self, record: AdapterRecord) -> None:
        name, save = record.adapter.name, record.settings.save
        if save is not None:
            self._saves[save] = name
            for place in save.parents:
                self._below.setdefault(place, {})[name] = save

    def _drop_save(self, record: AdapterRecord) -> None:
        name, save = record.adapter.name, record.settings.save
        if save is not None:
            del self._saves[save]
            for place in save.parents:
                del self._below[place][name]
                if not self._below[place]:
                    del self._below[place]

    def _remember(self, record: AdapterRecord) -> None:
        self._completed[record.adapter.registration_id] = record
        insort(self._past_ids.setdefault(record.adapter.name, []), record.adapter.registration_id)
        while len(self._completed) > COMPLETED_KEPT:
            self._forget(next(iter(self._completed)))

    def _forget(self, registration_id: int) -> None:
        name = self._completed.pop(registration_id).adapter.name
        self._past_ids[name].remove(registration_id)
        if not self._past_ids[name]:
            del self._past_ids[name]
