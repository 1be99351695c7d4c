"""Moving tensors onto an allocation: the same objects, the same values, new storages. All or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # it is in none of the stubs

from lifecycle.saver.views import span_bytes, view_of_storage

# What torch's own allocators give; kernels may rely on it.
ALIGN_BYTES: Final = 512


class Obstacle(StrEnum):
    """What kind of tensor cannot be moved. The kinds are named as in docs/attach.md."""

    NO_TENSOR = "something that is no tensor"
    LAZY = "uninitialised (lazy) parameter"
    META = "meta tensor"
    LAYOUT = "sparse, nested or otherwise not strided tensor"
    QUANTISED = "quantised storage of torch (quantize_per_tensor)"
    DTENSOR = "DTensor shard (FSDP2)"
    WRAPPER = "tensor subclass that wraps other tensors (torchao)"
    LAZY_VIEW = "lazy conjugate or negative"
    NON_LEAF = "result of an operation that autograd tracks"
    FREED = "storage that was freed (resize_(0))"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one storage goes.

    Attributes:
        source: the storage to move.
        offset_bytes: of its first byte in the allocation.
        size_bytes: its size, 0 for a storage without bytes.
    """

    source: torch.UntypedStorage
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The plan of a placement.

    Attributes:
        tensors: each tensor object once.
        slots: by identity of the source storage.
        size_bytes: what the allocation needs; 0 when there is nothing to place.
    """

    tensors: tuple[Tensor, ...]
    slots: Mapping[int, Slot]
    size_bytes: int


def obstacle(tensor: object) -> Obstacle | None:
    """What keeps the tensor from being moved, None when nothing does. Reads no bytes; where it lies is not asked."""
    if not isinstance(tensor, Tensor):
        return Obstacle.NO_TENSOR
    if isinstance(tensor, UninitializedTensorMixin):
        return Obstacle.LAZY  # first of all: anything else that is asked of it raises
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return Obstacle.DTENSOR if type(tensor).__name__ == "DTensor" else Obstacle.WRAPPER
    checks = (
        (Obstacle.META, tensor.is_meta),
        (Obstacle.LAYOUT, tensor.layout is not torch.strided or tensor.is_nested),
        (Obstacle.QUANTISED, tensor.is_quantized),
        (Obstacle.LAZY_VIEW, tensor.is_conj() or tensor.is_neg()),
        (Obstacle.NON_LEAF, tensor.grad_fn is not None),
    )
    found = next((kind for kind, holds in checks if holds), None)
    return found or (Obstacle.FREED if _reaches_over(tensor) else None)


def why_not_placeable(tensor: Tensor) -> str | None:
    """Why the tensor cannot be moved, None when it can. Where it lies now is not asked here."""
    found = obstacle(tensor)
    if found is None:
        return None
    kind = type(tensor).__name__
    return {
        Obstacle.NO_TENSOR: f"it is a {kind}, not a tensor",
        Obstacle.LAZY: f"it is a {kind} without a shape; run one forward pass first",
        Obstacle.META: "it is on the meta device and has no bytes; materialise it first",
        Obstacle.LAYOUT: f"its layout is {getattr(tensor, 'layout', None)}; only strided tensors move",
        Obstacle.QUANTISED: "it is quantized by torch; only strided tensors of plain dtypes move",
        Obstacle.DTENSOR: f"it is a {kind} that wraps other tensors; place those",
        Obstacle.WRAPPER: f"it is a {kind} that wraps other tensors; place those",
        Obstacle.LAZY_VIEW: "it is a lazy conjugate or negative; resolve it first (resolve_conj, resolve_neg)",
        Obstacle.NON_LEAF: "it is the result of an operation that autograd tracks; detach it first",
        Obstacle.FREED: "its storage was freed and holds fewer bytes than it needs; fill it first",
    }[found]


def _reaches_over(tensor: Tensor) -> bool:
    end = int(tensor.storage_offset()) * tensor.element_size() + span_bytes(tensor)
    return tensor.numel() > 0 and end > tensor.untyped_storage().nbytes()


def plan(tensors: Mapping[str, Tensor]) -> Layout:
    """Lay the storages of the tensors out in one allocation, each storage once.

    Storages that overlap in memory (two views of one buffer, each with a storage of its own) overlap
    afterwards too. A storage without bytes gets a place as well, so that its tensor can be found.
    """
    distinct = _with_bases(tensors)
    sources = {key: tensor.untyped_storage() for tensor in distinct.values() for key in [_identity(tensor)]}
    by_address = sorted(sources.items(), key=lambda item: (str(item[1].device), item[1].data_ptr()))
    slots: dict[int, Slot] = {}
    end = 0
    block_address, block_end, block_offset, block_device = 0, 0, 0, None
    for key, storage in by_address:
        address, size_bytes = storage.data_ptr(), storage.nbytes()
        if size_bytes == 0 or storage.device != block_device or address >= block_end:
            block_address, block_end, block_offset, block_device = address, address, _aligned(end), storage.device
        offset = block_offset + address - block_address
        slots[key] = Slot(storage, offset, size_bytes)
        block_end = max(block_end, address + size_bytes)
        end = max(end, offset + max(size_bytes, 1))
    return Layout(tuple(distinct.values()), slots, _aligned(end))


def _with_bases(tensors: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """Each tensor object once, and the tensor that it is a view of, which keeps the old storage alive otherwise."""
    distinct = {id(tensor): tensor for tensor in tensors.values()}
    for tensor in tuple(distinct.values()):
        base = tensor._base  # noqa: SLF001 - documented for views, and there is no public name
        if base is not None and obstacle(base) is None:
            distinct.setdefault(id(base), base)
    return distinct


def move(layout: Layout, allocation: Tensor) -> None:
    """Copy the bytes and point every tensor at them.

    Args:
        layout: the plan.
        allocation: uint8, at least ``layout.size_bytes``.

    Whatever it raises, every tensor is as before then.
    """
    base = allocation.untyped_storage()
    start = int(allocation.storage_offset())
    storages: dict[int, torch.UntypedStorage] = {}
    for key, slot in layout.slots.items():
        first = start + slot.offset_bytes
        # A slice is a storage of its own over the same memory: whoever looks for tied tensors by storage
        # must not find the whole region to be one.
        storages[key] = base[first : first + slot.size_bytes]
        if slot.size_bytes:
            _as_bytes(storages[key]).copy_(_as_bytes(slot.source))
    views = [
        (tensor, view_of_storage(tensor, storages[_identity(tensor)], int(tensor.storage_offset())))
        for tensor in layout.tensors
    ]
    _repoint(views)


def _repoint(views: list[tuple[Tensor, Tensor]]) -> None:
    before = [tensor.data for tensor, _ in views]
    try:
        for tensor, view in views:
            tensor.data = view
    except BaseException:
        for (tensor, _), old in zip(views, before, strict=True):
            tensor.data = old
        raise


def _identity(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001  # the identity of a storage; two Python objects may stand for one


def _as_bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
