"""The events that faults are injected into, the configurations they run in, and what must be the same afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from lifecycle import HostArena, TrainerEvent, TrainerState
from lifecycle.errors import UnreadableTensor
from lifecycle.saver import Backup, TagInfo
from states import ACTOR, FROZEN_BASE
from tests.lifecycle.world import FakeEngine, World, content_of, make_world

CONFIGURATIONS: dict[str, dict[str, object]] = {
    "lean-cpu-saver-always": {"strategy": "lean", "verify": "always", "with_ref": True},
    "lean-cpu-file-sampled-trainable": {"strategy": "lean", "frozen_base": "file", "trainable": True},
    "lean-disk-always": {"strategy": "lean", "offload_target": "disk", "verify": "always", "with_ref": True},
    "reference-cpu-saver-off-trainable": {"strategy": "reference", "verify": "off", "trainable": True},
    "reference-cpu-file-always": {"strategy": "reference", "frozen_base": "file", "verify": "always"},
    "reference-disk-sampled-trainable": {
        "strategy": "reference",
        "offload_target": "disk",
        "trainable": True,
        "with_ref": True,
    },
    "duplicate-cpu-saver-sampled": {"strategy": "duplicate", "with_ref": True},
    "duplicate-cpu-file-off": {"strategy": "duplicate", "frozen_base": "file", "verify": "off", "with_ref": True},
    "duplicate-disk-always-trainable": {
        "strategy": "duplicate",
        "offload_target": "disk",
        "verify": "always",
        "trainable": True,
    },
}
"""Every pair of strategy, target and backing, verify and trainable base is in one of them."""


@dataclass
class Case:
    """A world in which one event may be sent."""

    world: World
    folder: Path
    send: Callable[[], object]
    engines: tuple[FakeEngine, ...] = ()
    before: dict[str, object] = field(default_factory=dict)


def _another(world: World, add: float = 1) -> dict[str, Tensor]:
    base = world.trainer._parts.inventory.base[FROZEN_BASE]
    return {name: one.detach() + add for name, one in base.items()}


def _lived_in(settings: Mapping[str, object], folder: Path) -> World:
    """A trained world with an accumulation under way, a kept model with another base, and one that shares the base."""
    torch.manual_seed(11)
    world = make_world(arena=HostArena(disk_dir=str(folder)), **settings)
    world.train("A", "B")
    world.trainer.keep_model("ref", _another(world))
    world.trainer.keep_model("old_actor")
    world.train("A")
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    return world


def _case(world: World, folder: Path, send: Callable[[], object]) -> Case:
    return Case(world, folder, send)


def _asleep(settings: Mapping[str, object], folder: Path, *, offload: bool) -> World:
    world = _lived_in(settings, folder)
    world.trainer.sleep(offload=offload)
    return world


def _cycled(settings: Mapping[str, object], folder: Path) -> World:
    """Backup files and the like are there already."""
    world = _asleep(settings, folder, offload=True)
    world.trainer.wake_up()
    world.trainer.sleep()
    return world


def _changes(world: World) -> None:
    world.host.register("C", 2)
    world.host.register("B", 1)
    world.host.deregister("A")


def _reconcile(world: World, folder: Path) -> Case:
    _changes(world)
    return _case(world, folder, world.trainer.reconcile_adapters)


def _update(world: World, folder: Path) -> Case:
    engine = FakeEngine()
    return Case(world, folder, lambda: world.trainer.update_weights([engine]), (engine,))


def _trained(settings: Mapping[str, object], folder: Path, *, loads: bool) -> Case:
    world = _lived_in(settings, folder)
    if loads:
        world.trainer._send(TrainerEvent.BEGIN_STEP, loads=True)
        with torch.no_grad():
            world.model.up += 3
        return _case(world, folder, lambda: world.trainer._send(TrainerEvent.TRAINED))
    world.trainer.begin_step(["B"])
    world.backward("B")
    world.optimizers[1].step()
    return _case(world, folder, world.trainer.trained)


def _switched(settings: Mapping[str, object], folder: Path, *, back: bool) -> Case:
    world = _lived_in(settings, folder)
    if settings["strategy"] != "lean":
        world.trainer.snapshots.backup(ACTOR)
    if not back:
        return _case(world, folder, lambda: world.trainer.switch_model("ref"))
    world.trainer.switch_model("ref")
    return _case(world, folder, lambda: world.trainer.switch_model(ACTOR))


def _kept(world: World, folder: Path) -> Case:
    teacher = _another(world, 5) | {"bias": world.model.bias + 5}
    return _case(world, folder, lambda: world.trainer.keep_model("teacher", teacher))


Make = Callable[[Mapping[str, object], Path], Case]
EVENTS: dict[str, Make] = {
    "sleep": lambda s, f: _case(w := _lived_in(s, f), f, w.trainer.sleep),
    "offload": lambda s, f: _case(w := _asleep(s, f, offload=False), f, w.trainer.offload),
    "offload again": lambda s, f: _case(w := _cycled(s, f), f, w.trainer.offload),
    "wake_up": lambda s, f: _case(w := _asleep(s, f, offload=True), f, w.trainer.wake_up),
    "wake_up from sleeping": lambda s, f: _case(w := _asleep(s, f, offload=False), f, w.trainer.wake_up),
    "reconcile_adapters": lambda s, f: _reconcile(_lived_in(s, f), f),
    "reconcile_adapters offloaded": lambda s, f: _reconcile(_asleep(s, f, offload=True), f),
    "update_weights": lambda s, f: _update(_lived_in(s, f), f),
    "update_weights offloaded": lambda s, f: _update(_asleep(s, f, offload=True), f),
    "begin_step": lambda s, f: _case(w := _lived_in(s, f), f, lambda: w.trainer.begin_step(["B"])),
    "begin_step that loads": lambda s, f: _case(
        w := _lived_in(s, f), f, lambda: w.trainer._send(TrainerEvent.BEGIN_STEP, loads=True)
    ),
    "trained": lambda s, f: _trained(s, f, loads=False),
    "trained, a checkpoint": lambda s, f: _trained(s, f, loads=True),
    "switch_model": lambda s, f: _switched(s, f, back=False),
    "switch_model back": lambda s, f: _switched(s, f, back=True),
    "keep_model": lambda s, f: _kept(_lived_in(s, f), f),
    "snapshots.backup": lambda s, f: _case(w := _lived_in(s, f), f, lambda: w.trainer.snapshots.backup("copy")),
}


def state_of(world: World, folder: Path) -> dict[str, object]:
    """Everything that a fault must leave as it was; digests of whatever can be read."""
    parts, trainer = world.trainer._parts, world.trainer
    return {
        "state": trainer.state,
        "active": trainer.active_model,
        "contents": trainer.facts().contents,
        "tags": {tag: _without_a_file(info) for tag, info in world.arena.tags().items()},
        "loaded": dict(world.host.loaded()),
        "step": (parts.runtime.step, parts.runtime.loads, parts.runtime.accumulated, parts.runtime.origin),
        "bytes": readable_bytes(world),
        "gradients": gradient_bytes(world),
        "snapshots": snapshot_bytes(world),
        "held": replace(trainer.ledger.held, saver_disk={}),
        "files": {path.name: path.stat().st_size for path in folder.glob("base-*")},
        "slots": [(one.held, one.staged, one.slot is None) for one in world.arena.port._estate.blocks.values()],
    }


def _without_a_file(info: TagInfo) -> TagInfo:
    """A backup file stays when its region is active again, and is used by the next pause."""
    return replace(info, backup_bytes=0) if info.backup is Backup.DISK and not info.paused else info


def readable_bytes(world: World) -> dict[str, str]:
    """SHA-256 of every weight and moment that can be read where it is, and of the base file's tensors."""
    parts, found = world.trainer._parts, {}
    tensors = {name: one for held in parts.inventory.groups().values() for name, one in held.items()}
    for name, one in (tensors | parts.inventory.slot_tensors() | parts.moments.tensors()).items():
        try:
            found[name] = content_of({name: parts.door.own_bytes(name, one)})
        except UnreadableTensor:
            continue
    if parts.file.version is not None:
        base = parts.inventory.base[FROZEN_BASE]
        found |= {f"file {name}": content_of({name: parts.file.tensor(name)}) for name in base}
    return found


def gradient_bytes(world: World) -> dict[str, str]:
    """SHA-256 of accumulated gradients, where they are."""
    parts = world.trainer._parts
    names = parts.parameter_names(sorted(parts.runtime.accumulated))
    if any(info.paused for info in parts.layout.tags().scratch):
        return {name: content_of({name: one}) for name, one in parts.gradients._kept.items()}
    homes = dict(zip(names, parts.gradients.homes(names), strict=True))
    return {name: content_of({name: one}) for name, one in homes.items()}


def snapshot_bytes(world: World) -> dict[tuple[str, str], tuple[object, str | None]]:
    """Version and SHA-256 of each group of each tag; no digest for what is borrowed."""
    store = world.trainer.snapshots
    return {
        (tag, group): (one.version, None if one.tensors is None else content_of(one.tensors))
        for tag, groups in store._tags.items()
        for group, one in groups.items()
    }


def home(world: World) -> dict[str, object]:
    """Wake up, put the actor back, and say which bytes are there."""
    if world.trainer.state is not TrainerState.AWAKE:
        world.trainer.wake_up()
    if world.trainer.active_model != ACTOR:
        world.trainer.switch_model(ACTOR)
    return {"bytes": readable_bytes(world), "gradients": gradient_bytes(world)}
