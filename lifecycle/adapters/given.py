"""What callers give, looked at once and in one place before anything is done with it: names, registrations, paths."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.errors import AdapterError, ConfigError

_SHOWN: Final = 80


def as_name(given: object) -> str:
    """A string, whatever stands in it: a name that nobody has is simply not found.

    Raises:
        AdapterError: it is none.
    """
    if not isinstance(given, str):
        told = f"a name is a string, this is {type(given).__name__}; give the name that the adapter is registered under"
        raise AdapterError(_shown(given), told)
    return given


def as_names(what: str, given: object) -> tuple[str, ...]:
    """Names as they are asked for: sorted, each once.

    Args:
        what: what they name, for messages.
        given: several strings, in any order.

    Raises:
        ConfigError: one name instead of several, or something that is no name.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        example = given if isinstance(given, str) else "a"
        raise ConfigError(f"{_shown(given)} is no list of {what}; give several names, such as [{example!r}]")
    names = tuple(given)
    if not all(isinstance(one, str) for one in names):
        raise ConfigError(f"{_shown(names)} are no {what}; each is a name")
    return tuple(sorted(set(names)))


def as_registration(given: object) -> DesiredAdapter:
    """A registration: what ``register`` has returned, or ``find(name).adapter``. A name alone may be of several.

    Raises:
        AdapterError: it is none.
    """
    if not isinstance(given, DesiredAdapter):
        why = f"a registration is asked for, this is {type(given).__name__}; give what register() has returned"
        raise AdapterError(given if isinstance(given, str) else _shown(given), why)
    return given


def as_path(what: str, given: object, adapter: str | None = None, *, kind: str = "directory") -> Path:
    """A path that is not empty. Nothing is looked up.

    Args:
        what: the argument's name.
        given: a string or a Path.
        adapter: whose it is, if it is one adapter's.
        kind: what it names: a directory or a file.

    Raises:
        AdapterError: it is none, and is of an adapter.
        ConfigError: it is none, and is of no adapter.
    """
    if isinstance(given, Path) or (isinstance(given, str) and given):
        return Path(given)
    why = f"{what} is {_shown(given)}; give the {kind} as a string or a Path"
    raise ConfigError(why) if adapter is None else AdapterError(adapter, why)


def _shown(given: object) -> str:
    told = repr(given)
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
