"""A registry as its actor sends it to the rank that asks: sources that the rank has are not sent again.

The source of a registration can be all its tensors. It changes only when the registration is supplied anew, while the
rest of a record changes with every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.sources import AdapterSource


@dataclass(frozen=True, slots=True)
class Pulled:
    """What is sent.

    Attributes:
        revision: of the registry; grows with every change.
        slots: how many there are.
        sources: registration id to the number of its source, which is another one for another source.
        snapshot: everything but the sources that the asker knows; None where it knows everything.
    """

    revision: int
    slots: int
    sources: Mapping[int, int]
    snapshot: RegistrySnapshot | None


class Sources:
    """The sources of a registry by registration, each with a number."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, AdapterSource]] = {}
        self._count = 0

    def numbers(self) -> dict[int, int]:
        """The number of each."""
        return {one: number for one, (number, _) in self._held.items()}

    def number(self, snapshot: RegistrySnapshot) -> dict[int, int]:
        """Number what is new in a registry, and forget what is gone. Returns the numbers."""
        before, self._held = self._held, {}
        for one, source in _sources(snapshot).items():
            number, known = before.get(one, (0, None))
            if known is not source:
                self._count += 1
                number = self._count
            self._held[one] = number, source
        return self.numbers()

    def cut(self, snapshot: RegistrySnapshot, known: Mapping[int, int]) -> RegistrySnapshot:
        """The registry without the sources that somebody knows by these numbers."""

        def unknown(one: int, source: AdapterSource | None) -> AdapterSource | None:
            return None if self._is(one, known.get(one)) else source

        return _with_sources(snapshot, unknown)

    def joined(self, pulled: Pulled) -> RegistrySnapshot | None:
        """The registry with all its sources, those that were not sent too; which are kept for the next time."""
        if pulled.snapshot is None:
            return None
        kept = {one: source for one, (_, source) in self._held.items() if self._is(one, pulled.sources.get(one))}
        found = _with_sources(pulled.snapshot, kept.get)
        self._held = {one: (pulled.sources[one], source) for one, source in _sources(found).items()}
        return found

    def _is(self, registration_id: int, number: int | None) -> bool:
        held = self._held.get(registration_id)
        return held is not None and held[0] == number


def _sources(snapshot: RegistrySnapshot) -> dict[int, AdapterSource]:
    records = (*snapshot.adapters.values(), *snapshot.completed)
    return {one.adapter.registration_id: one.source for one in records if one.source is not None}


def _with_sources(
    snapshot: RegistrySnapshot, choose: Callable[[int, AdapterSource | None], AdapterSource | None]
) -> RegistrySnapshot:
    def chosen(one: AdapterRecord) -> AdapterRecord:
        return replace(one, source=choose(one.adapter.registration_id, one.source))

    adapters = {name: chosen(one) for name, one in snapshot.adapters.items()}
    return replace(snapshot, adapters=adapters, completed=tuple(chosen(one) for one in snapshot.completed))
