"""Tensors over memory that is given by its address, and the extent of a tensor in bytes."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def bytes_at(address: int, size_bytes: int, owner: object = None) -> Tensor:
    """The memory as a uint8 CPU tensor ``[size_bytes]`` on a storage of its own, writable, without a copy.

    Args:
        address: of readable and writable host memory.
        size_bytes: at least 1.
        owner: kept alive as long as any storage over this memory is.

    The memory belongs to whoever gave the address; the tensor does not free it, nor touch it when it dies.
    """
    buffer = (ctypes.c_uint8 * size_bytes).from_address(address)
    buffer.owner = owner  # type: ignore[attr-defined]  # an array is an ordinary object; the storage holds it
    return torch.frombuffer(buffer, dtype=torch.uint8)


def span_bytes(tensor: Tensor) -> int:
    """Bytes from the tensor's first element to behind its last one; 0 when it has none."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def first_address(tensor: Tensor) -> int:
    """Address of the tensor's first element; of its place in the storage when it has no elements."""
    return tensor.untyped_storage().data_ptr() + int(tensor.storage_offset()) * tensor.element_size()


def view_of_storage(tensor: Tensor, storage: torch.UntypedStorage, offset: int) -> Tensor:
    """A tensor over *storage* with the dtype, shape and strides of *tensor*.

    Args:
        tensor: the model; its values are not read.
        storage: where the result lives.
        offset: of the first element, in elements.
    """
    empty = torch.empty(0, dtype=tensor.dtype, device=storage.device)
    return empty.set_(storage, offset, tensor.shape, tensor.stride())


def host_view(tensor: Tensor, address: int) -> Tensor:
    """The host memory at *address* as a CPU tensor with the dtype, shape and strides of *tensor*, without a copy."""
    size_bytes = span_bytes(tensor)
    if size_bytes == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return view_of_storage(tensor, bytes_at(address, size_bytes).untyped_storage(), 0)
