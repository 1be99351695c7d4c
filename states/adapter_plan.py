"""What a reconcile has to do: the difference between what should be loaded and what is. Pure.

An adapter is its registration, not its name: a name that was registered anew, and one that was moved to
another slot, is retired and loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Registration(Protocol):
    """What a plan is made of: a named registration and its slot."""

    @property
    def name(self) -> str:
        """The adapter's name."""

    @property
    def registration_id(self) -> int:
        """Unique for each registration of a registry."""

    @property
    def slot(self) -> int:
        """The slot it has, counted from 0."""


class Tenancy(NamedTuple):
    """Who has which slot. Two are the same tenancy when all three are equal.

    Attributes:
        name: the adapter's name.
        registration_id: unique for each registration.
        slot: counted from 0.
    """

    name: str
    registration_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """What has to be done, sorted by name. Slots are cleared before others are filled.

    Attributes:
        loads: what should be loaded and is not.
        retires: what is loaded and should not be.
    """

    loads: tuple[Tenancy, ...] = ()
    retires: tuple[Tenancy, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not self.loads and not self.retires

    @property
    def digest(self) -> str:
        """SHA-256 of the plan, 64 hexadecimal digits whatever its size: ranks compare it before they act."""
        return hashlib.sha256(json.dumps([self.loads, self.retires]).encode()).hexdigest()


def plan_reconcile(desired: Mapping[str, Registration], loaded: Mapping[str, Registration]) -> ReconcilePlan:
    """Decide what to load and what to retire. Equal arguments give equal plans, on every rank.

    A slot is loaded only when it is free or its tenant is retired by the same plan, so that after applying
    it the loaded adapters are the desired ones, and the next plan is empty.

    Args:
        desired: what should be loaded, by name.
        loaded: what is, by name.

    Raises:
        ValueError: an entry has another name than its key, or two of *desired* or of *loaded* have one slot.
    """
    wanted, held = _tenancies(desired, "desired"), _tenancies(loaded, "loaded")
    return ReconcilePlan(loads=tuple(sorted(wanted - held)), retires=tuple(sorted(held - wanted)))


def _tenancies(given: Mapping[str, Registration], what: str) -> set[Tenancy]:
    found = {Tenancy(one.name, one.registration_id, one.slot) for one in given.values()}
    by_slot: dict[int, str] = {}
    for one in found:
        if by_slot.setdefault(one.slot, one.name) != one.name:
            raise ValueError(f"{what}: {by_slot[one.slot]!r} and {one.name!r} both have slot {one.slot}")
    wrong = [name for name, one in given.items() if one.name != name]
    if wrong:
        raise ValueError(f"{what}: the entry under {wrong[0]!r} is of {given[wrong[0]].name!r}")
    return found
