"""What is remembered: of a registration, of everything at one moment, and of what a slot holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.sources import AdapterSource
from states.adapters import AdapterState


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """One registration as the registry knows it.

    Attributes:
        adapter: name, registration id and slot.
        state: where it stands.
        source: where its first tensors come from; forgotten when it is completed.
        released_from: the state in which a host released it, for the undo of that.
    """

    adapter: DesiredAdapter
    state: AdapterState
    source: AdapterSource | None
    released_from: AdapterState | None = None


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """Everything the registry holds at one moment, in plain values that can be compared.

    Attributes:
        adapters: registrations that are not completed, by name.
        completed: those that are, oldest first.
        slot_versions: by slot, how often its weights were pushed. They never go back.
        free_slots: in the order in which they will be given out.
        next_registration_id: the id of the next registration.
    """

    adapters: Mapping[str, AdapterRecord]
    completed: tuple[AdapterRecord, ...]
    slot_versions: tuple[int, ...]
    free_slots: tuple[int, ...]
    next_registration_id: int

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
    """

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
