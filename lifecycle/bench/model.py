"""A synthetic base of a chosen size with adapter slots on it. Nothing is ever computed with the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

from lifecycle.adapters.protocol import DesiredAdapter, PreparedAdapter
from lifecycle.bench.options import Case

LORA_MODULES: Final = 16
LORA_WIDTH: Final = 1024
"""Adapters sit on so many modules of this width, whatever the base: their bytes depend on rank and number only."""
_DTYPE: Final = torch.bfloat16


def slot_tensors(case: Case) -> int:
    """How many tensors all slots of a model of this case have."""
    return 2 * LORA_MODULES * case.adapters


class BenchModel(nn.Module):
    """Frozen bfloat16 matrices of equal size, and float32 LoRA pairs.

    Args:
        case: how many, and how large.
        width: of the modules that the adapters sit on.
        modules: how many there are.
    """

    def __init__(self, case: Case, *, width: int = LORA_WIDTH, modules: int = LORA_MODULES) -> None:
        super().__init__()
        shape = matrix_shape(case.base_bytes // case.tensors)
        frozen = (torch.full(shape, index % 251 + 1, dtype=_DTYPE) for index in range(case.tensors))
        self.base = nn.ParameterList(nn.Parameter(one, requires_grad=False) for one in frozen)
        sides = ((case.rank, width), (width, case.rank))
        self.slots = nn.ModuleList(
            nn.ParameterList(nn.Parameter(torch.zeros(side)) for _ in range(modules) for side in sides)
            for _ in range(case.adapters)
        )

    def slot(self, index: int) -> dict[str, nn.Parameter]:
        """The parameters of one slot, by their name in the model."""
        return {f"slots.{index}.{name}": one for name, one in self.slots[index].named_parameters()}

    def base_bytes(self) -> int:
        """Bytes of the frozen weights."""
        return sum(one.nbytes for one in self.base)

    def trainable_bytes(self) -> int:
        """Bytes of all adapters; their gradients take as much, and Adam's moments twice as much."""
        return sum(one.nbytes for one in self.slots.parameters())


def matrix_shape(size_bytes: int) -> tuple[int, int]:
    """Rows and columns of a bfloat16 matrix of at most so many bytes, at least one element."""
    elements = max(1, size_bytes // _DTYPE.itemsize)
    columns = 1 << (math.isqrt(elements).bit_length() - 1)
    return elements // columns, columns


@dataclass
class LightAdapters:
    """An :class:`~lifecycle.adapters.AdapterHost` without files: an adapter's values are one number each.

    Reading an adapter therefore costs nothing and holds nothing; what the controller writes is of full size.
    """

    model: BenchModel
    case: Case
    wanted: dict[str, DesiredAdapter] = field(default_factory=dict)
    holds: dict[str, DesiredAdapter] = field(default_factory=dict)
    registrations: int = 0

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self.case.adapters

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters by name, in the order of their slots."""
        return tuple(f"adapter-{slot}" for slot in range(self.slots))

    def register(self, slot: int) -> None:
        """Ask for new content in a slot; an adapter of that name that is loaded is replaced."""
        self.registrations += 1
        self.wanted[self.names[slot]] = DesiredAdapter(self.names[slot], self.registrations, slot)

    def desired(self) -> Mapping[str, DesiredAdapter]:
        """What should be loaded."""
        return dict(self.wanted)

    def loaded(self) -> Mapping[str, DesiredAdapter]:
        """What is loaded."""
        return dict(self.holds)

    def slot_tensors(self, slot: int) -> Mapping[str, Tensor]:
        """The parameters of one slot."""
        return self.model.slot(slot)

    def prepare(self, desired: DesiredAdapter) -> PreparedAdapter:
        """Every tensor of the slot, filled with the number of the registration."""
        value = torch.tensor(float(desired.registration_id))
        tensors = {name: value.expand(one.shape) for name, one in self.slot_tensors(desired.slot).items()}
        return PreparedAdapter(desired, self.case.rank, float(self.case.rank), ("linear",), tensors)

    def install(self, prepared: PreparedAdapter) -> None:
        """The slot holds this adapter now."""
        self.holds[prepared.desired.name] = prepared.desired

    def uninstall(self, name: str) -> None:
        """The slot is empty now."""
        del self.holds[name]

    def freed(self, adapters: tuple[DesiredAdapter, ...]) -> None:
        """Slots are not given to others here."""

    def reinstate(self, loaded: Mapping[str, DesiredAdapter]) -> None:
        """Put the record back."""
        self.holds = dict(loaded)

    def pushed(self, names: tuple[str, ...]) -> None:
        """Nothing waits for this here."""

    def export(
        self, name: str, read: Callable[[str], Tensor]
    ) -> tuple[int, float, tuple[str, ...], Mapping[str, Tensor]]:
        """The adapter under the names of its slot."""
        tensors = {one: read(one) for one in self.slot_tensors(self.holds[name].slot)}
        return self.case.rank, float(self.case.rank), ("linear",), tensors

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """The frozen weights; there are no buffers."""
        return {f"base.{name}": one for name, one in self.model.base.named_parameters()}, {}
