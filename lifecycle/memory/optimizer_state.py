"""Optimizer state: materialised before the first sleep, and reset when a slot gets a new tenant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Adamax, AdamW, Optimizer, RMSprop

from lifecycle.errors import ConfigError
from lifecycle.memory.main_copies import MAIN

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
        mains: main copies by the name of their parameter; the optimizers step these instead.

    Attributes:
        optimizers: as given.
        mains: as given.
        materialising: state is being made, by steps that change no parameter.
    """

    def __init__(
        self,
        optimizers: tuple[Optimizer, ...],
        names: Mapping[str, Tensor],
        mains: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.optimizers = optimizers
        self.mains = dict(mains or {})
        self.materialising = False
        self._stepped = {**names, **self.mains}
        self._names = {id(tensor): name for held in (names, self.mains) for name, tensor in held.items()}

    def materialise(self) -> None:
        """Create the state tensors without a step: afterwards they are what they are before the first one.

        Raises:
            ConfigError: an optimizer whose first state is not known to be zero has no state yet.
        """
        for optimizer in self.optimizers:
            if all(optimizer.state.get(parameter) for parameter in _parameters(optimizer)):
                continue
            if type(optimizer) not in _ZERO_STARTS or _dampens(optimizer):
                raise ConfigError(
                    f"the state of {type(optimizer).__name__} is created at its first step and is not known to "
                    "start from zero; take one step before the controller is built, or use one of "
                    f"{', '.join(kind.__name__ for kind in _ZERO_STARTS)}"
                )
            self.materialising = True
            try:
                _step_without_effect(optimizer)
            finally:
                self.materialising = False

    def tensors(self) -> dict[str, Tensor]:
        """What belongs in a region: main copies, and state tensors with bytes and a dimension, by ``NAME#STATE``."""
        found = {f"{name}#{MAIN}": one for name, one in self.mains.items()}
        return found | {name: one for name, one in self._all() if isinstance(one, Tensor) and one.dim() and one.numel()}

    def of(self, parameters: Iterable[str]) -> dict[str, Tensor]:
        """Every state tensor of these parameters, step counters included and main copies not."""
        mine = ((f"{name}#{key}", one) for name, state in self.entries(parameters) for key, one in state.items())
        return {name: value for name, value in mine if isinstance(value, Tensor)}

    def entries(self, parameters: Iterable[str]) -> list[tuple[str, dict[str, Any]]]:
        """The state of each of these parameters that has one, by name."""
        wanted = [(name, self._stepped[name]) for name in parameters if name in self._stepped]
        return [(name, one.state[tensor]) for one in self.optimizers for name, tensor in wanted if tensor in one.state]

    def stepped(self, name: str) -> Tensor:
        """What an optimizer steps for this parameter: its main copy, or else itself."""
        return self._stepped[name]

    def name_of(self, tensor: Tensor) -> str | None:
        """The parameter that a tensor is, or is the main copy of; None when it is neither."""
        return self._names.get(id(tensor))

    def held(self) -> set[str]:
        """Names of the parameters that an optimizer steps, by themselves or by their main copy."""
        every = (self.name_of(one) for optimizer in self.optimizers for one in _parameters(optimizer))
        return {name for name in every if name is not None}

    def only_owner(self, parameters: Iterable[str], what: str) -> Optimizer | None:
        """The optimizer that steps these parameters and no others, None when none steps any of them.

        Args:
            parameters: names.
            what: for the message.

        Raises:
            ConfigError: several do, or it steps others too.
        """
        wanted = set(parameters)
        found = [one for one in self.optimizers if any(self.name_of(held) in wanted for held in _parameters(one))]
        others = [self.name_of(held) for one in found for held in _parameters(one) if self.name_of(held) not in wanted]
        if others or len(found) > 1:
            told = f"which steps {others[0] or 'a tensor of no name'} too" if others else "of which there are several"
            raise ConfigError(f"{what} would drive an optimizer {told}; give each slot one optimizer of its own")
        return found[0] if found else None

    def unnamed(self) -> list[tuple[Optimizer, Tensor]]:
        """What optimizers step and is neither a parameter of the model nor declared as a main copy."""
        every = ((one, tensor) for one in self.optimizers for tensor in _parameters(one))
        return [(one, tensor) for one, tensor in every if self.name_of(tensor) is None]

    def _all(self) -> Iterator[tuple[str, object]]:
        for optimizer in self.optimizers:
            states = ((parameter, state) for parameter, state in optimizer.state.items() if isinstance(state, Mapping))
            for parameter, state in states:
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
