"""Everything that belongs to a slot besides its weights, and what each part of it was before the first step.

A tenant that comes or goes finds it all at its beginning. What nobody knows the beginning of is named, so that the
swap can be refused: a list of what is reset, written for one optimizer, would leave another one's state in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torch.optim import Optimizer

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.memory.optimizer_state import OptimizerState
from lifecycle.memory.schedules import Schedule, Scheduler, schedules_of, settings_of

Remember = Callable[[Callable[[], None]], None]
"""Takes the undo of what is about to be done."""

STEP: Final = "step"

_ZERO_AT_FIRST: Final = frozenset({
    "exp_avg",
    "exp_avg_sq",
    "max_exp_avg_sq",
    "exp_inf",
    "square_avg",
    "grad_avg",
    "acc_delta",
    "momentum_buffer",
})  # fmt: skip
"""State tensors of a parameter's shape that are zero before the first step, in torch, apex, Megatron and miles."""

_SETTINGS: Final = frozenset({
    "lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov", "alpha", "centered", "amsgrad",
    "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay", "bias_correction",
    "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "wd_mult", "lr_mult", "param_names",
})  # fmt: skip
"""Keys of a group that say how to step, and are the user's to change."""


@dataclass(frozen=True, slots=True)
class SlotDeclarations:
    """What the user says belongs to slots, beyond what the optimizers hold.

    Attributes:
        main_copies: see :func:`~lifecycle.memory.main_copies.main_copies_of`.
        schedulers: see :func:`~lifecycle.memory.schedules.schedules_of`.
    """

    main_copies: Mapping[str, Tensor] | Mapping[Tensor, Tensor] | None = None
    schedulers: Mapping[int, Scheduler | None] | None = None


def slot_state_of(
    adapters: AdapterHost | None, optimizers: OptimizerState, schedulers: Mapping[int, Scheduler | None] | None
) -> SlotState:
    """The state of the host's slots, with the declared schedulers.

    Raises:
        ConfigError: a scheduler does not fit, or drives more than its slot.
    """
    count = 0 if adapters is None else adapters.slots
    slots = {} if adapters is None else {slot: tuple(adapters.slot_tensors(slot)) for slot in range(count)}

    def owner(slot: int) -> Optimizer | None:
        return optimizers.only_owner(slots[slot], f"the scheduler of slot {slot}")

    return SlotState(optimizers, slots, schedules_of(schedulers, count, owner))


