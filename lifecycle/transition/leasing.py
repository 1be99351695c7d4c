"""Leases over content groups from their decided sources, and letting go of what an error holds of them."""

from __future__ import annotations

import traceback

from torch import Tensor

from lifecycle.transition.parts import Parts
from lifecycle.weights.leases import WeightLease
from states import Read


def open_lease(
    parts: Parts, holder: str, reads: tuple[Read, ...], groups: tuple[str, ...] | None = None
) -> WeightLease:
    """A lease over content groups from their decided sources.

    Args:
        parts: the trainer.
        holder: who reads.
        reads: the decisions.
        groups: only these; all when None.
    """
    held = parts.inventory.groups()
    by_group = {read.group: read for read in reads if groups is None or read.group in groups}
    tensors = {name: (one, read) for group, read in by_group.items() for name, one in held[group].items()}
    pins = {group: parts.door.pin(read) for group, read in by_group.items()}

    def read_pinned(name: str, tensor: Tensor, read: Read) -> Tensor:
        return parts.door.read(name, tensor, read, pins[read.group])

    return parts.leases.open(holder, tensors, read_pinned)


def let_go(error: BaseException) -> None:
    """Clear the frames of an error and of those it came from.

    They hold tensors of the lease: the error itself would keep the saver's backup in use, and the trainer could
    not wake.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]
