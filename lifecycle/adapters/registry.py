"""The registry of adapters: what should be loaded, in which slot, and how far each registration is.

In memory, one per trainer, saved and loaded on request. It decides with
:func:`states.adapters.decide_adapter` and touches no tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Self

from torch import Tensor

from lifecycle.adapters.custody import Custody
from lifecycle.adapters.given import as_path, as_registration
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.reading import WANTED
from lifecycle.adapters.records import RegistrySnapshot
from lifecycle.adapters.refusals import NoFreeSlot, SaveDirectoryTaken
from lifecycle.adapters.settings import NO_SETTINGS, AdapterSettings, check_settings
from lifecycle.adapters.sources import check_name, make_source
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterEvent, AdapterState


class AdapterRegistry(Custody):
    """Which adapters there should be. Every method may be called from any thread.

    Args:
        slots: how many adapters there can be at a time.
        saved: what another registry held, to go on from there; see :meth:`load`.

    Raises:
        ConfigError: *slots* is no integer of at least 1, or not the number of *saved*.
    """

    def __init__(self, slots: int, *, saved: RegistrySnapshot | None = None) -> None:
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ConfigError(f"slots is {slots!r}; a registry has at least 1 slot")
        if saved is not None and not isinstance(saved, RegistrySnapshot):
            raise ConfigError(f"saved is {type(saved).__name__}; give the snapshot() of a registry")
        if saved is not None and len(saved.slot_versions) != slots:
            raise ConfigError(f"slots is {slots}, the saved registry has {len(saved.slot_versions)}")
        super().__init__(saved or RegistrySnapshot({}, (), (0,) * slots, tuple(range(slots)), 1))
        self._saving = Lock()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The registry that :meth:`save` has written: ids, slots and their versions, states, counts, what is completed.

        A registration whose tensors are not those of its source any more is refused by name when it is to be
        loaded, until :meth:`resupply` gives it the right ones.

        Raises:
            RegistryFileError: the file is missing, damaged, of another schema, contradicts itself, or is no plain file.
            ConfigError: *path* is no path.
        """
        from lifecycle.adapters.saved import read_registry  # noqa: PLC0415 - needs msgspec

        saved = read_registry(as_path("path", path, kind="file"))
        return cls(len(saved.slot_versions), saved=saved)

    def save(self, path: str | Path) -> None:
        """Write everything to a file of mode 0600: under a temporary name beside it, synced, and renamed.

        A crash at any point leaves the old file or the new one. Tensors are not in it: of a registration that
        was given tensors, and of one that has trained, the file says that its source is lost.

        Raises:
            RegistryFileError: it cannot be written. The old file is as it was.
            ConfigError: *path* is no path.
        """
        from lifecycle.adapters.saved import write_registry  # noqa: PLC0415 - needs msgspec

        place = as_path("path", path, kind="file")
        with self._saving:  # the last to write is the last that looked
            write_registry(place, self.snapshot())

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
        settings: AdapterSettings = NO_SETTINGS,
        resume: str | Path | None = None,
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
            settings: how it is trained.
            resume: checkpoints (the newest whole one is taken), or one ``step_N`` of them; given with *settings* alone.

        Raises:
            AdapterError: something given is bad or does not fit, the name is taken or still being cleaned up, another
                adapter saves to the same directory, above or below it, or no slot is free. Nothing was changed.
        """
        source = make_source(check_name(name), path, tensors, rank, alpha, target_modules, seed, resume)
        settings = check_settings(name, settings)
        if self._check is not None:
            self._check(name, source)
        with self._lock:
            return self._roster.add(name, self._admitted(name, settings), source, settings)

    def _admitted(self, name: str, settings: AdapterSettings) -> AdapterState:
        """The state that a new registration begins in, if there can be one."""
        state = self._decide(name, AdapterEvent.REGISTER)
        self._refuse_a_shared_save_directory(name, settings)
        if not self._roster.has_free_slot:
            raise NoFreeSlot(name, self.slots)
        return state

    def deregister(self, name: str) -> None:
        """Retire an adapter. The next reconcile unloads it; until then it is served.

        One that the connected host does not hold has nothing to unload; its slot is free at once.

        Raises:
            AdapterError: it is not registered, or retiring already.
        """
        with self._lock:
            self._move(name, AdapterEvent.DEREGISTER)
            if self._idle()(self._roster.live()[name]):
                self._leave(name)

    def retire_adapters(self) -> tuple[str, ...]:
        """Demote every retiring adapter: it is served no more, and waits for its slot to be cleared.

        One that the connected host does not hold has nothing to clear; its slot is free at once.

        Returns:
            The names that were demoted, sorted.
        """
        with self._lock:
            records, is_idle = self.in_state(AdapterState.RETIRING), self._idle()
            for name, record in records.items():
                self._move(name, AdapterEvent.RETIRE)
                if is_idle(record):
                    self._leave(name)
            return tuple(records)

    def free_slot(self, name: str) -> int:
        """The slot of an adapter in clean-up has been cleared: it may be given out again.

        Returns:
            The slot.

        Raises:
            AdapterError: the adapter is not in clean-up.
        """
        with self._lock:
            self._decide(name, AdapterEvent.FREE_SLOT)
            return self._leave(name).adapter.slot

    def release(self, adapter: DesiredAdapter) -> None:
        """A host has cleared this registration's slot: demote it if need be and free the slot.

        Does nothing when this registration is completed already, or wanted (the host's affair).

        Raises:
            AdapterError: it is no registration.
        """
        adapter = as_registration(adapter)
        with self._lock:
            record = self._roster.live().get(adapter.name)
            if record is not None and record.adapter == adapter and record.state not in WANTED:
                self._leave(adapter.name, released_from=record.state)

    def reinstate(self, adapter: DesiredAdapter) -> None:
        """Undo of :meth:`release`. Does nothing when it was not released.

        Raises:
            AdapterError: its name, slot or save directory has been given to another registration since, or it is none.
        """
        adapter = as_registration(adapter)
        with self._lock:
            record = self._roster.completed(adapter.registration_id)
            if record is None or record.released_from is None:
                return
            if adapter.name in self._roster.live() or not self._roster.is_free(adapter.slot):
                raise AdapterError(adapter.name, f"cannot get slot {adapter.slot} back, it was given out meanwhile")
            self._refuse_a_shared_save_directory(adapter.name, record.settings)
            self._roster.revive(replace(record, state=record.released_from, released_from=None))

    def record_weight_update(self, adapters: Iterable[str | DesiredAdapter]) -> tuple[str, ...]:
        """An engine has committed these adapters: pending becomes active, their slots' versions grow by one.

        Skipped are names that are unknown or no longer served, which may have been retired meanwhile, and
        registrations (given as such) that a newer one of the name has followed.

        Returns:
            The names that were not skipped, sorted.

        Raises:
            ConfigError: one name instead of several, or something that is no adapter. Nothing was changed.
        """
        is_several = isinstance(adapters, Iterable) and not isinstance(adapters, str)
        given = tuple(adapters) if is_several else ()
        if not is_several or not all(isinstance(one, str | DesiredAdapter) for one in given):
            raise ConfigError(f"{adapters!r} are no adapters; give several, each a name or a registration")
        with self._lock:
            updated = sorted({name for one in given if (name := self._served(one)) is not None})
            for name in updated:
                self._move(name, AdapterEvent.WEIGHTS_PUSHED)
                self._roster.slot_versions[self._roster.live()[name].adapter.slot] += 1
            return tuple(updated)

    def _served(self, given: str | DesiredAdapter) -> str | None:
        """The name of what a push may have been of."""
        name = given if isinstance(given, str) else given.name
        record = self._roster.live().get(name)
        if record is None or record.state is AdapterState.CLEANUP:
            return None
        is_other = isinstance(given, DesiredAdapter) and given.registration_id != record.adapter.registration_id
        return None if is_other else name

    def _refuse_a_shared_save_directory(self, name: str, settings: AdapterSettings) -> None:
        near = None if settings.save is None else self._roster.saver_near(name, settings.save)
        if settings.save is not None and near is not None:
            raise SaveDirectoryTaken(name, settings.save, *near)
