"""Tensors on a storage of their own that alias other memory, and the means to tell whether they live on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


def alias(tensor: Tensor) -> Tensor:
    """A tensor over the same bytes on a storage object of its own.

    A view shares the storage object, so that nobody could tell whether the view is still alive.
    Through DLPack the storage is new while the bytes are the same.

    Args:
        tensor: any dense tensor; its memory must outlive the result, which the lease sees to.

    Returns:
        The same shape, strides, dtype, device and bytes; no gradient. Not to be written to.
    """
    plain = tensor.detach()
    if plain.numel() == 0:
        return plain.clone()
    return torch.from_dlpack(plain)  # type: ignore[attr-defined]


class Watched:
    """Remembers an aliasing tensor by name without keeping it alive."""

    __slots__ = ("_storage", "name")

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name = name
        self._storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]

    def alive(self) -> bool:
        """Whether the tensor, or any view of it, still exists."""
        return not self._storage.expired()  # type: ignore[no-untyped-call]
