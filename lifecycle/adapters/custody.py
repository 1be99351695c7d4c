"""The registry and the host that owns the slots: what the host holds, and what the registry knows of it.

A registry that was lost, or that is older than what the host holds, must not mean "retire everything".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from lifecycle.adapters.batches import StepCounts
from lifecycle.adapters.given import as_registration
from lifecycle.adapters.protocol import AdapterHost, DesiredAdapter
from lifecycle.adapters.reading import WANTED
from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.roster import Roster
from lifecycle.adapters.sources import AdapterSource, check_name, make_source
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterEvent, AdapterState


class Custody(StepCounts):
    """The part of a registry that faces its host. Every method may be called from any thread."""

    def __init__(self, snapshot: RegistrySnapshot) -> None:
        super().__init__(snapshot)
        self._first_id = snapshot.next_registration_id
        self._check: Callable[[str, AdapterSource], object] | None = None
        self._loaded: Callable[[], Mapping[str, DesiredAdapter]] | None = None

    def connect(
        self, check: Callable[[str, AdapterSource], object], loaded: Callable[[], Mapping[str, DesiredAdapter]]
    ) -> None:
        """Called by the host that owns the slots: *check* refuses what does not fit, *loaded* says what is in them.

        What was on its way out and is in no slot is completed. While the host holds adapters that this registry
        has never known, no reconcile is begun (guard ``registry-knows-what-is-loaded``): load the saved registry
        instead, or :meth:`declare_complete`.

        Raises:
            ConfigError: the host holds adapters of another registry, and ids were given out here already.
        """
        with self._lock:
            if self._loaded is None:
                self._account_for(loaded().values())
            self._check, self._loaded = check, loaded
            for record in list(filter(self._idle(), self._roster.live().values())):
                if record.state not in WANTED:
                    self._leave(record.adapter.name)
                elif record.accumulated_groups:  # its gradients went with the host that held it
                    self._roster.put(replace(record, accumulated_groups=0))

    def unaccounted(self) -> tuple[str, ...]:
        """Adapters that the host holds and this registry has never known, sorted."""
        with self._lock:
            held = self._loaded() if self._unaccounted and self._loaded is not None else {}
            return tuple(sorted(name for name, one in held.items() if one.registration_id in self._unaccounted))

    def declare_complete(self) -> tuple[str, ...]:
        """Say that this registry holds all there should be, if need be nothing: what it never knew may be retired.

        Returns:
            The names of what the next reconcile retires for that, sorted.
        """
        with self._lock:
            names = self.unaccounted()
            self._changes += bool(self._unaccounted)
            self._unaccounted = frozenset()
            return names

    def adopt(self, snapshot: RegistrySnapshot) -> None:
        """Be as another registry was when it gave its :meth:`snapshot`: for ranks that share one registry.

        Local is what faces the host: its checks, and what it holds. Tensors of sources are shared with the snapshot.

        Raises:
            ConfigError: it has another number of slots, or has never known what the host holds. Nothing was changed.
        """
        with self._lock:
            if len(snapshot.slot_versions) != self.slots:
                told = f"the registry has {self.slots} slots, the one to adopt has {len(snapshot.slot_versions)}"
                raise ConfigError(f"{told}; give every rank the same number")
            if strangers := self._strangers(snapshot):
                why = f"the registry to adopt has never known what the host holds: {', '.join(strangers)}"
                raise ConfigError(
                    f"{why}. Load the saved registry where it comes from, or let that rank join the others"
                )
            if self._loaded is None:
                self._first_id = snapshot.next_registration_id
            self._changes += self._roster.changes + 1
            self._roster = Roster(snapshot)
            self._batches = {one.rollout_id: one for one in snapshot.batches}
            self._ahead, self._unaccounted = set(snapshot.uncounted), frozenset(snapshot.unaccounted)

    def refresh(self) -> None:
        """Called before ranks take this registry over: one that is a copy of another looks at that. This is none."""

    def source_of(self, adapter: DesiredAdapter) -> AdapterSource:
        """Where the first tensors of a registration come from.

        Raises:
            AdapterError: the registration has ended, or its source does not have its tensors: they were lost with an
                earlier process, or it has trained since.
        """
        adapter = as_registration(adapter)
        record = self.find(adapter.name)
        if record is None or record.adapter != adapter or record.state is AdapterState.COMPLETED:
            raise AdapterError(adapter.name, "this registration has ended; reconcile again")
        lost = why_lost(record)
        if record.source is None or lost:
            raise AdapterError(adapter.name, f"{lost}; resupply() it, or deregister it")
        return record.source

    def resupply(
        self,
        name: str,
        path: str | Path | None = None,
        *,
        tensors: Mapping[str, Tensor] | None = None,
        rank: int | None = None,
        alpha: float | None = None,
        resume: str | Path | None = None,
    ) -> DesiredAdapter:
        """Give a registration its tensors again, as they are at its present step; it stays the same registration.

        For one whose source was lost with an earlier process. Slots that hold it already are not written.

        Args:
            name: a pending or active adapter.
            path: a PEFT directory.
            tensors: or tensors under PEFT names; needs *rank*.
            rank: LoRA rank of the tensors.
            alpha: LoRA alpha; equal to the rank unless given.
            resume: or a directory of checkpoints, or one in it, of its present step.

        Raises:
            AdapterError: it is neither pending nor active, or what is given does not fit. Nothing was changed.
        """
        name = check_name(name)
        if path is None and tensors is None and resume is None:
            raise AdapterError(name, "nothing to supply it with; give path or tensors, or resume")
        source = make_source(name, path, tensors, rank, alpha, None, 0, resume)
        if self._check is not None:
            self._check(name, source)
        with self._lock:
            record = self._held(name, AdapterEvent.RESUPPLY)
            if source.checkpoint is not None and source.checkpoint.origin.step != record.step:
                told = f"{source.checkpoint.path} is of step {source.checkpoint.origin.step}, it is at {record.step}"
                raise AdapterError(name, f"{told}; set_step() it first")
            self._roster.put(replace(record, source=source, source_step=record.step, lost="", changed=False))
            return record.adapter

    def note_changed(self, adapters: Iterable[DesiredAdapter]) -> None:
        """Called by the trainer: it has changed the tensors of these registrations; their sources have the old ones.

        Steps are not counted by it, see :meth:`mark_batch_trained`. Others than those that hold a slot are skipped.
        """
        with self._lock:
            for adapter in adapters:
                record = self._roster.live().get(adapter.name)
                is_it = record is not None and record.adapter.registration_id == adapter.registration_id
                if record is not None and is_it:
                    self._changes += adapter.registration_id not in self._ahead
                    self._ahead.add(adapter.registration_id)
                    if not record.changed:
                        self._roster.put(replace(record, changed=True))

    def _account_for(self, held: Iterable[DesiredAdapter]) -> None:
        """Note what a host holds that this registry, which has loaded nothing there yet, does not know."""
        unknown = {one.registration_id for one in held if not self._knows(one)}
        if not unknown:
            return
        if self._roster.next_id > self._first_id and max(unknown) >= self._first_id:
            raise ConfigError(
                "the host holds adapters of another registry, and adapters were registered here already: their ids "
                "cannot be told apart. Load the saved registry, or connect before the first registration"
            )
        self._changes += 1
        self._unaccounted = frozenset(unknown)
        self._roster.next_id = max(self._roster.next_id, max(unknown) + 1)

    def _knows(self, held: DesiredAdapter) -> bool:
        """Whether this is a registration that was in the file, or was completed before it was written."""
        if held.registration_id >= self._first_id:
            return False
        live = self._roster.live().get(held.name)
        is_live = live is not None and live.adapter.registration_id == held.registration_id
        return is_live or self._roster.completed(held.registration_id) is not None

    def _strangers(self, snapshot: RegistrySnapshot) -> list[str]:
        """What the host holds that another registry has never known, and has not counted its ids from, sorted."""
        held = {} if self._loaded is None else self._loaded()
        records = (*snapshot.adapters.values(), *snapshot.completed)
        known = {one.adapter.registration_id: one.adapter.name for one in records}
        following = snapshot.next_registration_id
        return sorted(
            name
            for name, one in held.items()
            if known.get(one.registration_id, "" if one.registration_id >= following else name) != name
        )

    def _idle(self) -> Callable[[AdapterRecord], bool]:
        """Whether a host is connected that does not hold a registration; what it holds is asked once."""
        if self._loaded is None:
            return lambda _: False
        held = {one.registration_id for one in self._loaded().values()}
        return lambda record: record.adapter.registration_id not in held

    def _move(self, name: str, event: AdapterEvent) -> None:
        state = self._decide(name, event)
        self._roster.put(replace(self._roster.live()[name], state=state))

    def _leave(self, name: str, released_from: AdapterState | None = None) -> AdapterRecord:
        """Nothing holds the tensors of a retiring adapter, or of one in clean-up: free its slot."""
        if self._roster.live()[name].state is AdapterState.RETIRING:
            self._move(name, AdapterEvent.RETIRE)
        self._decide(name, AdapterEvent.FREE_SLOT)
        self._ahead.discard(self._roster.live()[name].adapter.registration_id)
        return self._roster.complete(name, released_from)


def why_lost(record: AdapterRecord) -> str:
    """Why the tensors of a registration cannot be had from its source any more; empty when they can."""
    if record.source is None or not record.has_trained:
        return record.lost
    told = f"to step {record.step}" if record.step != record.source_step else "without its steps being counted"
    return f"it had trained {told}, and its source has the tensors of step {record.source_step}"


def refuse_ended(host: AdapterHost, adapter: DesiredAdapter) -> None:
    """Refuse a registration that ended while it was loaded. To be asked when the host says that it is loaded.

    Whoever deregisters it from then on finds it there, and its slot is kept until it is cleared. Before, its slot was
    free at once, and an adapter without a registration would be trained and pushed.

    Raises:
        AdapterError: it has ended.
    """
    registry = getattr(host, "registry", None)
    if isinstance(registry, Custody):
        registry.source_of(adapter)


def note_changed(host: AdapterHost | None, names: Iterable[str]) -> None:
    """Tell the host's registry whose tensors a step has changed; a host that keeps its own books is not told."""
    registry = getattr(host, "registry", None)
    if host is not None and isinstance(registry, Custody):
        loaded = host.loaded()
        registry.note_changed(loaded[name] for name in names if name in loaded)


def unaccounted_of(host: AdapterHost | None) -> tuple[str, ...]:
    """What a host holds and its registry has never known; nothing for a host that keeps its own books."""
    registry = getattr(host, "registry", None)
    return registry.unaccounted() if isinstance(registry, Custody) else ()