class SlotState:
    """Hands over what belongs to a slot: moments, step counts, schedules. Main copies are written by who loads.

    Args:
        optimizers: their state by parameter; knows the main copies.
        slots: the parameter names of each slot.
        schedules: the declared schedulers by slot.
    """

    def __init__(
        self, optimizers: OptimizerState, slots: Mapping[int, tuple[str, ...]], schedules: Mapping[int, Schedule]
    ) -> None:
        self._state = optimizers
        self._slots = slots
        self._schedules = schedules
        self._first = {id(one): settings_of(one) for one in optimizers.optimizers}

    def tensors(self, slot: int) -> dict[str, Tensor]:
        """The tensors that are zero before the first step: moments and step counts, of parameters and of groups."""
        names = self._slots[slot]
        found = self._state.of(names)
        for number, (_, group, _) in enumerate(self._groups(names)):
            if isinstance(group.get(STEP), Tensor):
                found[f"slot {slot} group {number}#{STEP}"] = group[STEP]
        return found

    def names(self, slot: int) -> tuple[str, ...]:
        """The slot's parameters, in an order that is the same for every slot."""
        return self._slots[slot]

    def mains(self, slot: int) -> dict[str, Tensor]:
        """The main copies of the slot's parameters, by parameter."""
        return {name: self._state.mains[name] for name in self._slots[slot] if name in self._state.mains}

    def states(self, slot: int) -> list[tuple[str, dict[str, Any]]]:
        """What the optimizer keeps of each parameter that it has stepped: the state itself, not a copy."""
        return self._state.entries(self._slots[slot])

    def groups(self, slot: int) -> list[tuple[Optimizer, dict[str, Any]]]:
        """The groups that hold the slot's parameters, each with its optimizer: the group itself, not a copy."""
        return [(optimizer, group) for optimizer, group, _ in self._groups(self._slots[slot])]

    def schedule(self, slot: int) -> Schedule | None:
        """The slot's declared schedule; one without a scheduler is that of no tenant in particular."""
        return self._schedules.get(slot)

    def begin(self, slot: int, remember: Remember) -> None:
        """Put everything that is no tensor to its beginning: counts that are numbers, and the schedule.

        Args:
            slot: the slot.
            remember: is given each undo before what it undoes is done.
        """
        schedule = self._schedules.get(slot)
        if schedule is not None:
            schedule.begin(remember)
        names = self._slots[slot]
        holders: list[dict[str, Any]] = [state for _, state in self._state.entries(names)]
        for holder in (*holders, *(group for _, group, _ in self._groups(names))):
            count = holder.get(STEP)
            if _is_number(count):
                remember(_setter(holder, STEP, count))
                holder[STEP] = 0.0 if isinstance(count, float) else 0

    def unknown(self, slot: int) -> tuple[str, ...]:
        """What belongs to the slot and cannot be handed over, each with its name and why. Reads no bytes."""
        names = self._slots[slot]
        schedule = self._schedules.get(slot)
        found = [f"{name}#{key} {why}" for name, key, why in self._unknown_states(names)]
        for optimizer, group, others in self._groups(names):
            told = f"{type(optimizer).__name__} of slot {slot}"
            if STEP in group and others:
                found.append(f"{told}: the group's step counts for {others[0]} too, which stays")
            first = self._first_of(optimizer, group)
            found += [f"{told}: its group's {key!r} is new since the trainer was built" for key in _new(group, first)]
            if schedule is None or schedule.scheduler is None:
                found += [f"{told}: {why}" for why in _unknown_settings(group, first, shared=schedule is not None)]
            found += [f"{told}: its state {key!r} is that of no parameter" for key in _ownerless(optimizer)]
        return (*found, *self._hidden(names))

    def _first_of(self, optimizer: Optimizer, group: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a group's settings were, by its place: loading an optimizer's state puts another object there."""
        place = next(number for number, one in enumerate(optimizer.param_groups) if one is group)
        first = self._first[id(optimizer)]
        return first[place] if place < len(first) else {}

    def _unknown_states(self, names: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
        dampened = {name for one, group, _ in self._groups(names) if group.get("dampening") for name in self._in(group)}
        for name, state in self._state.entries(names):
            for key, value in state.items():
                why = _why_unknown(key, value, self._state.stepped(name), dampened=name in dampened)
                if why:
                    yield name, key, why

    def _hidden(self, names: tuple[str, ...]) -> Iterator[str]:
        """Parameters that nothing steps, where an optimizer steps a tensor that is nobody's: a main copy, it seems."""
        unnamed = self._state.unnamed()
        if unnamed:
            held = self._state.held()
            told = f"{type(unnamed[0][0]).__name__} steps a tensor {list(unnamed[0][1].shape)} that is not declared"
            for name in (name for name in names if name not in held):
                yield f"{name}: no optimizer steps it and {told}; if that is its main copy, give main_copies="

    def _in(self, group: Mapping[str, Any]) -> list[str]:
        return [name for one in group["params"] if (name := self._state.name_of(one)) is not None]

    def _groups(self, names: Iterable[str]) -> list[tuple[Optimizer, dict[str, Any], list[str]]]:
        """The groups that hold parameters of these names: optimizer, group, and what else it holds."""
        wanted, found = set(names), []
        for optimizer in self._state.optimizers:
            for group in optimizer.param_groups:
                held = [self._state.name_of(one) or "a tensor of no name" for one in group["params"]]
                if any(name in wanted for name in held):
                    found.append((optimizer, group, [name for name in held if name not in wanted]))
        return found


def _unknown_settings(group: Mapping[str, Any], first: Mapping[str, Any], *, shared: bool) -> Iterator[str]:
    for key, value in group.items():
        if key in ("params", STEP):
            continue
        if key == "lr" and not shared and "initial_lr" in group and not is_same(value, first.get(key, value)):
            yield "a scheduler that was not declared (schedulers={slot: scheduler}) has changed its learning rate"
        elif key in _SETTINGS:
            continue
        elif isinstance(value, Tensor):
            yield f"its group has a tensor {key!r} of unknown meaning"
        elif not is_same(value, first.get(key, value)):
            yield f"its group's {key!r} has changed since the trainer was built, and its meaning is unknown"


def _new(group: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Keys whose first value nobody has seen: a schedule that is put to its beginning leaves them as they are."""
    return [key for key in group if key not in first and key not in _SETTINGS and key not in ("params", STEP)]


def _is_empty(state: object) -> bool:
    return isinstance(state, Mapping) and not state  # whoever looks for a state that is not there leaves one


def _ownerless(optimizer: Optimizer) -> list[object]:
    """Keys of the optimizer's state that are none of its parameters."""
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    found = ((key, one) for key, one in optimizer.state.items() if id(key) not in held)
    return [list(key.shape) if isinstance(key, Tensor) else key for key, one in found if not _is_empty(one)]


def _setter(holder: dict[str, Any], key: str, value: object) -> Callable[[], None]:
    def set_back() -> None:
        holder[key] = value

    return set_back


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _why_unknown(key: str, value: object, parameter: Tensor, *, dampened: bool) -> str:
    """Why the first value of this state is not known, empty when it is."""
    if value is None:
        return ""
    if key == STEP:
        is_count = value.numel() == 1 if isinstance(value, Tensor) else _is_number(value)
        return "" if is_count else "is no count"
    if not isinstance(value, Tensor):
        return f"({type(value).__name__}): its value before the first step is not known"
    if key not in _ZERO_AT_FIRST:
        return f"{list(value.shape)}: its value before the first step is not known"
    if dampened and key == "momentum_buffer":
        return "is dampened: the first step is another than from zero"
    if value.shape != parameter.shape:
        return f"has shape {list(value.shape)}, the parameter {list(parameter.shape)}: whose it is is not known"
    return ""


def is_same(one: object, other: object) -> bool:
    """Whether two settings are equal. What cannot say so is not."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - of any kind of value
        return False
