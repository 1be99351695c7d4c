"""Factors under tensor parallelism: cutting out a rank's part, and putting the parts of all ranks together.

Putting together is the only collective here. Ranks first compare what must be equal on all of them, so a
disagreement is the same error everywhere and not a wrong adapter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lifecycle.adapters.fit import peft_key
from lifecycle.adapters.megatron_layout import ParallelLayer
from lifecycle.errors import AdapterError
from lifecycle.weights.digests import digest

GatherGroup = dist.ProcessGroup | Callable[[], AbstractContextManager[dist.ProcessGroup]]
"""The group of an export's collectives, or a context manager that opens one for that time."""


class Shards:
    """How each factor is split over the tensor-parallel ranks.

    Args:
        layers: the layers with slots.
        group: of the collectives; None takes the tensor-parallel group of the layers.

    Attributes:
        size: how many ranks there are.
    """

    def __init__(self, layers: Sequence[ParallelLayer], group: GatherGroup | None) -> None:
        self._module = layers[0].module
        self._group = group
        self.size = int(self._module.tp_group.size())
        self._rank = int(self._module.tp_group.rank())
        self._dims = {
            peft_key(part.path, "B" if layer.is_column else "A"): 0 if layer.is_column else 1
            for layer in layers
            for part in layer.parts
        }

    def cut(self, key: str, whole: Tensor) -> Tensor:
        """This rank's part of a factor; a replicated factor is returned as it is.

        Args:
            key: its PEFT name.
            whole: ``[r, in]`` or ``[out, r]``; the result is a view of it.
        """
        if key not in self._dims:
            return whole
        return whole.chunk(self.size, self._dims[key])[self._rank]

    def join(self, adapter: str, about: str, parts: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The whole factors, on every rank. A collective, unless there is one rank only: then *parts* themselves.

        Args:
            adapter: for messages.
            about: what else must be equal on all ranks.
            parts: this rank's, by PEFT name, all on one device. Only read.

        Raises:
            AdapterError: the group is not that of the tensor-parallel ranks or cannot carry these tensors, or
                the ranks hold different adapters.
        """
        if self.size == 1:
            return parts
        names = sorted(parts)
        split = [name for name in names if name in self._dims]
        same = {name: parts[name] for name in names if name not in self._dims}
        shapes = [(name, parts[name].dtype, tuple(parts[name].shape)) for name in split]
        device = next(iter(parts.values())).device
        with self._opened(adapter, device) as group:
            _agree(adapter, f"{about}|{shapes}|{digest(same)}", device, group)
            flat = torch.cat([_bytes_of(parts[name]) for name in split])
            rows = _gather(flat, group)
        sizes = [parts[name].numel() * parts[name].element_size() for name in split]
        by_rank = [dict(zip(split, torch.split(row, sizes), strict=True)) for row in rows]
        whole = {}
        for name in names:
            if name in same:
                whole[name] = parts[name]
            else:
                dtype, shape = parts[name].dtype, parts[name].shape
                # A byte row may begin anywhere, a wider type may not.
                pieces = [one[name].clone().view(dtype).view(shape) for one in by_rank]
                whole[name] = torch.cat(pieces, dim=self._dims[name])
        return whole

    @contextmanager
    def _opened(self, adapter: str, device: torch.device) -> Iterator[Any]:
        given = self._module.tp_group if self._group is None else self._group
        if isinstance(given, dist.ProcessGroup):
            self._check(adapter, given, device)
            yield given
        else:
            with given() as group:
                self._check(adapter, group, device)
                yield group

    def _check(self, adapter: str, group: dist.ProcessGroup, device: torch.device) -> None:
        if (group.size(), group.rank()) != (self.size, self._rank):
            raise AdapterError(
                adapter,
                f"the group to gather with has rank {group.rank()} of {group.size()}, the layers have "
                f"{self._rank} of {self.size}; give a group of the same ranks in the same order",
            )
        backends = dist.get_backend_config(group)
        if f"{device.type}:" not in backends:
            raise AdapterError(
                adapter,
                f"its bytes are on {device.type}, and the group to gather with carries {backends}; "
                "give a gloo group for bytes on the host (gather_group=)",
            )


def _agree(adapter: str, said: str, device: torch.device, group: dist.ProcessGroup) -> None:
    """Every rank must say the same.

    Raises:
        AdapterError: on every rank, naming the ranks that differ from the first.
    """
    own = torch.tensor(list(hashlib.sha256(said.encode()).digest()), dtype=torch.uint8, device=device)
    rows = _gather(own, group)
    others = [rank for rank, row in enumerate(rows) if not torch.equal(row, rows[0])]
    if others:
        raise AdapterError(
            adapter,
            f"tensor-parallel rank(s) {', '.join(map(str, others))} hold another adapter than rank 0: the rank, alpha, "
            "targets or replicated factors (A of column-parallel, B of row-parallel layers) differ; nothing was "
            "exported. Load the same adapter on all ranks, and train it with the same batches",
        )


def _gather(own: Tensor, group: dist.ProcessGroup) -> list[Tensor]:
    rows = [torch.empty_like(own) for _ in range(group.size())]
    dist.all_gather(rows, own, group=group)
    return rows


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)
