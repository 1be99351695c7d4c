"""All members of a cohort: whether they may be one, what they hold together, and what of it is whose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lifecycle.cohort.member import CohortMember
from lifecycle.cohort.outcome import CohortUsage
from lifecycle.controller import TrainerLifecycle
from lifecycle.errors import ConfigError
from lifecycle.memory import host
from lifecycle.saver import Usage
from states import TrainerState
from states.cohort import CohortLevels, Member


class Members:
    """The members by name, in the declared order.

    Args:
        trainers: name to life cycle.

    Attributes:
        by_name: the members.
        are_of_many_ranks: whether they act together with other ranks.

    Raises:
        ConfigError: they cannot be one cohort.
    """

    def __init__(self, trainers: Mapping[str, TrainerLifecycle]) -> None:
        _check_trainers(trainers)
        self.by_name = {name: CohortMember(name, one) for name, one in trainers.items()}
        _check_savers(self.by_name.values())
        _check_tags(self.by_name.values())
        self.are_of_many_ranks = _are_of_many_ranks(self.by_name.values())
        self._saver = next(iter(self.by_name.values())).saver

    def states(self) -> dict[str, TrainerState]:
        """The state of every member, asked now."""
        return {name: one.state for name, one in self.by_name.items()}

    def named(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names as a set in the declared order.

        Raises:
            ConfigError: one is no member's.
        """
        asked = tuple(names)
        unknown = [name for name in asked if name not in self.by_name]
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is no member of this cohort; there are: {', '.join(self.by_name)}")
        return tuple(name for name in self.by_name if name in asked)

    def look(self) -> tuple[Member, ...]:
        """Where each is, and what its events give and take.

        Raises:
            BusyError: another thread's event did not end in time.
        """
        return tuple(one.look() for one in self.by_name.values())

    def copies_bytes(self) -> int:
        """Host memory of all named copies and kept gradients."""
        return sum(one.copies_bytes() for one in self.by_name.values())

    def held(self) -> CohortLevels:
        """What is held now, without budgets."""
        usage = self._saver.usage()
        return CohortLevels(
            host_held_bytes=usage.host_bytes + self.copies_bytes(), device_held_bytes=usage.device_bytes
        )

    def levels(self) -> CohortLevels:
        """What is held now, and the budgets that decide the order.

        Ranks have to take the same steps and have not the same room: for many of them nothing here is a limit, and
        what each rank has room for is what the guards of the members say, which are joined over all ranks.
        """
        held, free = self.held(), self._saver.device_free_bytes()
        if self.are_of_many_ranks:
            return held
        return replace(
            held,
            host_budget_bytes=self.host_budget(held.host_held_bytes + host.host_free_bytes()),
            device_budget_bytes=self.device_budget(None if free is None else held.device_held_bytes + free),
        )

    def host_budget(self, limit: int | None) -> int | None:
        """The least of what the members' configurations allow on the host and another limit."""
        return _least(limit, *(one.trainer.config.host_budget_bytes for one in self.by_name.values()))

    def device_budget(self, limit: int | None) -> int | None:
        """The same on the device."""
        return _least(limit, *(one.trainer.config.device_budget_bytes for one in self.by_name.values()))

    def usage(self) -> CohortUsage:
        """Who holds what in the saver, from one look at its books."""
        tags, whole = self._saver.tags(), self._saver.usage()
        own = {name: one.usage(tags) for name, one in self.by_name.items()}
        taken = frozenset(tag for one in self.by_name.values() for tag in one.tags())
        rest = [info for tag, info in tags.items() if tag not in taken]
        others = Usage(
            sum(info.size_bytes for info in rest if not info.paused),
            sum(info.backup_bytes for info in rest),
            whole.disk_bytes - sum(one.disk_bytes for one in own.values()),
        )
        return CohortUsage(own, others, {name: one.copies_bytes() for name, one in self.by_name.items()})


def _least(*limits: int | None) -> int | None:
    return min((one for one in limits if one is not None), default=None)


def _check_trainers(trainers: Mapping[str, TrainerLifecycle]) -> None:
    if not trainers:
        raise ConfigError("a cohort needs members; give them by name: Cohort(actor=..., critic=...)")
    for name, one in trainers.items():
        if not isinstance(one, TrainerLifecycle):
            raise ConfigError(f"{name} is {one!r}; give a TrainerLifecycle")
    prefixes: dict[str, str] = {}
    for name, one in trainers.items():
        other = prefixes.setdefault(one.config.model, name)
        if other != name:
            raise ConfigError(
                f"{other} and {name} both have LifecycleConfig(model={one.config.model!r}); their memory tags are told "
                "apart by it, give each its own"
            )


def _check_savers(members: Iterable[CohortMember]) -> None:
    first, *others = members
    for one in others:
        if one.saver is not first.saver:
            raise ConfigError(
                f"{first.name} and {one.name} have two memory savers; the native library keeps no books, so build "
                "both trainers with one saver object"
            )


def _check_tags(members: Iterable[CohortMember]) -> None:
    owner: dict[str, str] = {}
    for one in members:
        for tag in sorted(one.tags()):
            other = owner.setdefault(tag, one.name)
            if other != one.name:
                raise ConfigError(
                    f"memory of {other} and of {one.name} lies in the tag {tag}, which is paused as a whole; allocate "
                    "them under tags of their own"
                )


def _are_of_many_ranks(members: Iterable[CohortMember]) -> bool:
    alone = [one.name for one in members if not one.is_one_of_many]
    many = [one.name for one in members if one.is_one_of_many]
    if many and alone:
        raise ConfigError(
            f"{', '.join(many)} with other ranks and {', '.join(alone)} alone; give ranks= to all members, or to none"
        )
    return bool(many)
