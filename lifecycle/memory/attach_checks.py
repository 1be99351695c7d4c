"""The checks behind the table of what can be attached. They read no values and move nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import torch
from torch import Tensor

from lifecycle.memory import attachable
from lifecycle.memory.attachable import refused
from lifecycle.memory.sharing import SharedStorage
from lifecycle.saver import MemorySaver
from lifecycle.saver.placement import Obstacle, obstacle
from lifecycle.saver.views import first_address, span_bytes


class Attached(Protocol):
    """What is asked of an inventory."""

    @property
    def aliases(self) -> Mapping[str, str]:
        """Plain attributes that are views of attached tensors: attribute path to tensor name."""

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name: base and slots."""


_Trainers = dict[str, weakref.ref[Attached]]
_TRAINERS: Final[weakref.WeakKeyDictionary[MemorySaver, _Trainers]] = weakref.WeakKeyDictionary()
"""Who is attached to which saver, by the trainer's name."""


def refuse_tensors(tensors: Mapping[str, Tensor]) -> None:
    """Refuse what cannot be moved, is on several devices, or cannot be changed by this process alone.

    Raises:
        ConfigError: naming the tensors.
    """
    found: dict[Obstacle, list[str]] = {}
    for name, tensor in tensors.items():
        kind = obstacle(tensor)
        if kind is not None:
            found.setdefault(kind, []).append(name)
    meta = found.pop(Obstacle.META, [])
    for kind, names in found.items():
        raise refused(kind, names, type(tensors[names[0]]).__name__)
    _refuse_devices(tensors)
    if meta:
        raise refused(Obstacle.META, meta)
    inference = [name for name, one in tensors.items() if one.is_inference()]
    if inference:
        raise refused(attachable.INFERENCE, inference)
    shared = [name for name, one in tensors.items() if one.device.type == "cpu" and _is_shared(one)]
    if shared:
        raise refused(attachable.SHARED_MEMORY, shared)


def _refuse_devices(tensors: Mapping[str, Tensor]) -> None:
    devices: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        devices.setdefault(str(tensor.device), []).append(name)
    if len(devices) > 1:
        fewest_first = sorted(devices.items(), key=lambda item: len(item[1]))
        detail = ", ".join(f"{len(names)} on {device}" for device, names in fewest_first)
        raise refused(attachable.DEVICES, fewest_first[0][1], detail)


