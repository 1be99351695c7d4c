"""Learning rate schedules that belong to a slot: a new tenant starts its own from the beginning."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from torch import Tensor
from torch.optim import Optimizer

from lifecycle.errors import ConfigError


@runtime_checkable
class Scheduler(Protocol):
    """What is needed of a scheduler; those of ``torch.optim.lr_scheduler`` have it."""

    def state_dict(self) -> dict[str, Any]:
        """Its progress."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set its progress."""


Settings = list[dict[str, Any]]
"""The settings of an optimizer's groups, without their parameters and step counts."""

_NO_SETTINGS: Final = ("params", "step")


def settings_of(optimizer: Optimizer) -> Settings:
    """A copy of every group's settings: what a schedule may have written."""
    return [
        {key: _copied(value) for key, value in group.items() if key not in _NO_SETTINGS}
        for group in optimizer.param_groups
    ]


def _copied(value: object) -> object:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


@dataclass
class Schedule:
    """One slot's scheduler and the groups that it writes.

    Attributes:
        scheduler: the scheduler, None where the run's progress is meant to be shared by all tenants.
        optimizer: the slot's optimizer.
        first: progress and settings as they were when the trainer was built.
    """

    scheduler: Scheduler | None
    optimizer: Optimizer
    first: tuple[dict[str, Any], Settings]

    def begin(self, remember: Callable[[Callable[[], None]], None]) -> None:
        """Back to the beginning; *remember* is given the undo first."""
        scheduler = self.scheduler
        if scheduler is not None:
            before = copy.deepcopy(scheduler.state_dict()), settings_of(self.optimizer)
            remember(lambda: self._set(scheduler, before))
            self._set(scheduler, self.first)

    def _set(self, scheduler: Scheduler, state: tuple[dict[str, Any], Settings]) -> None:
        scheduler.load_state_dict(copy.deepcopy(state[0]))
        for group, settings in zip(self.optimizer.param_groups, state[1], strict=True):
            for key, value in settings.items():
                now = group.get(key)
                if isinstance(now, Tensor) and isinstance(value, Tensor):
                    now.copy_(value)  # compiled optimizers and schedulers share the object
                else:
                    group[key] = _copied(value)


def schedules_of(
    given: Mapping[int, Scheduler | None] | None, slots: int, owner: Callable[[int], Optimizer | None]
) -> dict[int, Schedule]:
    """The declared schedulers by slot.

    Args:
        given: slot to scheduler, in the state in which a new tenant starts; None for a slot whose schedule goes on
            from tenant to tenant on purpose.
        slots: how many slots there are.
        owner: the optimizer of a slot.

    Raises:
        ConfigError: no such slot, no scheduler, a scheduler of another optimizer, or one for two slots.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"schedulers is {type(given).__name__}; give a mapping of slot to scheduler")
    found: dict[int, Schedule] = {}
    for slot, scheduler in given.items():
        if isinstance(slot, bool) or not isinstance(slot, int) or not 0 <= slot < slots:
            raise ConfigError(f"schedulers names slot {slot!r}; there are {slots} slots, from 0")
        optimizer = owner(slot)
        if optimizer is None:
            raise ConfigError(f"schedulers names slot {slot}, whose parameters no optimizer holds")
        if scheduler is not None:
            _check(slot, scheduler, optimizer)
            if any(scheduler is other.scheduler for other in found.values()):
                raise ConfigError(f"one scheduler serves slot {slot} and another one; each tenant needs its own")
        first = {} if scheduler is None else copy.deepcopy(scheduler.state_dict())
        found[slot] = Schedule(scheduler, optimizer, (first, settings_of(optimizer)))
    return found


def _check(slot: int, scheduler: object, optimizer: Optimizer) -> None:
    if not isinstance(scheduler, Scheduler):
        raise ConfigError(f"the scheduler of slot {slot} is {type(scheduler).__name__} without state_dict(); give one")
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ConfigError(f"the scheduler of slot {slot} drives another optimizer than the one that holds the slot")
