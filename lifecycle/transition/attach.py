"""Attaching a trainer: build the parts, lay the memory out once, take the first versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from lifecycle.adapters.protocol import AdapterHost, ChoosesAdapters
from lifecycle.config import LifecycleConfig, Reference
from lifecycle.errors import ConfigError
from lifecycle.memory.attach_checks import refuse_conflicts, refuse_mixed_backups
from lifecycle.memory.gradients import Gradients
from lifecycle.memory.inventory import Inventory
from lifecycle.memory.layout import Layout
from lifecycle.memory.main_copies import MAIN, main_copies_of
from lifecycle.memory.optimizer_state import OptimizerState, optimizers_of
from lifecycle.memory.sharing import groups_sharing_storage
from lifecycle.memory.slot_state import SlotDeclarations, slot_state_of
from lifecycle.process_groups import ProcessGroups
from lifecycle.saver import MemorySaver
from lifecycle.transition.base_backing import base_dir, files_of_others, readable, write_base_file
from lifecycle.transition.parts import Parts
from lifecycle.weights.digests import digest
from lifecycle.weights.door import Door
from lifecycle.weights.frozen_file import FrozenFile
from lifecycle.weights.snapshots import SnapshotStore
from states import BUFFERS, FROZEN_BASE, OFFLOADED, RESTING, TRAINABLE_BASE, Place, TrainerState


def build_parts(
    config: LifecycleConfig,
    saver: MemorySaver,
    model: nn.Module,
    optimizer: Optimizer | Mapping[int, Optimizer] | Sequence[Optimizer] | None,
    adapters: AdapterHost | None,
    snapshots: SnapshotStore,
    groups: ProcessGroups | None,
    slot_state: SlotDeclarations,
) -> Parts:
    """Put the parts of one trainer together. Allocates nothing.

    Raises:
        ConfigError: the parts contradict the configuration.
    """
    if config.lora and adapters is None:
        raise ConfigError("the configuration says LoRA but no adapters were given; pass adapters=, or set lora=False")
    inventory = Inventory(model, adapters, config.frozen_buffers)
    moments = _moments(inventory, optimizers_of(optimizer), slot_state)
    if adapters is not None:
        _check_slots(model, adapters, moments)
    _check_prefix(config.model, saver, inventory, moments)
    gradients = Gradients(inventory.trainable(), moments.mains)
    gradients.refuse_flat_main_grads(lambda one: saver.tag_of(one) is not None)
    slots = slot_state_of(adapters, moments, slot_state.schedulers)
    refuse_conflicts(config.model, saver, inventory)
    layout = Layout(saver, config)
    file = FrozenFile(base_dir(config, saver, [layout.place_of(_BASE[group]) for group in inventory.base]))
    door = Door(saver, snapshots, file)
    return Parts(config, saver, inventory, layout, snapshots, file, door, gradients, moments, slots, adapters, groups)


def _moments(inventory: Inventory, optimizers: tuple[Optimizer, ...], slot_state: SlotDeclarations) -> OptimizerState:
    trainable = inventory.trainable()
    return OptimizerState(optimizers, trainable, main_copies_of(slot_state.main_copies, trainable, optimizers))


_BASE = {FROZEN_BASE: "frozen-base", TRAINABLE_BASE: "trainable-base", BUFFERS: "buffers"}


def _backing(where: Place) -> str:
    return "base file" if where.file else where.backup


def _check_prefix(model: str, saver: MemorySaver, inventory: Inventory, moments: OptimizerState) -> None:
    """Tags are told apart by their prefix: nobody else's tensors may lie under this trainer's.

    Gradients and moments of its own parameters are its own too: an earlier controller of the model placed them.
    """
    trainable = inventory.trainable()
    gradients = [one.grad for one in trainable.values() if one.grad is not None]
    main_gradients = [one.grad for one in moments.mains.values() if one.grad is not None]
    held = (*inventory.tensors().values(), *gradients, *main_gradients, *moments.tensors().values())
    own = {saver.tag_of(one) for one in held}
    taken = [tag for tag in saver.tags() if tag.startswith(f"{model}/") and tag not in own]
    if taken:
        raise ConfigError(
            f"the saver holds {', '.join(taken)} already, which are not this trainer's; "
            "give each trainer and engine a name of its own (LifecycleConfig(model=...))"
        )


def _check_reference(config: LifecycleConfig, inventory: Inventory, adapters: AdapterHost | None) -> None:
    """With its adapters off the model is the reference: the base must not train, and they must go off."""
    if config.reference is not Reference.ADAPTER_OFF:
        return
    trains = tuple(inventory.base.get(TRAINABLE_BASE, ()))
    if trains:
        raise ConfigError(f"ref='adapter_off' needs a base that stays as it is, and {', '.join(trains[:3])} train(s); "
                          "freeze what trains, or use ref='snapshot'")  # fmt: skip
    if not isinstance(adapters, ChoosesAdapters):
        raise ConfigError(f"ref='adapter_off' needs adapters that can be switched off, and {type(adapters).__name__} "
                          "cannot; use ref='snapshot'")  # fmt: skip


def _check_slots(model: nn.Module, adapters: AdapterHost, moments: OptimizerState) -> None:
    """The slots are the model's, and no optimizer moves one slot when another steps."""
    own = {id(parameter) for parameter in model.parameters()}
    slots = [adapters.slot_tensors(slot) for slot in range(adapters.slots)]
    if any(id(one) not in own for slot in slots for one in slot.values()):
        raise ConfigError("the adapters sit on another model; pass the one that they were built on")
    for optimizer in moments.optimizers:
        held = {moments.name_of(one) for group in optimizer.param_groups for one in group["params"]}
        shared = [slot for slot, tensors in enumerate(slots) if held & tensors.keys()]
        if len(shared) > 1:
            raise ConfigError(
                f"one {type(optimizer).__name__} holds the parameters of slots {shared}: gradients are kept as "
                "zeros, so a step of one adapter would move the others by their momentum; use one optimizer a slot"
            )


