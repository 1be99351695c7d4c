"""Optimizer state: materialised before the first sleep, and reset when a slot gets a new tenant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Adamax, AdamW, Optimizer, RMSprop

from lifecycle.errors import ConfigError

_ZERO_STARTS = (Adam, AdamW, Adamax, RMSprop, SGD)
"""Optimizers whose state is all zeros before the first step, so that it can be made and reset."""


def optimizers_of(given: Optimizer | Mapping[int, Optimizer] | Sequence[Optimizer] | None) -> tuple[Optimizer, ...]:
    """One optimizer, one a slot, several, or none: as a tuple."""
    if given is None:
        return ()
    if isinstance(given, Optimizer):
        return (given,)
    if isinstance(given, Mapping):
        return tuple(given[slot] for slot in sorted(given))
    return tuple(given)


class OptimizerState:
    """The state of one or several optimizers over the trainable parameters.

    Args:
        optimizers: together they may hold each parameter at most once.
        names: the trainable parameters by name.
    """

    def __init__(self, optimizers: tuple[Optimizer, ...], names: Mapping[str, Tensor]) -> None:
        self._optimizers = optimizers
        self._names = {id(tensor): name for name, tensor in names.items()}

    def materialise(self) -> None:
        """Create the state tensors without a step: afterwards they are what they are before the first one.

        Raises:
            ConfigError: an optimizer whose first state is not known to be zero has no state yet.
        """
        for optimizer in self._optimizers:
            if all(optimizer.state.get(parameter) for parameter in _parameters(optimizer)):
                continue
            if type(optimizer) not in _ZERO_STARTS or _dampens(optimizer):
                raise ConfigError(
                    f"the state of {type(optimizer).__name__} is created at its first step and is not known to "
                    "start from zero; take one step before the controller is built, or use one of "
                    f"{', '.join(kind.__name__ for kind in _ZERO_STARTS)}"
                )
            _step_without_effect(optimizer)

    def tensors(self) -> dict[str, Tensor]:
        """State tensors with bytes and at least one dimension, by ``NAME.STATE``: what belongs in a region."""
        return {name: one for name, one in self._all() if isinstance(one, Tensor) and one.dim() and one.numel()}

    def of(self, parameters: Iterable[str]) -> dict[str, Tensor]:
        """Every state tensor of these parameters, step counters included."""
        wanted = set(parameters)
        mine = ((name, value) for name, value in self._all() if name.rpartition("#")[0] in wanted)
        return {name: value for name, value in mine if isinstance(value, Tensor)}

    def _all(self) -> Iterator[tuple[str, object]]:
        for optimizer in self._optimizers:
            for parameter, state in optimizer.state.items():
                name = self._names.get(id(parameter), f"unnamed-{id(parameter)}")
                for key, value in state.items():
                    yield f"{name}#{key}", value


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _dampens(optimizer: Optimizer) -> bool:
    return any(group.get("dampening") for group in optimizer.param_groups)


def _step_without_effect(optimizer: Optimizer) -> None:
    """One step with zero gradients, learning rate and decay, then zero state: parameters keep their bits.

    Parameters that have a state already get no gradient, which the step passes over.
    """
    new = [parameter for parameter in _parameters(optimizer) if not optimizer.state.get(parameter)]
    settings: list[dict[str, Any]] = [
        {key: group[key] for key in ("lr", "weight_decay") if key in group} for group in optimizer.param_groups
    ]
    parameters = _parameters(optimizer)
    gradients = [parameter.grad for parameter in parameters]
    try:
        for group, kept in zip(optimizer.param_groups, settings, strict=True):
            group.update(dict.fromkeys(kept, 0.0))
        for parameter in parameters:
            parameter.grad = None
        for parameter in new:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    finally:
        for group, kept in zip(optimizer.param_groups, settings, strict=True):
            group.update(kept)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    for value in (value for parameter in new for value in optimizer.state[parameter].values()):
        if isinstance(value, Tensor):
            value.zero_()
