"""Named tensors as callers give them, checked once, and the names that are said to be frozen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from lifecycle.errors import ConfigError
from lifecycle.saver import MemorySaver

NamedTensors = Iterable[tuple[str, Tensor]] | Mapping[str, Tensor]
"""(name, tensor), as ``named_parameters()`` gives them, or a mapping."""


def listed(named: NamedTensors) -> dict[str, Tensor]:
    """The tensors by name, in their order.

    Raises:
        ConfigError: something else than names and strided tensors with bytes, or one name for two tensors.
    """
    found: dict[str, Tensor] = {}
    for pair in named.items() if isinstance(named, Mapping) else named:
        if not isinstance(pair, tuple) or len(pair) != 2:  # noqa: PLR2004 - a pair
            raise ConfigError(f"{type(pair).__name__} is no pair of a name and a tensor; give (name, tensor) pairs")
        name, tensor = pair
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ConfigError(f"{name!r} is a {type(tensor).__name__}; give names and tensors")
        if tensor.is_meta or tensor.layout is not torch.strided:
            raise ConfigError(f"{name} is {'on the meta device' if tensor.is_meta else tensor.layout}; "
                              "give tensors that have bytes, strided")  # fmt: skip
        if found.get(name, tensor) is not tensor:
            raise ConfigError(f"{name} names two tensors; every tensor needs a name of its own")
        found[name] = tensor
    return found


class FrozenNames:
    """Names of tensors whose bytes never change.

    Args:
        patterns: names, or glob patterns of names.

    Raises:
        ConfigError: it is no collection of strings.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        given = None if isinstance(patterns, str) or not isinstance(patterns, Iterable) else tuple(patterns)
        if given is None or not all(isinstance(one, str) for one in given):
            raise ConfigError(f"frozen is {patterns!r}; give a tuple of names or patterns such as '*.weight'")
        self._names = frozenset(given)
        self._globs = tuple(one for one in given if any(sign in one for sign in "*?["))
        self._known: dict[str, bool] = {}

    def __contains__(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            known = name in self._names or any(fnmatchcase(name, one) for one in self._globs)
            self._known[name] = known
        return known

    def check(self, names: Iterable[str]) -> None:
        """Refuse what matches none of the names: it says that something is frozen and nothing would be.

        Raises:
            ConfigError: naming it.
        """
        present = tuple(names)
        globs = {one for one in self._globs if any(fnmatchcase(name, one) for name in present)}
        idle = sorted(self._names - set(present) - globs)
        if idle:
            raise ConfigError(f"frozen names {', '.join(idle[:3])}, and no tensor is called so; mend the name")


def checked_saver(saver: object) -> MemorySaver:
    """The saver, if its books can be asked.

    Raises:
        ConfigError: it is none, such as the ``torch_memory_saver`` object itself, which keeps no books.
    """
    if not isinstance(saver, MemorySaver):
        raise ConfigError(
            f"saver is {type(saver).__name__}, which cannot say what is paused; "
            "pass the process's lifecycle.TorchMemorySaver(), and pause and resume through it"
        )
    return saver
