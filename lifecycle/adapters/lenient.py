"""The registry as loops written for the multi-LoRA registry of miles call it: method for method, on the strict one.

Where the strict registry refuses, this one answers what those callers rely on: nothing, -1, 0, a
``ValueError`` or a ``RuntimeError``. The rules themselves are the strict registry's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lifecycle.adapters.given import as_names
from lifecycle.adapters.reading import SERVED
from lifecycle.adapters.records import AdapterRecord
from lifecycle.adapters.refusals import AdapterRefused, NoFreeSlot, SaveDirectoryTaken
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.settings import AdapterSettings
from lifecycle.adapters.sources import check_name
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterEvent, AdapterRefusal, AdapterState, decide_adapter

_LOG: Final = logging.getLogger(__name__)
_LIVE: Final = (AdapterState.PENDING, AdapterState.ACTIVE, AdapterState.RETIRING, AdapterState.CLEANUP)
_KEYS: Final = ("save", "num_step", "num_epoch", "rollout_batch_size", "n_samples_per_prompt")


@dataclass(frozen=True, slots=True)
class AdapterView:
    """One registration, as loops read it.

    Attributes:
        name: the adapter's name.
        config: how it is trained; ``num_step`` is the resolved one.
        slot: its slot.
        version: how often the slot's weights were pushed.
        step: optimizer steps it has done.
        accumulated_groups: prompt groups since the last of them.
        registration_id: unique for each registration.
    """

    name: str
    config: AdapterSettings
    slot: int
    version: int
    step: int
    accumulated_groups: int
    registration_id: int


class LenientRegistry:
    """A registry with silent answers. The host is given the strict one.

    Args:
        strict: the registry that does the work.

    Attributes:
        strict: the same.
    """

    def __init__(self, strict: AdapterRegistry) -> None:
        self.strict = strict

    def register(
        self, name: str, config: object = None, *, path: str | Path | None = None, **given: Any
    ) -> dict[str, Any]:
        """Register an adapter.

        Args:
            name: letters, digits, dot, underscore and dash.
            config: any object; read are ``save``, ``num_step``, ``num_epoch``, ``rollout_batch_size``,
                ``n_samples_per_prompt`` and ``trainable``, and without *path* ``rank`` and ``alpha``.
                With both ``num_step`` and ``num_epoch`` the steps count.
            path: a PEFT directory to load.
            given: ``tensors``, ``target_modules`` or ``seed``, as :meth:`AdapterRegistry.register` takes them.

        Returns:
            ``name`` and ``slot``.

        Raises:
            ValueError: the name or the configuration is bad, the name is taken or still cleaning up, or its save
                directory is another adapter's.
            RuntimeError: no slot is free.
        """
        if path is None:
            given |= {"rank": getattr(config, "rank", None), "alpha": getattr(config, "alpha", None)}
        with _in_their_words(name):
            adapter = self.strict.register(name, path, settings=_settings(config), **given)
        return {"name": adapter.name, "slot": adapter.slot}

    def deregister(self, name: str) -> None:
        """Retire an adapter that is pending or active; do nothing for any other name."""
        with suppress(AdapterRefused):
            self.strict.deregister(name)

    def retire_adapters(self) -> list[str]:
        """Demote every retiring adapter; their names, sorted."""
        return list(self.strict.retire_adapters())

    def free_slot(self, name: str) -> int:
        """Free the slot of an adapter in clean-up: the slot, or -1 when it is not in clean-up."""
        try:
            return self.strict.free_slot(name)
        except AdapterRefused:
            return -1

    def adapter_state(self, name: str) -> AdapterState | None:
        """Where the newest registration of *name* stands, None when none is remembered."""
        return self.strict.adapter_state(name)

    def in_state(self, *states: AdapterState) -> dict[str, AdapterRecord]:
        """The newest registration of each name, where it is in one of *states*."""
        return self.strict.in_state(*states)

    def find(self, name: str) -> AdapterRecord | None:
        """The registration of *name* that holds a slot."""
        record = self.strict.find(name)
        return record if record is not None and record.state in _LIVE else None

    def is_active(self, name: str) -> bool:
        """Whether the adapter is served."""
        return self.strict.is_active(name)

    def record_weight_update(self, names: Iterable[str]) -> None:
        """A push has landed: slot versions grow, pending becomes active; names that are not served are skipped."""
        self.strict.record_weight_update(names)

    def record_batch_adapters(self, rollout_id: int, groups: Mapping[str, int], step_names: Iterable[str]) -> None:
        """Note what a batch consists of. Adapters that cannot have been in it are left out.

        Raises:
            ValueError: an adapter steps without being in the batch, or what is given is no number, name or
                mapping.
        """
        steps = set(as_names("step_names", step_names))
        if not isinstance(groups, Mapping):
            raise ConfigError(f"groups is {groups!r}; give a mapping of adapter names to numbers")
        missing = sorted(steps - set(groups))
        if missing:
            raise ValueError(f"step adapters {missing} not present in batch groups")
        with self.strict.unchanged():  # who may train now may still when it is noted
            known = {name: count for name, count in groups.items() if self._may_train(name)}
            self.strict.record_batch_adapters(rollout_id, known, steps & known.keys())

    def mark_batch_trained(self, rollout_id: int) -> list[str]:
        """Count a batch that was trained; the adapters that stepped. A second call changes nothing."""
        trained = self.strict.mark_batch_trained(rollout_id)
        for one in trained.mismatched:
            _LOG.warning(
                "adapter %r stepped over %d groups, its rollout_batch_size is %d",
                one.adapter, one.groups, one.rollout_batch_size,
            )  # fmt: skip
        return list(trained.stepped)

    def resolve_num_step(self, name: str, dataset_rows: int) -> None:
        """Turn epochs into steps; nothing for a name that holds no slot or has no rollout_batch_size."""
        record = self.find(name)
        if record is not None and record.settings.rollout_batch_size is not None:
            with suppress(AdapterRefused):
                self.strict.resolve_num_step(name, dataset_rows)

    def set_step(self, name: str, step: int) -> None:
        """An adapter was resumed at *step*; nothing for a name that holds no slot."""
        with suppress(AdapterRefused):
            self.strict.set_step(name, step)

    def step_count(self, name: str) -> int:
        """Optimizer steps of the registration of *name* that holds a slot, 0 when there is none."""
        record = self.find(name)
        return 0 if record is None else record.step

    def active_adapters(self) -> dict[str, AdapterView]:
        """Views of the adapters that are served, by name."""
        return self._views(*SERVED)

    def snapshot(self) -> dict[str, Any]:
        """Views of pending, active and retiring adapters by name; names of those in clean-up and completed."""
        found: dict[str, Any] = {one.value: self._views(one) for one in (AdapterState.PENDING, *SERVED)}
        return found | {
            one.value: list(self.strict.in_state(one)) for one in (AdapterState.CLEANUP, AdapterState.COMPLETED)
        }

    def _views(self, *states: AdapterState) -> dict[str, AdapterView]:
        snapshot = self.strict.snapshot()
        found = {name: one for name, one in snapshot.adapters.items() if one.state in states}
        return {name: _view(one, snapshot.slot_versions[one.adapter.slot]) for name, one in found.items()}

    def _may_train(self, name: str) -> bool:
        record = self.find(name)
        if record is None:
            return False
        decision = decide_adapter(record.state, AdapterEvent.BATCH_TRAINED, trainable=record.settings.trainable)
        return not isinstance(decision, AdapterRefusal)


@contextmanager
def _in_their_words(name: str) -> Iterator[None]:
    """Why a name cannot be registered, as callers look for it."""
    try:
        check_name(name)
    except AdapterError as error:
        raise ValueError(f"Adapter name {name!r} is invalid: {error.why}") from error
    try:
        yield
    except NoFreeSlot as error:
        raise RuntimeError(f"No free adapter slots (max {error.slots})") from error
    except SaveDirectoryTaken as error:
        raise ValueError(f"Adapter {name!r} save dir {error.save} is already used by {error.holder!r}") from error
    except AdapterRefused as error:
        is_leaving = error.refusal.state in (AdapterState.RETIRING, AdapterState.CLEANUP)
        why = "is still cleaning up; retry shortly" if is_leaving else "already registered"
        raise ValueError(f"Adapter {name!r} {why}") from error


def _settings(config: object) -> AdapterSettings:
    given = {key: getattr(config, key, None) for key in _KEYS}
    if given["num_step"] is not None:
        given["num_epoch"] = None
    return AdapterSettings(**given, trainable=getattr(config, "trainable", True))


def _view(record: AdapterRecord, version: int) -> AdapterView:
    return AdapterView(
        name=record.adapter.name,
        config=replace(record.settings, num_step=record.num_step),
        slot=record.adapter.slot,
        version=version,
        step=record.step,
        accumulated_groups=record.accumulated_groups,
        registration_id=record.adapter.registration_id,
    )
