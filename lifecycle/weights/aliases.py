"""Tensors on a storage of their own that alias other memory, and the means to tell whether they live on."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor, UntypedStorage
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]  # public, and not in its stubs

from lifecycle.saver.views import span_bytes

T = TypeVar("T")


def alias(tensor: Tensor) -> Tensor:
    """A tensor over the same bytes on a storage object of its own.

    A view shares the storage object, so that nobody could tell whether the view is still alive.
    Through a DLPack capsule the storage is new while the bytes are the same, and quicker to have than a view.

    Args:
        tensor: any dense tensor; its memory must outlive the result, which the lease sees to.

    Returns:
        The same shape, strides, dtype, device and bytes; no gradient. Not to be written to.
    """
    if tensor.numel() == 0:
        return tensor.detach().clone()
    if tensor.is_conj() or tensor.is_neg():  # a capsule has no room for what is still to be done to the bytes
        return _over_a_slice(tensor)
    return _over_new_storage(tensor)


def _over_new_storage(tensor: Tensor) -> Tensor:
    try:
        return from_dlpack(to_dlpack(tensor))
    except (BufferError, RuntimeError):  # a dtype that this torch does not exchange
        return _over_a_slice(tensor)


def _over_a_slice(tensor: Tensor) -> Tensor:
    """The same by way of a slice of the storage, which is a storage of its own and keeps the whole alive."""
    first = tensor.storage_offset() * tensor.element_size()
    size_bytes = tensor.nbytes if tensor.is_contiguous() else span_bytes(tensor)
    own = tensor.untyped_storage()[first : first + size_bytes]
    # Not detach(): that shares the version counter, and autograd would take the alias for a change in place.
    return tensor.data.set_(own, 0, tensor.shape, tensor.stride())


class OtherMemory:
    """Memory that holds the bytes of many tensors, at the offsets that they have in theirs.

    Args:
        memory: must outlive what :meth:`alias` gives.
    """

    def __init__(self, memory: UntypedStorage) -> None:
        self._memory = memory
        self._typed: dict[torch.dtype, Tensor] = {}

    def alias(self, tensor: Tensor, first: int) -> Tensor | None:
        """A tensor like another one, over its bytes here, on a storage object of its own.

        Args:
            tensor: the model: dtype, shape and strides; it has elements, and they are not read.
            first: offset in bytes of its first element.

        Returns:
            None when it reaches over the end.
        """
        offset, askew = divmod(first, tensor.element_size())
        whole = self._typed.get(tensor.dtype) if not askew else None
        try:
            view = (self._as(tensor, askew) if whole is None else whole).as_strided(
                tensor.shape, tensor.stride(), offset
            )
        except RuntimeError:  # what torch says of a view that the storage is too small for
            return None
        return _over_new_storage(view)

    def _as(self, tensor: Tensor, askew: int) -> Tensor:
        """The memory in the tensor's dtype; without its first bytes for a tensor that lies between elements."""
        memory = self._memory[askew:] if askew else self._memory
        with torch.inference_mode():  # its views are not tracked, which is half of what a view costs
            whole = torch.empty(0, dtype=tensor.dtype, device=memory.device)
            whole = whole.set_(memory, 0, (memory.nbytes() // tensor.element_size(),), (1,))
        return whole if askew else self._typed.setdefault(tensor.dtype, whole)


class Watched(Generic[T]):
    """Remembers aliasing tensors, each with a value that tells what it is, without keeping them alive."""

    def __init__(self) -> None:
        self._refs: list[tuple[int, T]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._refs)

    def add(self, tensor: Tensor, told: T) -> None:
        """Remember one more. Needs no lock: to append is one step."""
        # What torch's own StorageWeakRef does, without an object and its destructor for each tensor.
        self._refs.append((int(tensor.untyped_storage()._weak_ref()), told))  # type: ignore[call-overload]  # noqa: SLF001

    def alive(self) -> list[T]:
        """The values of those of which the tensor or any view of it still exists. The others are forgotten."""
        with self._lock:
            kept: list[tuple[int, T]] = []
            gone: list[tuple[int, T]] = []
            for one in self._refs[:]:
                (gone if UntypedStorage._expired(one[0]) else kept).append(one)  # noqa: SLF001
            self._refs[: len(kept) + len(gone)] = kept  # what was added meanwhile stands behind
        _give_back(gone)  # only now: an interrupt must not leave one in the list that is given back
        return [told for _, told in kept]

    def __del__(self) -> None:
        _give_back(self._refs)


def _give_back(refs: Iterable[tuple[int, object]]) -> None:
    for ref, _ in refs:
        UntypedStorage._free_weak_ref(ref)  # type: ignore[no-untyped-call]  # noqa: SLF001