def lay_out(parts: Parts, initial_state: TrainerState) -> None:
    """Place every tensor that is not placed, and take the first version of each content group.

    Raises:
        ConfigError: *initial_state* is no resting state, or not what the saver's books say; or the configured
            reference cannot be had of this model.
        SaverError: there is no room.
    """
    if initial_state not in RESTING:
        raise ConfigError(f"initial_state is {initial_state}; a trainer starts in one of {', '.join(RESTING)}")
    _check_reference(parts.config, parts.inventory, parts.adapters)
    groups = parts.inventory.placement_groups()
    contents = {group: _BASE.get(group, "adapters") for group in groups}
    for group, held in groups.items():
        parts.layout.refuse_unfit(contents[group], held)
    shared = groups_sharing_storage(groups)
    refuse_mixed_backups(shared, lambda group: _backing(parts.layout.place_of(contents[group])))
    in_file = write_base_file(parts)
    for block in shared:  # one storage is moved as one, into the region of the group that changes
        parts.layout.place(contents[block.groups[-1]], block.flat())
    for group, held in groups.items():
        parts.layout.place(contents[group], held)
    _check_state(parts, initial_state)
    if initial_state is TrainerState.AWAKE:
        place_training_state(parts)
    parts.ignored_files = files_of_others(parts)
    for group in parts.inventory.groups():
        version = parts.versions.renew(group)
        if group == FROZEN_BASE and in_file:
            parts.versions.digests[version] = in_file
            parts.file.hold((parts.file.held()[0], version))
        elif group not in {TRAINABLE_BASE, BUFFERS} and readable(parts, group):
            parts.versions.digests[version] = digest(parts.own_bytes(group))


def _check_state(parts: Parts, state: TrainerState) -> None:
    paused = [info.tag for info in parts.layout.tags().weights if info.paused]
    active = [info.tag for info in parts.layout.tags().weights if not info.paused]
    if state in OFFLOADED:
        if state != f"offloaded-{parts.config.offload_target}":
            raise ConfigError(f"initial_state is {state} but the offload target is {parts.config.offload_target}")
        wrong = active
    else:
        wrong = paused
    if wrong:
        raise ConfigError(
            f"initial_state is {state}, but the saver's books say otherwise of: {', '.join(wrong)}; "
            "declare the state that the memory is really in"
        )


def place_training_state(parts: Parts) -> None:
    """Materialise gradients and moments and place them, and the main copies, in their regions.

    Raises:
        ConfigError: the first state of an optimizer is not known, or a ``main_grad`` would leave its flat buffer.
    """
    parts.gradients.refuse_flat_main_grads(lambda one: parts.saver.tag_of(one) is not None)
    parts.layout.place("gradients", parts.gradients.materialise())
    parts.moments.materialise()
    slots = set(parts.inventory.slot_tensors())
    split: dict[str, dict[str, Tensor]] = {}
    for name, one in _on_device(parts, parts.moments.tensors()).items():
        parameter, _, kind = name.rpartition("#")
        whose, what = "adapter" if parameter in slots else "base", "main-copies" if kind == MAIN else "moments"
        split.setdefault(f"{whose}-{what}", {})[name] = one
    for content, held in split.items():
        parts.layout.place(content, held)


def _on_device(parts: Parts, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    devices = {one.device for held in parts.inventory.base.values() for one in held.values()}
    return {name: one for name, one in tensors.items() if one.device in devices}
