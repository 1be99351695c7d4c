"""What is given to an agreement of ranks, looked at once before anything is done with it."""

from __future__ import annotations

import re
from typing import Final, TypeGuard

from lifecycle.errors import ConfigError
from states.agreement_told import TELLING_BYTES_MAX

_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WORLD_MAX: Final = 1 << 16
_TIMEOUT_MAX_S: Final = 86_400.0


def check_run(run: object) -> None:
    """Refuse what names no run: it becomes a part of keys in the store.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise ConfigError(f"run is {run!r}; use letters, digits, dot, underscore and dash")


def check_ranks(rank: object, world: object, timeout_s: object, registry_from: object) -> None:
    """Refuse what no agreement can be made of.

    Raises:
        ConfigError: naming the argument, and what it can be.
    """
    if not is_count(world) or not 1 < world <= _WORLD_MAX:
        raise ConfigError(f"world is {world!r}; an agreement needs 2 to {_WORLD_MAX} ranks")
    if not is_count(rank) or not 0 <= rank < world:
        raise ConfigError(f"rank is {rank!r}; use 0 to {world - 1}")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= _TIMEOUT_MAX_S:
        raise ConfigError(f"timeout_s is {timeout_s!r}; use a number of seconds up to a day")
    if registry_from is not None and (not is_count(registry_from) or not 0 <= registry_from < world):
        raise ConfigError(f"registry_from is {registry_from!r}; use the number of a rank, 0 to {world - 1}, or None")


def check_by(by: object, world: int) -> None:
    """Refuse who is no rank of these.

    Raises:
        ConfigError: it is none.
    """
    if not is_count(by) or not 0 <= by < world:
        raise ConfigError(f"by is {by!r}; use the number of a rank, 0 to {world - 1}")


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is an integer, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def why_not_told(payload: object, *, tells: bool) -> str:
    """Why a rank cannot take part in a telling with this payload; empty when it can.

    Args:
        payload: what it gives.
        tells: whether it is the one that tells.
    """
    if not tells:
        return "" if payload is None else "it gives something to say, and another rank is to say it"
    if not isinstance(payload, bytes):
        return f"it is to say something, and gives {type(payload).__name__}; give bytes"
    if len(payload) > TELLING_BYTES_MAX:
        return f"it has {len(payload)} bytes to say; at most {TELLING_BYTES_MAX} can be told at a time"
    return ""