def refuse_expanded(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that change and whose elements share memory.

    Raises:
        ConfigError: naming the tensors.
    """
    expanded = [name for name, one in tensors.items() if _overlaps_itself(one)]
    if expanded:
        raise refused(attachable.EXPANDED, expanded)


def refuse_overlap(shared: Iterable[SharedStorage]) -> None:
    """Refuse bytes that belong to two content groups.

    Args:
        shared: the memory that several groups lie in.

    Raises:
        ConfigError: naming two tensors.
    """
    for block in shared:
        placed = [(group, name, one) for group, held in block.tensors.items() for name, one in held.items()]
        placed.sort(key=lambda item: first_address(item[2]))
        reaching: list[tuple[str, str, Tensor]] = []
        for group, name, one in placed:
            reaching = [item for item in reaching if _end_address(item[2]) > first_address(one)]
            for other_group, other_name, other in reaching:
                if other_group != group and _share_bytes(other, one):
                    raise refused(attachable.OVERLAP, (other_name, name), f"{other_group} and {group}")
            reaching.append((group, name, one))


def refuse_mixed_backups(shared: Iterable[SharedStorage], backup_of: Callable[[str], str | None]) -> None:
    """Refuse storages of several content groups that are to have different backups.

    Args:
        shared: the memory that several groups lie in.
        backup_of: what a content group is to be backed by, in any words.

    Raises:
        ConfigError: naming tensors, groups and backups.
    """
    for block in shared:
        kinds = {group: backup_of(group) for group in block.groups}
        if len(set(kinds.values())) > 1:
            detail = ", ".join(f"{group}: {kind}" for group, kind in kinds.items())
            raise refused(attachable.MIXED_BACKUPS, block.flat(), detail)


def refuse_conflicts(model: str, saver: MemorySaver, inventory: Attached) -> None:
    """Refuse what would pull memory away from somebody else, and write down that this trainer is attached.

    Tensors that lie in a region already are not moved, so that views of them stay true.

    Args:
        model: the trainer's name.
        saver: its memory saver.
        inventory: its tensors; held weakly.

    Raises:
        ConfigError: a flat buffer or a view that somebody else holds, or memory of another trainer.
    """
    tensors = inventory.tensors()
    loose = {name: one for name, one in tensors.items() if saver.tag_of(one) is None}
    stale = {path: name for path, name in inventory.aliases.items() if name in loose}
    if stale:
        raise refused(attachable.ALIAS, stale, f"of {', '.join(sorted(set(stale.values()))[:3])}")
    _refuse_held_flat(loose)
    attached = _TRAINERS.setdefault(saver, {})
    for other, reference in attached.items():
        held = reference()
        if held is not None and other != model:
            _refuse_shared(saver, other, tensors, held.tensors())
    attached[model] = weakref.ref(inventory)


def _refuse_shared(saver: MemorySaver, other: str, mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    tags = {saver.tag_of(one) for one in theirs.values()} - {None}
    objects = {id(one) for one in theirs.values()}
    shared = [name for name, one in mine.items() if id(one) in objects or saver.tag_of(one) in tags]
    if shared:
        raise refused(attachable.TWO_TRAINERS, shared, f"also of {other}")


def _refuse_held_flat(loose: Mapping[str, Tensor]) -> None:
    """A storage that is larger than a view of it, and that more tensor objects refer to than are known."""
    objects: dict[int, Tensor] = {id(one): one for one in loose.values()}
    for one in tuple(objects.values()):
        base = one._base  # noqa: SLF001 - documented for views; it moves along with them
        if base is not None:
            objects.setdefault(id(base), base)
    known: dict[int, int] = {}
    for one in objects.values():
        key = _storage_id(one)
        known[key] = known.get(key, 0) + 1
    held = [name for name, one in loose.items() if _is_part(one) and _holders(one) > known[_storage_id(one)]]
    if held:
        raise refused(attachable.HELD_FLAT, held)


def _is_part(tensor: Tensor) -> bool:
    return 0 < span_bytes(tensor) < tensor.untyped_storage().nbytes()


def _storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - two Python objects may stand for one storage


def _holders(tensor: Tensor) -> int:
    """Tensor objects that refer to the storage, wherever they are held."""
    references = int(torch._C._storage_Use_Count(_storage_id(tensor)))  # noqa: SLF001 - there is no public name
    return references - 1  # the Python object of the storage is one of them


def _is_shared(tensor: Tensor) -> bool:
    return bool(tensor.is_shared())  # type: ignore[no-untyped-call]


def _overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements may lie at one address. Answers yes for a few odd strides that do not overlap."""
    reached = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reached:
                return tensor.numel() > 0
            reached += stride * (size - 1)
    return False


def _share_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether any byte belongs to both. Interleaved views (columns of one matrix) share a span and no byte."""
    start = min(first_address(one), first_address(other))
    end = max(_end_address(one), _end_address(other))
    if one.is_contiguous() and other.is_contiguous():
        return end - start < span_bytes(one) + span_bytes(other)
    marks = torch.zeros(end - start, dtype=torch.bool)
    _bytes_of(marks, one, start).fill_(True)
    return bool(_bytes_of(marks, other, start).any())


def _end_address(tensor: Tensor) -> int:
    return first_address(tensor) + span_bytes(tensor)


def _bytes_of(marks: Tensor, tensor: Tensor, start: int) -> Tensor:
    """The marks of the tensor's bytes: its shape, and one dimension more for the bytes of an element."""
    width = tensor.element_size()
    shape, strides = (*tensor.shape, width), (*(stride * width for stride in tensor.stride()), 1)
    return marks.as_strided(shape, strides, first_address(tensor) - start)
