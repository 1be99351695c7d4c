"""Whether bytes are what they were: comparisons, SHA-256 digests and sampled digests, on the host or on a device.

Everything here is read in chunks of :data:`~lifecycle.weights.chunks.CHUNK_BYTES` at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from lifecycle.weights.chunks import buffer_of, host_chunks

BLOCK_BYTES: Final = 4096
"""Size of a sampled block."""

BLOCKS: Final = 16
"""How many blocks of a tensor are chosen by seed; its first and its last block are always looked at."""

_SAME_SIZE: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_SHORT_ENOUGH: Final = (BLOCKS + 2) * BLOCK_BYTES


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of equal dtype and shape have equal bytes. 0.0 and -0.0 differ, a NaN equals itself."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return all(torch.equal(left, right) for left, right in zip(host_chunks(one), host_chunks(other), strict=True))


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in sorted order of names.

    Args:
        tensors: readable tensors; those on a device are copied to the host a chunk at a time.
    """
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(_head(name, tensors[name]))
        for chunk in host_chunks(tensors[name]):
            total.update(buffer_of(chunk))
    return total.hexdigest()


def tensor_sha256(tensor: Tensor) -> str:
    """SHA-256 of a tensor's contiguous bytes, hexadecimal. Reads it in chunks, wherever it lies."""
    total = hashlib.sha256()
    for chunk in host_chunks(tensor):
        total.update(buffer_of(chunk))
    return total.hexdigest()


def sample(tensors: Mapping[str, Tensor], seed: int) -> str:
    """SHA-256 over names, dtypes, shapes and a bounded sample of the bytes, in sorted order of names.

    Of each tensor its first and last 4 KiB count, and 16 blocks of 4 KiB at places that follow from the seed and
    the tensor's name; a tensor that is no larger than that counts whole. Equal bytes give equal samples wherever
    they lie. Unequal samples prove a difference, equal ones make it unlikely: vary the seed from time to time.

    Args:
        tensors: readable tensors. On a device the blocks are gathered there (72 KiB a tensor) and copied at once.
        seed: chooses the places.
    """
    total = hashlib.sha256(f"seed {seed}|".encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        total.update(_head(name, tensor))
        if tensor.numel() * tensor.element_size() > _SHORT_ENOUGH:
            tensor = _blocks(tensor, _starts(name, tensor, seed))
        for chunk in host_chunks(tensor):
            total.update(buffer_of(chunk))
    return total.hexdigest()


def _head(name: str, tensor: Tensor) -> bytes:
    return f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode()


def _starts(name: str, tensor: Tensor, seed: int) -> list[int]:
    """First elements of the blocks that are looked at, in row-major order; none reaches behind the end."""
    length = BLOCK_BYTES // tensor.element_size()
    last = tensor.numel() - length
    # Not the random module: the places must be the same in every version of Python.
    chosen = (hashlib.sha256(f"{seed}|{name}|{index}".encode()).digest() for index in range(BLOCKS))
    return [0, *(int.from_bytes(one[:8]) % (last + 1) for one in chosen), last]


def _blocks(tensor: Tensor, starts: list[int]) -> Tensor:
    """The elements of the blocks, flat, gathered where the tensor is."""
    # Integers of the same size: not every dtype can be indexed on every device, and bits are what counts.
    bits = tensor.resolve_conj().resolve_neg().view(_SAME_SIZE[tensor.element_size()])
    length = BLOCK_BYTES // tensor.element_size()
    if bits.is_contiguous():
        flat = bits.view(-1)
        return torch.cat([flat[start : start + length] for start in starts])
    first = torch.tensor(starts, device=bits.device).unsqueeze(1)
    index = (first + torch.arange(length, device=bits.device)).reshape(-1)
    return bits[torch.unravel_index(index, bits.shape)]
