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
        """SHA-256 of names, registrations and slots; 64 hexadecimal digits whatever the size.

        The shared fact ``plan_digest`` is this, empty for an empty plan: who has equal shared facts has one plan.
        """
        columns = [tuple(zip(*one, strict=True)) for one in (self.loads, self.retires)]  # a third of the time of rows
        return hashlib.sha256(json.dumps(columns).encode()).hexdigest()


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
    _check(desired, "desired")
    _check(loaded, "loaded")
    return ReconcilePlan(loads=_not_in(loaded, desired), retires=_not_in(desired, loaded))


def _not_in(others: Mapping[str, Registration], given: Mapping[str, Registration]) -> tuple[Tenancy, ...]:
    """The tenancies of *given* that are not among the *others*, sorted. Objects are made for these alone."""
    found = []
    for name, one in given.items():
        other = others.get(name)
        if other is None or other.registration_id != one.registration_id or other.slot != one.slot:
            found.append(Tenancy(name, one.registration_id, one.slot))
    return tuple(sorted(found))


def _check(given: Mapping[str, Registration], what: str) -> None:
    by_slot = {one.slot: name for name, one in given.items()}
    if len(by_slot) < len(given):
        twice = next(name for name, one in given.items() if by_slot[one.slot] != name)
        slot = given[twice].slot
        raise ValueError(f"{what}: {twice!r} and {by_slot[slot]!r} both have slot {slot}")
    for name, one in given.items():
        if one.name != name:
            raise ValueError(f"{what}: the entry under {name!r} is of {one.name!r}")
