"""Whether bytes are what they were: comparisons and SHA-256 digests of tensors, on the host or on a device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of equal dtype and shape have equal bytes. 0.0 and -0.0 differ, a NaN equals itself."""
    return torch.equal(_host_bytes(one), _host_bytes(other))


def _host_bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in sorted order of names.

    Args:
        tensors: readable tensors; those on a device are copied to the host one at a time.
    """
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        total.update(_host_bytes(tensor).numpy().data)
    return total.hexdigest()
