"""What metrics and traces are given: a trainer, and the number of its process."""

from __future__ import annotations

from lifecycle.controller import TrainerLifecycle
from lifecycle.errors import ConfigError


def check_watched(trainer: TrainerLifecycle, rank: int) -> None:
    """Raises where it is none.

    Raises:
        ConfigError: the trainer is none, or the rank is no whole number from 0.
    """
    if not isinstance(trainer, TrainerLifecycle):
        raise ConfigError(f"trainer is a {type(trainer).__name__}; give the TrainerLifecycle itself")
    if type(rank) is not int or rank < 0:
        raise ConfigError(f"rank is {rank!r}; give the number of this process, from 0")
