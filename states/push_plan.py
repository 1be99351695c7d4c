"""What an engine has to be sent: the difference between what the trainer has and what the engine holds. Pure.

Versions decide, and nothing else: not the name of a mode, not what was sent last. The base goes before the adapters
that lie on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from states.names import ADAPTER_PREFIX, BUFFERS, FROZEN_BASE, TRAINABLE_BASE

_BASE_ORDER: Final = {FROZEN_BASE: 0, TRAINABLE_BASE: 1, BUFFERS: 2}


@dataclass(frozen=True, slots=True)
class PushPlan:
    """What one engine has to be sent.

    Attributes:
        unload: names of adapters that the engine has and the trainer has not, sorted. They go first.
        send: content group and version, base groups first, then adapters by name.
    """

    unload: tuple[str, ...] = ()
    send: tuple[tuple[str, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done."""
        return not self.unload and not self.send

    @property
    def groups(self) -> tuple[str, ...]:
        """The content groups that are sent, in order."""
        return tuple([group for group, _ in self.send])

    @property
    def digest(self) -> str:
        """SHA-256 of names and versions; 64 hexadecimal digits whatever the size. Equal plans have equal digests."""
        return hashlib.sha256(json.dumps([self.unload, self.send]).encode()).hexdigest()


_NOTHING: Final = PushPlan()


def plan_push(
    desired: Mapping[str, int], held: Mapping[str, int], *, doubtful: Collection[str] | None = ()
) -> PushPlan:
    """Decide what to send and what to unload.

    After it is applied, what the engine holds is what is desired, and the next plan is empty. What is held in the
    right version and in no doubt is never sent.

    Args:
        desired: content group to the version of the trainer's newest bytes.
        held: content group to the version that the engine says it holds; a missing group holds nothing valid.
        doubtful: groups of which the engine's word does not count; None for every group.

    Raises:
        ValueError: a version is no whole number.
    """
    if not doubtful and doubtful is not None and desired == held:
        return _NOTHING
    for versions in (desired, held):
        wrong = [group for group, one in versions.items() if not isinstance(one, int) or isinstance(one, bool)]
        if wrong:
            raise ValueError(f"the version of {wrong[0]} is {versions[wrong[0]]!r}; a version is a whole number")
    believed: Mapping[str, int] = {} if doubtful is None else held
    unsure = frozenset(doubtful or ())
    lacking = [(group, one) for group, one in desired.items() if believed.get(group) != one or group in unsure]
    lacking.sort(key=_order)
    gone = {group for group in (*held, *unsure) if group.startswith(ADAPTER_PREFIX) and group not in desired}
    return PushPlan(tuple(sorted(group.removeprefix(ADAPTER_PREFIX) for group in gone)), tuple(lacking))


def in_order(groups: Collection[str]) -> tuple[str, ...]:
    """These content groups in the order in which they are sent."""
    return tuple(sorted(groups, key=lambda group: _order((group, 0))))


def _order(one: tuple[str, int]) -> tuple[bool, int, str]:
    group = one[0]
    return group.startswith(ADAPTER_PREFIX), _BASE_ORDER.get(group, len(_BASE_ORDER)), group


def ahead_of(newest: int, held: Mapping[str, int]) -> tuple[str, ...]:
    """Groups that an engine holds in a version that the trainer has never given out yet, sorted, each with the version.

    Args:
        newest: the newest id that the trainer has given out.
        held: content group to version, as the engine reports it.
    """
    if max(held.values(), default=newest) <= newest:
        return ()
    return tuple(sorted(f"{group} in version {one}" for group, one in held.items() if one > newest))
