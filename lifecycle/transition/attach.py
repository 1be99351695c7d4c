"""Attaching a trainer: build the parts, lay the memory out once, take the first versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.config import LifecycleConfig
from lifecycle.errors import ConfigError
from lifecycle.memory import host
from lifecycle.memory.gradients import Gradients
from lifecycle.memory.inventory import Inventory
from lifecycle.memory.layout import Layout
from lifecycle.memory.optimizer_state import OptimizerState, optimizers_of
from lifecycle.process_groups import ProcessGroups
from lifecycle.saver import MemorySaver
from lifecycle.transition.parts import Parts
from lifecycle.weights.digests import digest
from lifecycle.weights.door import Door
from lifecycle.weights.snapshots import SnapshotStore
from states import BUFFERS, OFFLOADED, RESTING, TRAINABLE_BASE, TrainerState


def build_parts(
    config: LifecycleConfig,
    saver: MemorySaver,
    model: nn.Module,
    optimizer: Optimizer | Mapping[int, Optimizer] | Sequence[Optimizer] | None,
    adapters: AdapterHost | None,
    snapshots: SnapshotStore,
    groups: ProcessGroups | None,
) -> Parts:
    """Put the parts of one trainer together. Allocates nothing.

    Raises:
        ConfigError: the parts contradict the configuration.
    """
    if config.lora and adapters is None:
        raise ConfigError("the configuration says LoRA but no adapters were given; pass adapters=, or set lora=False")
    if config.offload_target == "disk" and saver.disk_dir is None:
        raise ConfigError("the offload target is disk but the saver has no disk directory; give it one")
    optimizers = optimizers_of(optimizer)
    if adapters is not None:
        _check_slots(model, adapters, optimizers)
    inventory = Inventory(model, adapters, config.frozen_buffers)
    _check_prefix(config.model, saver, inventory)
    trainable = inventory.trainable()
    return Parts(
        config=config,
        saver=saver,
        inventory=inventory,
        layout=Layout(saver, config.model, config.offload_target),
        snapshots=snapshots,
        door=Door(saver, snapshots),
        gradients=Gradients(trainable),
        moments=OptimizerState(optimizers, trainable),
        adapters=adapters,
        groups=groups,
    )


def _check_prefix(model: str, saver: MemorySaver, inventory: Inventory) -> None:
    """Tags are told apart by their prefix: nobody else's tensors may lie under this trainer's."""
    own = {saver.tag_of(one) for held in inventory.base.values() for one in held.values()}
    own |= {saver.tag_of(one) for one in inventory.slot_tensors().values()}
    taken = [tag for tag in saver.tags() if tag.startswith(f"{model}/") and tag not in own]
    if taken:
        raise ConfigError(
            f"the saver holds {', '.join(taken)} already, which are not this trainer's; "
            "give each trainer and engine a name of its own (LifecycleConfig(model=...))"
        )


def _check_slots(model: nn.Module, adapters: AdapterHost, optimizers: tuple[Optimizer, ...]) -> None:
    """The slots are the model's, and no optimizer moves one slot when another steps."""
    own = {id(parameter) for parameter in model.parameters()}
    slots = [{id(one) for one in adapters.slot_tensors(slot).values()} for slot in range(adapters.slots)]
    if any(not slot <= own for slot in slots):
        raise ConfigError("the adapters sit on another model; pass the one that they were built on")
    for optimizer in optimizers:
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        shared = [slot for slot, tensors in enumerate(slots) if held & tensors]
        if len(shared) > 1:
            raise ConfigError(
                f"one {type(optimizer).__name__} holds the parameters of slots {shared}: gradients are kept as "
                "zeros, so a step of one adapter would move the others by their momentum; use one optimizer a slot"
            )


def lay_out(parts: Parts, initial_state: TrainerState) -> None:
    """Place every tensor that is not placed, and take the first version of each content group.

    Raises:
        ConfigError: *initial_state* is no resting state, or not what the saver's books say.
        SaverError: there is no room.
    """
    if initial_state not in RESTING:
        raise ConfigError(f"initial_state is {initial_state}; a trainer starts in one of {', '.join(RESTING)}")
    base = {name: one for held in parts.inventory.base.values() for name, one in held.items()}
    parts.layout.place("base", base)
    parts.layout.place("adapters", parts.inventory.slot_tensors())
    _check_state(parts, initial_state)
    if initial_state is TrainerState.AWAKE:
        place_training_state(parts)
    parts.ignored_files = host.backup_files(parts.saver.disk_dir)
    for group in parts.inventory.groups():
        version = parts.versions.renew(group)
        if group not in {TRAINABLE_BASE, BUFFERS} and _readable(parts, group):
            parts.versions.digests[version] = digest(parts.own_bytes(group))


def _readable(parts: Parts, group: str) -> bool:
    held = parts.inventory.groups()[group].values()
    return all(parts.door.is_live(one) or parts.door.has_backup(one) for one in held)


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
    """Materialise gradients and moments and place them in their regions.

    Raises:
        ConfigError: the first state of an optimizer is not known.
    """
    parts.layout.place("gradients", parts.gradients.materialise())
    parts.moments.materialise()
    parts.layout.place("optimizer", _on_device(parts, parts.moments.tensors()))


def _on_device(parts: Parts, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    devices = {one.device for held in parts.inventory.base.values() for one in held.values()}
    return {name: one for name, one in tensors.items() if one.device in devices}
