"""Models of one kind of tensor each, attached to an arena; what a tensor looks like from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lifecycle import HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.saver.placement import obstacle

Forward = Callable[[nn.Module], Tensor]


class Bag(nn.Module):
    """Holds what it is given; its forward pass depends on every element of all of it."""

    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            if isinstance(value, nn.Parameter) or not isinstance(value, Tensor):
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)

    def forward(self) -> Tensor:
        """One number for each parameter and buffer."""
        tensors = (*self.parameters(), *self.buffers())
        return torch.stack([_number(one) for one in tensors])


def _number(tensor: Tensor) -> Tensor:
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    weights = torch.arange(1, values.numel() + 1, dtype=torch.float32).reshape(values.shape)
    return (values.float() * weights).sin().sum()


def frozen(value: Tensor) -> nn.Parameter:
    """A parameter that does not train."""
    return nn.Parameter(value, requires_grad=False)


def numbers(*shape: int) -> Tensor:
    """The same random numbers each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


@dataclass
class Case:
    """A model that can be attached.

    Attributes:
        model: a new one, with the same values each time it is made.
        forward: runs it.
        settings: of the configuration.
        saver: the arena, with what was adopted.
    """

    model: nn.Module
    forward: Forward = field(default=lambda model: model())
    settings: dict[str, Any] = field(default_factory=dict)
    saver: HostArena = field(default_factory=HostArena)

    def parameters(self) -> list[nn.Parameter]:
        """Those that train."""
        return [one for one in self.model.parameters() if one.requires_grad]

    def train(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Forward, backward, and a step; nothing where nothing trains."""
        if optimizer is not None:
            optimizer.zero_grad(set_to_none=False)
            self.forward(self.model).square().sum().backward()
            optimizer.step()

    def optimizer(self) -> torch.optim.Optimizer | None:
        """Adam over what trains, None where nothing does."""
        found = self.parameters()
        return torch.optim.Adam(found, lr=0.1) if found else None

    def output(self) -> bytes:
        """What the model computes, bit by bit."""
        with torch.no_grad():
            return bits_of(self.forward(self.model))


def attach(case: Case, optimizer: torch.optim.Optimizer | None = None, **settings: Any) -> TrainerLifecycle:
    """A trainer without adapters that is awake."""
    config = LifecycleConfig(**({"lora": False} | case.settings | settings))
    return TrainerLifecycle(
        config,
        saver=case.saver,
        model=case.model,
        optimizer=optimizer,
        adapters=None,
        initial_state=TrainerState.AWAKE,
    )


def bits_of(tensor: Tensor) -> bytes:
    """The bytes of the tensor's elements."""
    flat = tensor.detach().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def looks(model: nn.Module) -> dict[str, tuple[object, ...]]:
    """What must never change: class, shape, strides, offset, dtype, whether it trains, by every name."""
    return {
        name: (type(one), one.shape, one.stride(), one.storage_offset(), one.dtype, one.requires_grad)
        for name, one in _all_tensors(model)
    }


def ties(model: nn.Module) -> set[frozenset[str]]:
    """Names of one object, and names of one storage."""
    objects: dict[object, set[str]] = {}
    for name, one in _all_tensors(model):
        objects.setdefault(("object", id(one)), set()).add(name)
        objects.setdefault(("storage", one.untyped_storage()._cdata), set()).add(name)
    return {frozenset(names) for names in objects.values()}


def contents(model: nn.Module) -> dict[str, tuple[bytes, int]]:
    """The bytes and the address of each tensor."""
    return {name: (bits_of(one), one.data_ptr()) for name, one in _all_tensors(model)}


def places(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Storage and address of each tensor that has them."""
    found = {}
    for name, one in _all_tensors(model):
        if obstacle(one) is None:
            found[name] = (int(one.untyped_storage()._cdata), one.data_ptr())
    return found


def _all_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


@contextmanager
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
