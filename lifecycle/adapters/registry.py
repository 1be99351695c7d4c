"""The registry of adapters: what should be loaded, in which slot, and how far each registration is.

In memory, one per trainer. It decides with :func:`states.adapters.decide_adapter` and touches no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Final

from torch import Tensor

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.sources import AdapterSource, check_name, make_source
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterEvent, AdapterRefusal, AdapterState, decide_adapter

COMPLETED_KEPT: Final = 1024
"""How many completed registrations are remembered; the oldest are forgotten."""

_SERVED: Final = (AdapterState.ACTIVE, AdapterState.RETIRING)
_WANTED: Final = (AdapterState.PENDING, AdapterState.ACTIVE)


class AdapterRegistry:
    """Which adapters there should be. Every method may be called from any thread.

    Args:
        slots: how many adapters there can be at a time.

    Raises:
        ConfigError: *slots* is no integer of at least 1.
    """

    def __init__(self, slots: int) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ConfigError(f"slots is {slots!r}; a registry has at least 1 slot")
        self._lock = RLock()
        self._live: dict[str, AdapterRecord] = {}
        self._completed: dict[int, AdapterRecord] = {}
        self._slot_versions = [0] * slots
        self._next_id = 1
        self._check: Callable[[str, AdapterSource], object] | None = None
        self._loaded: Callable[[], Mapping[str, DesiredAdapter]] | None = None

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self._slot_versions)

    def connect(
        self, check: Callable[[str, AdapterSource], object], loaded: Callable[[], Mapping[str, DesiredAdapter]]
    ) -> None:
        """Called by the host that owns the slots: *check* refuses what does not fit, *loaded* says what is in them."""
        self._check, self._loaded = check, loaded

    def register(
        self,
        name: str,
        path: str | Path | None = None,
        *,
        tensors: Mapping[str, Tensor] | None = None,
        rank: int | None = None,
        alpha: float | None = None,
        target_modules: Sequence[str] | None = None,
        seed: int = 0,
    ) -> DesiredAdapter:
        """Register an adapter in the lowest free slot. The next reconcile loads it.

        Args:
            name: letters, digits, dot, underscore and dash, at most 128 characters.
            path: a PEFT directory to load. Without *path* and *tensors* the adapter starts fresh: random A, zero B.
            tensors: under PEFT names; needs *rank*.
            rank: LoRA rank; for a fresh adapter that of the slots unless given.
            alpha: LoRA alpha; equal to the rank unless given.
            target_modules: which modules a fresh adapter has; all that have slots unless given.
            seed: of a fresh adapter.

        Raises:
            AdapterError: bad name or arguments, a directory or tensors that do not fit the slots, the name is
                taken or still being cleaned up, or no slot is free. Nothing was changed.
        """
        source = make_source(check_name(name), path, tensors, rank, alpha, target_modules, seed)
        if self._check is not None:
            self._check(name, source)
        with self._lock:
            state = self._decide(name, AdapterEvent.REGISTER)
            free = self._free_slots()
            if not free:
                raise AdapterError(name, f"no slot is free ({self.slots} in use); deregister another one and reconcile")
            adapter = DesiredAdapter(name, self._next_id, free[0])
            self._next_id += 1
            self._live[name] = AdapterRecord(adapter, state, source)
            return adapter

    def deregister(self, name: str) -> None:
        """Retire an adapter. The next reconcile unloads it; until then it is served.

        One that the connected host does not hold has nothing to unload; its slot is free at once.

        Raises:
            AdapterError: it is not registered, or retiring already.
        """
        with self._lock:
            self._move(name, AdapterEvent.DEREGISTER)
            if self._is_idle(name):
                self._move(name, AdapterEvent.RETIRE)
                self.free_slot(name)

    def retire_adapters(self) -> tuple[str, ...]:
        """Demote every retiring adapter: it is served no more, and waits for its slot to be cleared.

        One that the connected host does not hold has nothing to clear; its slot is free at once.

        Returns:
            The names that were demoted, sorted.
        """
        with self._lock:
            names = tuple(sorted(name for name, one in self._live.items() if one.state is AdapterState.RETIRING))
            for name in names:
                self._move(name, AdapterEvent.RETIRE)
                if self._is_idle(name):
                    self.free_slot(name)
            return names

    def free_slot(self, name: str) -> int:
        """The slot of an adapter in clean-up has been cleared: it may be given out again.

        Returns:
            The slot.

        Raises:
            AdapterError: the adapter is not in clean-up.
        """
        with self._lock:
            self._move(name, AdapterEvent.FREE_SLOT)
            return self._complete(name).adapter.slot

    def release(self, adapter: DesiredAdapter) -> None:
        """A host has cleared this registration's slot: demote it if need be and free the slot.

        Does nothing when this registration is completed already, or wanted (the host's affair).
        """
        with self._lock:
            record = self._live.get(adapter.name)
            if record is None or record.adapter != adapter or record.state in _WANTED:
                return
            if record.state is AdapterState.RETIRING:
                self._move(adapter.name, AdapterEvent.RETIRE)
            self._move(adapter.name, AdapterEvent.FREE_SLOT)
            self._complete(adapter.name, released_from=record.state)

    def reinstate(self, adapter: DesiredAdapter) -> None:
        """Undo of :meth:`release`. Does nothing when it was not released.

        Raises:
            AdapterError: its name or slot has been given to another registration since.
        """
        with self._lock:
            record = self._completed.get(adapter.registration_id)
            if record is None or record.released_from is None:
                return
            if adapter.name in self._live or adapter.slot not in self._free_slots():
                raise AdapterError(adapter.name, f"cannot get slot {adapter.slot} back, it was given out meanwhile")
            del self._completed[adapter.registration_id]
            self._live[adapter.name] = replace(record, state=record.released_from, released_from=None)

    def record_weight_update(self, names: Iterable[str]) -> None:
        """An engine has committed these adapters: pending becomes active, their slots' versions grow by one.

        Names that are unknown or no longer served are skipped: they may have been retired meanwhile.
        """
        with self._lock:
            for name in sorted(set(names)):
                record = self._live.get(name)
                if record is None or record.state is AdapterState.CLEANUP:
                    continue
                self._move(name, AdapterEvent.WEIGHTS_PUSHED)
                self._slot_versions[record.adapter.slot] += 1

    def adapter_state(self, name: str) -> AdapterState | None:
        """Where the newest registration of *name* stands; None when none is remembered."""
        record = self.find(name)
        return None if record is None else record.state

    def find(self, name: str) -> AdapterRecord | None:
        """The newest registration of *name*; None when none is remembered."""
        with self._lock:
            past = (one for one in reversed(self._completed.values()) if one.adapter.name == name)
            return self._live.get(name) or next(past, None)

    def is_active(self, name: str) -> bool:
        """Whether the adapter is served: active, or retiring and not yet demoted."""
        return self.adapter_state(name) in _SERVED

    def active_adapters(self) -> tuple[str, ...]:
        """Names of the adapters that are served, sorted."""
        with self._lock:
            return tuple(sorted(name for name, one in self._live.items() if one.state in _SERVED))

    def desired(self) -> dict[str, DesiredAdapter]:
        """What should be loaded: pending and active registrations, by name, sorted."""
        with self._lock:
            return {name: one.adapter for name, one in sorted(self._live.items()) if one.state in _WANTED}

    def snapshot(self) -> RegistrySnapshot:
        """Everything, at this moment."""
        with self._lock:
            return RegistrySnapshot(
                adapters=dict(sorted(self._live.items())),
                completed=tuple(self._completed.values()),
                slot_versions=tuple(self._slot_versions),
                free_slots=tuple(self._free_slots()),
                next_registration_id=self._next_id,
            )

    def _is_idle(self, name: str) -> bool:
        """Whether a host is connected that does not hold this registration."""
        if self._loaded is None:
            return False
        held = self._loaded().get(name)
        return held is None or held.registration_id != self._live[name].adapter.registration_id

    def _free_slots(self) -> list[int]:
        taken = {one.adapter.slot for one in self._live.values()}
        return [slot for slot in range(self.slots) if slot not in taken]

    def _decide(self, name: str, event: AdapterEvent) -> AdapterState:
        decision = decide_adapter(self.adapter_state(name), event)
        if isinstance(decision, AdapterRefusal):
            raise AdapterError(name, f"cannot {event}: {decision.because}; {decision.remedy}")
        return decision

    def _move(self, name: str, event: AdapterEvent) -> None:
        state = self._decide(name, event)
        self._live[name] = replace(self._live[name], state=state)

    def _complete(self, name: str, released_from: AdapterState | None = None) -> AdapterRecord:
        """Remember a registration whose slot was freed, without its source."""
        record = replace(self._live.pop(name), source=None, released_from=released_from)
        self._completed[record.adapter.registration_id] = record
        while len(self._completed) > COMPLETED_KEPT:
            del self._completed[next(iter(self._completed))]
        return record
