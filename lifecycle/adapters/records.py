"""What is remembered: of a registration, of a batch, of everything at one moment, and of what a slot holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lifecycle.adapters.checkpoint import Origin
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.settings import NO_SETTINGS, AdapterSettings
from lifecycle.adapters.sources import AdapterSource
from states.adapters import AdapterState


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """One registration as the registry knows it.

    Attributes:
        adapter: name, registration id and slot.
        state: where it stands.
        source: where its first tensors come from; forgotten when it is completed, None too when it is lost.
        released_from: the state in which a host released it, for the undo of that.
        settings: how it is trained.
        step: optimizer steps it has done.
        start_step: the step it began with; ``num_step`` counts from here.
        source_step: the step that the tensors of its source have.
        accumulated_groups: prompt groups trained since its last optimizer step.
        num_step: steps after which it is deregistered, given or resolved; None while it is not known.
        resumed_from: the registration, of an earlier run or of this one, whose checkpoint it began with.
        lost: why its tensors cannot be loaded from its source any more; empty when they can.
        changed: whether a trainer changed its tensors since they were loaded, whoever counts its steps.
    """

    adapter: DesiredAdapter
    state: AdapterState
    source: AdapterSource | None
    released_from: AdapterState | None = None
    settings: AdapterSettings = NO_SETTINGS
    step: int = 0
    start_step: int = 0
    source_step: int = 0
    accumulated_groups: int = 0
    num_step: int | None = None
    lost: str = ""
    resumed_from: Origin | None = None
    changed: bool = False

    @property
    def has_trained(self) -> bool:
        """Whether its tensors are no longer those of its source."""
        return self.changed or self.step != self.source_step


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What a batch consists of, remembered until it is trained.

    Attributes:
        rollout_id: which batch.
        groups: (registration, prompt groups) of each adapter in it, by name.
        steps: names of the adapters whose optimizer step this batch completes, sorted.
    """

    rollout_id: int
    groups: tuple[tuple[DesiredAdapter, int], ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupMismatch:
    """An optimizer step over another number of prompt groups than the adapter's ``rollout_batch_size``.

    Attributes:
        adapter: its name.
        groups: prompt groups that were accumulated.
        rollout_batch_size: how many there should have been.
    """

    adapter: str
    groups: int
    rollout_batch_size: int


@dataclass(frozen=True, slots=True)
class TrainedBatch:
    """What came of a batch that was trained. All names sorted.

    Attributes:
        stepped: adapters that have done an optimizer step.
        ended: those among them that have reached ``num_step`` and were deregistered.
        mismatched: those among them whose groups were not their ``rollout_batch_size``.
        skipped: adapters of the batch whose registration has ended since; nothing was counted for them.
    """

    stepped: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    mismatched: tuple[GroupMismatch, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """Everything the registry holds at one moment, in plain values that can be compared.

    Attributes:
        adapters: registrations that are not completed, by name.
        completed: those that are, oldest first.
        slot_versions: by slot, how often its weights were pushed. They never go back.
        free_slots: in the order in which they will be given out.
        next_registration_id: the id of the next registration.
        batches: what is not trained yet, oldest first.
        uncounted: ids of registrations whose tensors have changed since their last count, sorted. No file has them.
        unaccounted: ids of what the host holds and the registry has never known, sorted. No file has them.
    """

    adapters: Mapping[str, AdapterRecord]
    completed: tuple[AdapterRecord, ...]
    slot_versions: tuple[int, ...]
    free_slots: tuple[int, ...]
    next_registration_id: int
    batches: tuple[BatchRecord, ...] = ()
    uncounted: tuple[int, ...] = ()
    unaccounted: tuple[int, ...] = ()

    def names(self, state: AdapterState) -> tuple[str, ...]:
        """Sorted names of the registrations in *state*."""
        records = self.completed if state is AdapterState.COMPLETED else self.adapters.values()
        return tuple(sorted({one.adapter.name for one in records if one.state is state}))


@dataclass(frozen=True, slots=True)
class LoadedAdapter(DesiredAdapter):
    """What a slot holds, with all that is needed to put the record back.

    Attributes:
        rank: the adapter's own rank.
        alpha: the scale is alpha / rank.
        target_modules: target names of the modules it has.
        trainable: whether it was registered to be trained; remembered here, a registry may be lost.
    """

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    trainable: bool = True
