"""Main copies: the fp32 tensors that an optimizer steps in place of parameters of 16 bits.

Whoever loads a parameter behind a main copy's back has it overwritten by the next step (the old value comes back
from the copy). So the trainer is told of them, and every load writes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from lifecycle.errors import ConfigError
from lifecycle.memory.attach_checks import refuse_expanded, refuse_tensors

MAIN: Final = "main-copy"
"""A main copy is called ``NAME#main-copy``, next to the moments of its parameter."""

_SIXTEEN_BITS: Final = (torch.bfloat16, torch.float16)


def main_copies_of(
    given: Mapping[str, Tensor] | Mapping[Tensor, Tensor] | None,
    trainable: Mapping[str, Tensor],
    optimizers: tuple[Optimizer, ...],
) -> dict[str, Tensor]:
    """The declared main copies by the name of their parameter.

    Args:
        given: parameter, or its name in the model, to main copy: float32, of the parameter's shape and device.
        trainable: the trainable parameters by name.
        optimizers: they hold the copies, and not the parameters that have one.

    Raises:
        ConfigError: a parameter that does not exist or is not of 16 bits, a copy of another shape, dtype or device,
            one that cannot be moved, or one that no optimizer holds.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"main_copies is {type(given).__name__}; give a mapping of parameter to fp32 tensor")
    names = {id(one): name for name, one in trainable.items()}
    found: dict[str, Tensor] = {}
    for key, copy in given.items():
        name = names.get(id(key), "") if isinstance(key, Tensor) else str(key)
        if name not in trainable:
            told = "a tensor" if isinstance(key, Tensor) else repr(key)
            raise ConfigError(f"main_copies names {told}, which is no trainable parameter of the attached model")
        _check_copy(name, trainable[name], copy)
        found[name] = copy
    refuse_tensors({f"{name}#{MAIN}": one for name, one in found.items()})
    refuse_expanded({f"{name}#{MAIN}": one for name, one in found.items()})
    _check_held(found, trainable, optimizers)
    return found


def _check_copy(name: str, parameter: Tensor, copy: Tensor) -> None:
    if not isinstance(copy, Tensor) or copy.dtype is not torch.float32:
        kind = copy.dtype if isinstance(copy, Tensor) else type(copy).__name__
        raise ConfigError(f"the main copy of {name} is {kind}; a main copy is a tensor of torch.float32")
    if parameter.dtype not in _SIXTEEN_BITS:
        raise ConfigError(f"{name} is {parameter.dtype} and needs no main copy; leave it out of main_copies")
    if copy.shape != parameter.shape:
        raise ConfigError(
            f"the main copy of {name} has shape {tuple(copy.shape)}, the parameter {tuple(parameter.shape)}; "
            "sharded and flattened copies are not supported"
        )
    if copy.device != parameter.device:
        raise ConfigError(f"the main copy of {name} is on {copy.device}, the parameter on {parameter.device}")


def _check_held(
    copies: Mapping[str, Tensor], trainable: Mapping[str, Tensor], optimizers: tuple[Optimizer, ...]
) -> None:
    held = [id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]]
    idle = [name for name, one in copies.items() if id(one) not in held]
    if idle:
        raise ConfigError(
            f"no optimizer holds the main copy of {', '.join(idle[:3])} ({len(idle)} in all); "
            "build the optimizers over the main copies, and pass both to the trainer"
        )
    both = [name for name in copies if id(trainable[name]) in held]
    if both:
        raise ConfigError(
            f"an optimizer holds {both[0]} and another, or the same, its main copy; it may hold the copy only"
        )
    if len({id(one) for one in copies.values()}) < len(copies):
        raise ConfigError("one tensor is the main copy of two parameters; each needs its own")


def is_rounded_from(parameter: Tensor, copy: Tensor) -> bool:
    """Whether the parameter is, bit for bit, what its main copy rounds to.

    Args:
        parameter: 16 bits.
        copy: float32, same shape and device.
    """
    return torch.equal(parameter.view(torch.int16), copy.to(parameter.dtype).view(torch.int16))
