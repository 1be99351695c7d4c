"""Everything that belongs to a slot besides its weights, taken out for a checkpoint and put back by a resume.

A record fits the slot that it is put into, or it is refused by name: the same optimizer, the same states of the
same shapes, the same settings, the same kind of scheduler. Nothing is left out and nothing is guessed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from torch import Tensor

from lifecycle.adapters.checkpoint import SlotRecord
from lifecycle.memory.main_copies import MAIN
from lifecycle.memory.slot_state import STEP, SlotState, is_same

_IMPLEMENTATION: Final = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})
"""Keys of a group that say with which kernels it steps and on what, and are those of the slot."""


class _Progress(msgspec.Struct, forbid_unknown_fields=True):
    """How far a scheduler is."""

    kind: str
    state: dict[str, Any]


class _Values(msgspec.Struct, forbid_unknown_fields=True):
    """What is no tensor: by group its optimizer and settings, counts by parameter, the scheduler."""

    optimizers: list[str]
    groups: list[dict[str, Any]]
    counts: dict[str, Any]
    scheduler: _Progress | None


def take_record(slots: SlotState, slot: int, own_bytes: Callable[[str, Tensor], Tensor]) -> SlotRecord:
    """Copy what belongs to a slot.

    Args:
        slots: knows it.
        slot: which.
        own_bytes: the door: gives the readable bytes of a tensor, wherever they are.

    Raises:
        UnreadableTensor: the bytes of one cannot be read now.
    """
    tensors = {key: own_bytes(name, one).cpu().clone() for key, (name, one) in tensors_in(slots, slot).items()}
    return SlotRecord(values_in(slots, slot), tensors)


def values_in(slots: SlotState, slot: int) -> dict[str, object]:
    """The values of a record of a slot; settings that are tensors are copies of their own."""
    values = _values(slots, slot)
    progress = None if values.scheduler is None else msgspec.structs.asdict(values.scheduler)
    return msgspec.structs.asdict(values) | {"scheduler": progress}


def why_unfit(slots: SlotState, slot: int, record: SlotRecord) -> str:
    """The first reason why a record cannot be put into a slot, empty when it can. Reads no bytes."""
    try:
        found = msgspec.convert(record.values, _Values)
    except msgspec.ValidationError as error:
        return f"its optimizer's values are malformed: {error}"
    reasons = (*_unfit_optimizers(slots, slot, found), *_unfit_tensors(slots, slot, record.tensors))
    return next(iter((*reasons, *_unfit_schedule(slots, slot, found))), "")


def put_record(slots: SlotState, slot: int, record: SlotRecord, write: Callable[[str, Tensor, Tensor], None]) -> None:
    """Put a record that fits into a slot that was put to its beginning; the undo of that takes this back too.

    Args:
        slots: knows what belongs to it.
        slot: which.
        record: one that :func:`why_unfit` has nothing against.
        write: the door: name, tensor, value. It keeps its own way back.
    """
    found, renamed = msgspec.convert(record.values, _Values), _renamed(slots, slot)
    for key, (name, tensor) in tensors_in(slots, slot).items():
        write(name, tensor, record.tensors[key])
    for name, state in slots.states(slot):
        for key in _numbers(state):
            state[key] = found.counts[f"{renamed[name]}#{key}"]
    schedule = slots.schedule(slot)
    scheduler = None if schedule is None else schedule.scheduler
    for (_, group), values in zip(slots.groups(slot), found.groups, strict=True):
        for key in (key for key in values if key == STEP or scheduler is not None):
            _set(group, key, values[key])
    if scheduler is not None and found.scheduler is not None:
        scheduler.load_state_dict(copy.deepcopy(found.scheduler.state))


def _set(group: dict[str, Any], key: str, value: object) -> None:
    now = group[key]
    if isinstance(now, Tensor) and isinstance(value, Tensor):
        now.copy_(value)  # a compiled optimizer and its scheduler share the object
    else:
        group[key] = copy.deepcopy(value)


def _renamed(slots: SlotState, slot: int) -> dict[str, str]:
    """A parameter's name in this slot to its name in slot 0. Slots are alike, in the same order."""
    return dict(zip(slots.names(slot), slots.names(0), strict=True))


