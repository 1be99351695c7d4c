"""The parts of one trainer that effects and facts share. No part has a handle on the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from lifecycle.adapters.protocol import AdapterHost, ChoosesAdapters
from lifecycle.cleanup import CleanUp
from lifecycle.config import LifecycleConfig
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import UnreadableTensor
from lifecycle.memory.gradients import Gradients
from lifecycle.memory.inventory import Inventory
from lifecycle.memory.layout import Layout
from lifecycle.memory.optimizer_state import OptimizerState
from lifecycle.memory.residue import ResidueHistory
from lifecycle.memory.slot_state import SlotState
from lifecycle.outcome import EngineOutcome
from lifecycle.probes import ProbeBook
from lifecycle.process_groups import ProcessGroups
from lifecycle.saver import Backup, MemorySaver
from lifecycle.transition.fences import Engines
from lifecycle.transport import Receivers
from lifecycle.weights.door import Door
from lifecycle.weights.frozen_file import FrozenFile
from lifecycle.weights.leases import LeaseBook
from lifecycle.weights.notes import Notes
from lifecycle.weights.snapshots import SnapshotStore
from lifecycle.weights.versions import VersionBook
from states import (
    ACTOR,
    BUFFERS,
    FROZEN_BASE,
    TRAINABLE_BASE,
    Facts,
    Read,
    Source,
    Step,
    TrainerState,
    adapter_group,
)


@dataclass
class Runtime:
    """What changes from event to event and is neither bytes nor versions.

    Attributes:
        active_model: whose bytes are in live memory.
        step: adapters of the step that is open, None when none is.
        opened: how many steps were opened: the number of the one that is open.
        opener: the thread that opened it.
        loads: the open step loads a checkpoint: it may change everything.
        references: the reference() blocks that are open.
        accumulated: content groups with gradients of an accumulation that is under way.
        outside: content groups that an optimizer stepped while no step was open; whether they have their new id.
        origin: the state a reconcile under way left.
        engines: what is known of the rollout engines besides what they say.
        probes: the tokens that were recorded of versions, to compare with those of engines.
        receivers: the engines that were sent something through buffers of the trainer.
        owed: an undo that failed and has bytes that nobody else has; recover finishes it first.
    """

    active_model: str = ACTOR
    step: tuple[str, ...] | None = None
    opened: int = 0
    opener: int = 0
    loads: bool = False
    references: int = 0
    accumulated: frozenset[str] = frozenset()
    outside: dict[str, bool] = field(default_factory=dict)
    origin: TrainerState | None = None
    engines: Engines = field(default_factory=Engines)
    probes: ProbeBook = field(default_factory=ProbeBook)
    receivers: Receivers = field(default_factory=Receivers)
    owed: Callable[[], None] | None = None


@dataclass
class Parts:
    """Everything that one trainer's effects touch.

    Attributes:
        ignored_files: backup files that were in the disk directory before this trainer.
        on_disk: tags that have a file of their own by now, which the next pause writes again.
        chooser: the adapters, where they choose the one that a forward pass uses; None elsewhere.
    """

    config: LifecycleConfig
    saver: MemorySaver
    inventory: Inventory
    layout: Layout
    snapshots: SnapshotStore
    file: FrozenFile
    door: Door
    gradients: Gradients
    moments: OptimizerState
    slots: SlotState
    adapters: AdapterHost | None
    groups: ProcessGroups | None
    versions: VersionBook = field(default_factory=VersionBook)
    leases: LeaseBook = field(default_factory=LeaseBook)
    notes: Notes = field(default_factory=Notes)
    residue: ResidueHistory = field(default_factory=ResidueHistory)
    runtime: Runtime = field(default_factory=Runtime)
    ignored_files: tuple[str, ...] = ()
    on_disk: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Clean-ups are those of this trainer, its saver is shared. What the host can do is slow to ask: once."""
        self.cleanup = CleanUp(self.saver)
        self.chooser = self.adapters if isinstance(self.adapters, ChoosesAdapters) else None

    def touched(self, adapters: Iterable[str], *, loads: bool = False) -> tuple[str, ...]:
        """The content groups that a step of these adapters changes; a step that loads a checkpoint, all of them."""
        if loads or self.runtime.loads:
            return tuple(self.inventory.groups())
        always = (group for group in (TRAINABLE_BASE, BUFFERS) if group in self.inventory.base)
        return (*always, *map(adapter_group, sorted(adapters)))

    def parameter_names(self, groups: Iterable[str]) -> tuple[str, ...]:
        """The trainable tensors of these content groups."""
        held = self.inventory.groups()
        return tuple(name for group in groups for name in held.get(group, {}) if group != BUFFERS)

    def forget_digests(self) -> None:
        """Drop the digests of versions that neither the trainer nor a snapshot holds, and probes of old versions."""
        store = self.snapshots
        self.versions.forget_digests(one for tag in store.backup_tags for one in store.versions(tag).values())
        self.runtime.probes.forget(self.versions.wanted)

    def backup_kind(self, tensor: Tensor) -> Backup | None:
        """What a pause does with the tensor's bytes, None outside any region."""
        tag = self.saver.tag_of(tensor)
        return None if tag is None else self.saver.tags()[tag].backup

    def own_bytes(self, group: str) -> dict[str, Tensor]:
        """The readable and writable bytes of a whole group in the trainer's own memory."""
        return {name: self.door.own_bytes(name, one) for name, one in self.inventory.groups()[group].items()}


