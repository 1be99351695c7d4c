"""How far each adapter has been trained: counted when a batch has been trained, and never before.

What a batch consists of is noted before it is trained. A train call that fails or is tried again changes
nothing, and a batch is counted once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from lifecycle.adapters.given import as_names
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.reading import RegistryReader
from lifecycle.adapters.records import AdapterRecord, BatchRecord, GroupMismatch, TrainedBatch
from lifecycle.adapters.settings import is_count
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterEvent, AdapterRefusal, AdapterState, decide_adapter

BATCHES_KEPT: Final = 16
"""How many batches that were not trained yet are remembered; the oldest are forgotten."""


class StepCounts(RegistryReader, ABC):
    """The part of a registry that counts steps. Every method may be called from any thread."""

    def record_batch_adapters(self, rollout_id: int, groups: Mapping[str, int], step_names: Iterable[str] = ()) -> None:
        """Note what a batch consists of, before it is trained. The newest 16 are remembered.

        Args:
            rollout_id: which batch; one that is noted already is replaced.
            groups: prompt groups of each adapter in it, at least 1.
            step_names: adapters whose optimizer step this batch completes.

        Raises:
            ConfigError: *rollout_id* is no integer of at least 0, *groups* maps no names, or
                *step_names* is no list of names.
            AdapterError: an adapter was never served, is frozen, has no groups, or steps without being in the batch.
        """
        _check_rollout_id(rollout_id)
        if not isinstance(groups, Mapping) or not all(isinstance(name, str) for name in groups):
            raise ConfigError(f"batch {rollout_id}: groups is {groups!r}; give a mapping of adapter names to numbers")
        steps = as_names("step_names", step_names)
        for name in steps:
            if name not in groups:
                raise AdapterError(name, f"it is to step with batch {rollout_id}, in which it has no groups")
        with self._lock:
            found = [(self._held(name, AdapterEvent.BATCH_TRAINED).adapter, groups[name]) for name in sorted(groups)]
            for adapter, count in found:
                if not is_count(count, 1):
                    raise AdapterError(adapter.name, f"it has {count!r} groups; give an integer of at least 1")
            self._changes += 1
            self._batches.pop(rollout_id, None)
            self._batches[rollout_id] = BatchRecord(rollout_id, tuple(found), steps)
            while len(self._batches) > BATCHES_KEPT:
                del self._batches[next(iter(self._batches))]

    def mark_batch_trained(self, rollout_id: int) -> TrainedBatch:
        """Count a batch that was trained. One that is not noted, or was counted already, changes nothing.

        An adapter that has done its ``num_step`` is deregistered. Registrations that ended since the batch
        was noted are skipped: a name that was registered anew inherits nothing.

        Returns:
            Who stepped, who has ended, whose groups were not its ``rollout_batch_size``, and who was skipped.

        Raises:
            ConfigError: *rollout_id* is no integer of at least 0.
        """
        _check_rollout_id(rollout_id)
        with self._lock:
            batch = self._batches.pop(rollout_id, None)
            if batch is None:
                return TrainedBatch()
            self._changes += 1
            skipped, mismatched, ended = [], [], []
            for adapter, groups in batch.groups:
                record = self._roster.live().get(adapter.name)
                if record is None or not _may_count(record, adapter):
                    skipped.append(adapter.name)
                    continue
                record = replace(record, accumulated_groups=record.accumulated_groups + groups)
                if adapter.name in batch.steps:
                    mismatched += _mismatches(record)
                    record = replace(record, step=record.step + 1, accumulated_groups=0)
                    self._ahead.discard(adapter.registration_id)
                    if _is_at_its_end(record):
                        ended.append(adapter.name)
                self._roster.put(record)
            for name in ended:
                self.deregister(name)
            stepped = tuple(name for name in batch.steps if name not in skipped)
            return TrainedBatch(stepped, tuple(ended), tuple(mismatched), tuple(skipped))

    @abstractmethod
    def deregister(self, name: str) -> None:
        """Retire an adapter.

        Raises:
            AdapterError: it is not registered, or retiring already.
        """

    def resolve_num_step(self, name: str, dataset_rows: int) -> int:
        """Turn epochs into optimizer steps, now that the size of the data is known.

        Nothing changes when the number of steps is known already. An adapter with neither ``num_step`` nor
        ``num_epoch`` is trained for one epoch.

        Args:
            name: a registration that holds a slot.
            dataset_rows: prompts in its data, after filtering.

        Returns:
            The steps: epochs times rows, divided by ``rollout_batch_size`` and rounded down, at least 1.

        Raises:
            AdapterError: it holds no slot, *dataset_rows* is no integer of at least 1, or it has no
                ``rollout_batch_size``.
        """
        with self._lock:
            record = self._held(name, AdapterEvent.RESOLVE_NUM_STEP)
            if record.num_step is not None:
                return record.num_step
            if not is_count(dataset_rows, 1):
                raise AdapterError(name, f"dataset_rows is {dataset_rows!r}; give an integer of at least 1")
            size = record.settings.rollout_batch_size
            if size is None:
                raise AdapterError(
                    name, "epochs cannot be turned into steps without rollout_batch_size; register it so"
                )
            num_step = max(1, (record.settings.num_epoch or 1) * dataset_rows // size)
            self._roster.put(replace(record, num_step=num_step))
            return num_step

    def set_step(self, name: str, step: int) -> None:
        """Say that its source has the tensors of *step*: it counts on from there, and so does its ``num_step``.

        Raises:
            AdapterError: it holds no slot, or *step* is no integer of at least 0.
        """
        if not is_count(step, 0):
            raise AdapterError(name, f"step is {step!r}; give an integer of at least 0")
        with self._lock:
            record = self._held(name, AdapterEvent.SET_STEP)
            self._ahead.discard(record.adapter.registration_id)
            self._roster.put(replace(record, step=step, start_step=step, source_step=step, changed=False))


def _check_rollout_id(rollout_id: object) -> None:
    if not is_count(rollout_id, 0):
        raise ConfigError(f"rollout_id is {rollout_id!r}; give an integer of at least 0")


def _may_count(record: AdapterRecord, adapter: DesiredAdapter) -> bool:
    if record.adapter.registration_id != adapter.registration_id:
        return False
    decision = decide_adapter(record.state, AdapterEvent.BATCH_TRAINED, trainable=record.settings.trainable)
    return not isinstance(decision, AdapterRefusal)


def _mismatches(record: AdapterRecord) -> list[GroupMismatch]:
    size, groups = record.settings.rollout_batch_size, record.accumulated_groups
    return [] if size in (None, groups) else [GroupMismatch(record.adapter.name, groups, size)]


def _is_at_its_end(record: AdapterRecord) -> bool:
    """Only an active one is ended: another is on its way out already."""
    if record.num_step is None or record.state is not AdapterState.ACTIVE:
        return False
    return record.step - record.start_step >= record.num_step