def tensors_in(slots: SlotState, slot: int) -> dict[str, tuple[str, Tensor]]:
    """Name in a record to name here and tensor: moments, counts that are tensors, main copies. Reads no bytes."""
    renamed = _renamed(slots, slot)
    here = slots.tensors(slot) | {f"{name}#{MAIN}": one for name, one in slots.mains(slot).items()}
    found = {}
    for name, one in here.items():
        owner, _, key = name.rpartition("#")
        found[f"{renamed.get(owner, owner.removeprefix(f'slot {slot} '))}#{key}"] = (name, one)
    return found


def _numbers(state: Mapping[str, Any]) -> list[str]:
    return [key for key, value in state.items() if not isinstance(value, Tensor)]


def _values(slots: SlotState, slot: int) -> _Values:
    renamed, schedule, groups = _renamed(slots, slot), slots.schedule(slot), slots.groups(slot)
    scheduler = None if schedule is None else schedule.scheduler
    return _Values(
        optimizers=[type(optimizer).__name__ for optimizer, _ in groups],
        groups=[{key: copy.deepcopy(one) for key, one in group.items() if _is_kept(key, one)} for _, group in groups],
        counts={f"{renamed[name]}#{key}": state[key] for name, state in slots.states(slot) for key in _numbers(state)},
        scheduler=None
        if scheduler is None
        else _Progress(type(scheduler).__name__, copy.deepcopy(scheduler.state_dict())),
    )


def _is_kept(key: str, value: object) -> bool:
    return key not in _IMPLEMENTATION and not (key == STEP and isinstance(value, Tensor))


def _unfit_optimizers(slots: SlotState, slot: int, found: _Values) -> Iterator[str]:
    here, schedule = _values(slots, slot), slots.schedule(slot)
    if found.optimizers != here.optimizers or len(found.groups) != len(here.groups):
        yield f"it was trained with {_list(found.optimizers)}, the slot has {_list(here.optimizers)}"
        return
    kinds = [{key: type(value) for key, value in one.counts.items()} for one in (found, here)]
    if kinds[0] != kinds[1]:
        yield f"{_list(sorted(key for key, _ in kinds[0].items() ^ kinds[1].items()))} is another value there than here"
    for number, (theirs, ours) in enumerate(zip(found.groups, here.groups, strict=True)):
        if theirs.keys() != ours.keys():
            yield f"group {number} has {_list(sorted(theirs.keys() ^ ours.keys()))} on one side only"
            return
        different = [key for key in ours if key != STEP and not is_same(theirs[key], ours[key])]
        if schedule is None and different:
            told = "; ".join(f"{key} was {theirs[key]!r} and is {ours[key]!r}" for key in different)
            yield (
                f"{told}: no declared scheduler owns the settings, so the next tenant would get them too; "
                "build the optimizer with those of the checkpoint, and change them after the reconcile"
            )


def _unfit_tensors(slots: SlotState, slot: int, theirs: Mapping[str, Tensor]) -> Iterator[str]:
    here = {key: one for key, (_, one) in tensors_in(slots, slot).items()}
    inside = {key for key in theirs if key not in here and "#" in key}
    missing = sorted(here.keys() - theirs.keys())
    if missing or inside:
        yield f"{_list([*missing, *sorted(inside)])} on one side only"
    for key in (key for key in here if key in theirs):
        was, now = (f"{one.dtype} of shape {list(one.shape)}" for one in (theirs[key], here[key]))
        if was != now:
            yield f"{key} was {was} and is {now}; the slots must be of the same rank and model"


def _unfit_schedule(slots: SlotState, slot: int, found: _Values) -> Iterator[str]:
    schedule = slots.schedule(slot)
    scheduler = None if schedule is None else schedule.scheduler
    was = "no declared scheduler" if found.scheduler is None else found.scheduler.kind
    now = "no declared scheduler" if scheduler is None else type(scheduler).__name__
    if was != now:
        yield f"it was trained with {was}, the slot has {now}"
    elif scheduler is not None and found.scheduler is not None:
        keys = scheduler.state_dict().keys() ^ found.scheduler.state.keys()
        if keys:
            yield f"the progress of its {was} has {_list(sorted(map(str, keys)))} on one side only"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - so many names tell enough
    return (", ".join(names[:3]) or "none") + more