class OwnMemory:
    """The trainer's own memory as the snapshots see it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def versions(self) -> Mapping[str, int | None]:
        """Version of the bytes that the trainer's memory holds, by content group."""
        return {group: self._parts.versions.region.get(group) for group in self._parts.inventory.groups()}

    def names(self, group: str) -> tuple[str, ...]:
        """Tensor names of a group."""
        return tuple(self._parts.inventory.groups()[group])

    def size_bytes(self, group: str) -> int:
        """Bytes of all tensors of a group."""
        return sum(one.numel() * one.element_size() for one in self._parts.inventory.groups()[group].values())

    def own_bytes(self, group: str, name: str) -> Tensor:
        """Readable and writable bytes of one tensor."""
        return self._parts.door.own_bytes(name, self._parts.inventory.groups()[group][name])

    def written(self, group: str, version: int | None) -> None:
        """The group's bytes now are this version."""
        parts = self._parts
        parts.versions.region[group] = version
        if version is not None and parts.notes.open and parts.notes.of(group, version) is None:
            parts.notes.take(group, version, parts.own_bytes(group))  # other bytes, on purpose: these are to come back

    def lends(self, group: str, version: int | None) -> bool:
        """Whether this version of the frozen base stays readable without a copy, paused or not."""
        parts = self._parts
        if group != FROZEN_BASE or version is None:
            return False
        if parts.file.version == version == parts.versions.wanted.get(group):  # another one is let go of at a commit
            return True
        kinds = {parts.backup_kind(one) for one in parts.inventory.base[group].values() if one.numel()}
        return parts.versions.region.get(group) == version and kinds <= {None, Backup.CPU}

    def lent(self, holder: str, group: str, version: int) -> Mapping[str, Tensor]:
        """The tensors of a version, from the trainer's own memory or its base file, under a lease that is closed."""
        parts = self._parts
        held = parts.inventory.groups()[group]
        if parts.file.version == version:
            tensor = parts.file.pin(version)
            return {name: tensor(name) for name in held}
        if parts.versions.region.get(group) != version:
            raise UnreadableTensor(next(iter(held)), f"version {version} of {group} is not in the trainer's memory")
        live = all(parts.door.is_live(one) for one in held.values())
        read = Read(group, Source.LIVE if live else Source.SAVER_BACKUP, version)
        with parts.leases.open(holder, {name: (one, read) for name, one in held.items()}, parts.door.read) as lease:
            return {name: lease[name] for name in held}


@dataclass(frozen=True)
class Request:
    """What an event is asked with.

    Attributes:
        adapters: the adapters of a step.
        loads: the step loads a checkpoint.
        target: the model to switch to.
        engines: the engines to update.
        keeps_partial: a reconcile keeps what succeeded when some of its adapters fail.
    """

    adapters: tuple[str, ...] = ()
    loads: bool = False
    target: str = ACTOR
    engines: tuple[RolloutEngine, ...] = ()
    keeps_partial: bool = False


Undo = Callable[[], None]


@dataclass
class Work:
    """One transition under way: what was decided, and what its effects report.

    Attributes:
        step: the decision.
        facts: the record it was decided on; effects carry out that plan and gather no other.
        request: what the event was asked with.
        moved: bytes copied so far, by kind.
        details: what was done, for outcome and log.
        on_commit: run once the state has moved; must not fail.
        engines: what became of each engine of a push so far, by name; part of the details too.
        remarks: what is worth a record of its own once the state has moved: note and keys.
        paused: the tags that this transition has paused.
        used_before_bytes: device bytes in use before that, None when it cannot be asked.
    """

    step: Step
    facts: Facts
    request: Request
    moved: Counter[str] = field(default_factory=Counter)
    details: dict[str, object] = field(default_factory=dict)
    engines: dict[str, EngineOutcome] = field(default_factory=dict)
    on_commit: list[Callable[[], None]] = field(default_factory=list)
    remarks: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    used_before_bytes: int | None = None

    @property
    def moved_bytes(self) -> int:
        """Bytes copied so far, of every kind."""
        return self.moved.total()

    def count(self, kind: str, count_bytes: int) -> None:
        """Add to the bytes moved.

        Args:
            kind: what was moved: ``backup``, ``restore``, ``base-file-write``, ``base-file-read``, ``snapshot``,
                ``gradients``, ``adapters`` or ``sync``.
            count_bytes: how many.
        """
        if count_bytes:
            self.moved[kind] += count_bytes


class UndoFailed(Exception):
    """An effect failed and could not take back what it had done itself. The runner faults the trainer.

    Attributes:
        cause: why the effect failed.
        undo_error: why its undo failed.
    """

    def __init__(self, cause: BaseException, undo_error: BaseException) -> None:
        super().__init__(f"{cause}; its undo: {undo_error}")
        self.cause = cause
        self.undo_error = undo_error


@contextmanager
def undone_by(undo: Undo) -> Iterator[None]:
    """Makes a block all or nothing: if it fails, *undo* runs before the error goes on.

    Raises:
        UndoFailed: the undo failed too.
    """
    try:
        yield
    except BaseException as error:
        try:
            undo()
        except BaseException as undo_error:  # noqa: BLE001 - also an interrupt: the trainer is faulted
            raise UndoFailed(error, undo_error) from error
        raise


def nothing() -> None:
    """The undo of an effect that leaves no trace."""
