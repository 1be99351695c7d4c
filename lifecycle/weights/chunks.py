"""The bytes of a tensor in chunks: no second full copy, wherever the tensor lies and whatever its strides."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

CHUNK_BYTES: Final = 16 * 2**20
"""Most host bytes that a reader stages at a time."""


def pieces(tensor: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Tensor]:
    """Views that follow each other in row-major order and together are the tensor, each of at most *chunk_bytes*.

    Where the cuts are depends on shape and dtype alone: tensors that differ in strides or device are cut alike.

    Args:
        tensor: any strided tensor without gradient history; one without elements has no pieces.
        chunk_bytes: at least the size of one element.
    """
    if tensor.numel() == 0:
        return
    if tensor.numel() * tensor.element_size() <= chunk_bytes:
        yield tensor
        return
    length = tensor.shape[0]
    row_bytes = tensor.numel() // length * tensor.element_size()
    if row_bytes > chunk_bytes:
        for index in range(length):
            yield from pieces(tensor.select(0, index), chunk_bytes)
        return
    rows = chunk_bytes // row_bytes
    for start in range(0, length, rows):
        yield tensor.narrow(0, start, min(rows, length - start))


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's bytes lie in host memory just as they are to be read."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def as_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor with elements as flat uint8, without a copy."""
    # Not reshape: a dimension of one element may have any stride, and then a single element cannot be viewed as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def staging_for(tensor: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
    """A host buffer for the largest piece of a tensor with elements: uint8, pinned where that is on a CUDA device."""
    size_bytes = min(chunk_bytes, tensor.numel() * tensor.element_size())
    if tensor.is_cuda:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    return host_buffer(size_bytes)


def host_buffer(size_bytes: int) -> Tensor:
    """Host memory as flat uint8, zeros, at least one byte. It goes back to the system with its last tensor."""
    # Not torch.empty: the allocator of the C library keeps what it was given back, tens of MiB a process.
    pages = mmap.mmap(-1, max(1, size_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.uint8)


def staged(staging: Tensor, piece: Tensor) -> Tensor:
    """The front of the buffer as a contiguous tensor with the dtype and shape of the piece."""
    return staging[: piece.numel() * piece.element_size()].view(piece.dtype).view(piece.shape)


def host_chunks(tensor: Tensor, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Tensor]:
    """The tensor's bytes in row-major order, as flat uint8 CPU tensors of at most *chunk_bytes*.

    Contiguous host memory is not copied; anything else goes through one buffer, so a chunk is good only until
    the next one is asked for. Chunks are only to be read.
    """
    plain = tensor.detach()
    staging: Tensor | None = None
    for piece in pieces(plain, chunk_bytes):
        if is_plain(piece):
            yield as_bytes(piece)
            continue
        staging = staging_for(plain, chunk_bytes) if staging is None else staging
        host = staged(staging, piece)
        host.copy_(piece)
        yield as_bytes(host)


def buffer_of(chunk: Tensor) -> memoryview:
    """The memory of a flat uint8 CPU tensor as a writable buffer. The tensor must outlive it."""
    if chunk.numel() == 0:
        return memoryview(bytearray())
    return memoryview((ctypes.c_uint8 * chunk.numel()).from_address(chunk.data_ptr())).cast("B")
