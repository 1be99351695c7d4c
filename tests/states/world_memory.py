"""Single acts on memory and on snapshots of the small world, each with the act that takes it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from states import ACTOR, OFFLOADED, TrainerState
from tests.states.world import Group, Harm, World

Change = Callable[[World], None]


@dataclass(frozen=True)
class Act:
    """One act of an effect.

    Attributes:
        name: for traces.
        do: changes the world, and returns what takes it back.
        torn: how the world looks if the act breaks off in the middle; None when it cannot.
    """

    name: str
    do: Callable[[World], Change]
    torn: Change | None = None


# --- the saver -----------------------------------------------------------------------------------


def scratch(*, paused: bool, strict: bool = False) -> Act:
    def do(world: World) -> Change:
        if strict and world.scratch is paused:
            raise Harm("pauses scratch that is paused")
        before, world.scratch = world.scratch, paused
        return lambda one: setattr(one, "scratch", before)

    return Act(f"scratch paused: {paused}", do)


def pause(world: World, name: str) -> None:
    """What the saver does at a pause. It ends the process if the tag is paused already."""
    group = world.groups[name]
    if group.paused:
        raise Harm(f"pauses {name}, which is paused")
    if group.dirty:
        raise Harm(f"pauses half-trained bytes of {name}")
    world.pin("live", name, "unmaps memory")
    if group.kind == "cpu":
        if group.host is not None:
            world.pin("saver-backup", name, "overwrites a backup")
        group.host = group.device
    if group.kind == "disk":
        group.disk = group.device
    group.device, group.paused = None, True


def resume(world: World, name: str) -> None:
    """What the saver does at a resume. It ends the process if the tag is not paused."""
    group = world.groups[name]
    if not group.paused:
        raise Harm(f"resumes {name}, which is not paused")
    group.device, group.paused = group.region, False
    if not (world.setting.retain and group.kind == "cpu"):
        if group.kind == "cpu":
            world.pin("saver-backup", name, "frees a backup")
        group.host = None
    group.disk = None


def _bring_back(world: World, name: str) -> None:
    """Write what came back without values: from the base file, or from a copy of the model that is live."""
    group = world.groups[name]
    wanted = group.bytes_of(world.active)
    if not group.paused and group.device is None and group.is_kept(wanted):
        group.device = wanted


def paused(name: str) -> Act:
    def undo(world: World) -> None:
        resume(world, name)
        _bring_back(world, name)

    def do(world: World) -> Change:
        pause(world, name)
        return undo

    return Act(f"pause {name}", do)


def resumed(name: str) -> Act:
    def do(world: World) -> Change:
        resume(world, name)
        return lambda one: pause(one, name)

    return Act(f"resume {name}", do)


def brought_back(name: str) -> Act:
    def do(world: World) -> Change:
        was_lost = world.groups[name].device is None
        _bring_back(world, name)
        return lambda one: setattr(one.groups[name], "device", None) if was_lost else None

    return Act(f"bring {name} back", do)


def driven(world: World, target: TrainerState) -> list[Act]:
    regions = [name for name, one in world.groups.items() if one.kind != "unplaced"]
    acts = [closed()]
    if target in OFFLOADED:
        acts += [paused(name) for name in regions if not world.groups[name].paused]
    else:
        acts += [resumed(name) for name in regions if world.groups[name].paused]
        acts += [brought_back(name) for name in world.loaded()]
    return [*acts, scratch(paused=target is not TrainerState.AWAKE)]


def closed() -> Act:
    def do(world: World) -> Change:
        for name, group in world.groups.items():
            if group.dirty:  # bytes that a step was changing are of a version of their own
                group.wanted = group.device = group.fresh_id()
                group.dirty = False
                world.took_a_new_id(name)
        world.step, world.loads, world.origin = None, False, None
        return lambda _: None

    return Act("close what was open", do)


def mended(name: str) -> Act:
    def do(world: World) -> Change:
        group = world.groups[name]
        _bring_back(world, name)
        if not group.paused and group.device is None:
            raise Harm(f"recovers without the bytes of {name}")
        return lambda _: None

    return Act(f"verify {name}", do)


# --- copies --------------------------------------------------------------------------------------


def readable(world: World, name: str) -> int:
    """The bytes that the trainer's own memory holds, live or in a host backup."""
    group = world.groups[name]
    if group.dirty:
        raise Harm(f"copies half-trained bytes of {name}")
    if group.paused and group.kind != "cpu":
        raise Harm(f"reads a backup of {name} that does not exist")
    if group.region is None:
        raise Harm(f"copies noise as {name}")
    return group.region


def is_due(world: World, name: str) -> bool:
    """Lean copies what nobody could read during an offload; the others copy everything."""
    group = world.groups[name]
    if group.region != group.wanted or (group.tags.get(ACTOR) == group.wanted and group.wanted in group.own):
        return False
    hidden = group.kind in ("none", "disk") and group.file != group.wanted
    return world.setting.strategy != "lean" or hidden


def _with_books(do: Callable[[World], None]) -> Callable[[World], Change]:
    """An act on snapshots alone: it is taken back by their books."""

    def act(world: World) -> Change:
        books = {name: (dict(one.tags), set(one.own)) for name, one in world.groups.items()}
        models = world.models
        do(world)

        def undo(other: World) -> None:
            other.models = models
            for name, (tags, own) in books.items():
                other.groups[name].tags, other.groups[name].own = dict(tags), set(own)

        return undo

    return act


def backed_up(name: str) -> Act:
    def do(world: World) -> None:
        if world.active != ACTOR and ACTOR in world.groups[name].tags:
            raise Harm(f'copies {name} of "{world.active}" over the actor\'s copy')
        world.put(ACTOR, name, readable(world, name))

    return Act(f"back up {name}", _with_books(do))


def is_overwritten(group: Group, target: str) -> bool:
    return group.device not in (None, group.bytes_of(target)) and not group.is_kept(group.device)


def kept(name: str) -> Act:
    def do(world: World) -> None:
        group = world.groups[name]
        version = readable(world, name)
        tag = ACTOR if version == group.wanted else world.active
        if group.bytes_of(tag) != version:
            raise Harm(f'keeps bytes of {name} under the name of "{tag}", which no longer consists of them')
        world.put(tag, name, version, own=True)

    return Act(f"keep {name}", _with_books(do))


def restored(name: str, target: str) -> Act:
    def torn(world: World) -> None:
        group = world.groups[name]
        if group.bytes_of(target) != group.device:
            group.device = None

    def do(world: World) -> Change:
        group = world.groups[name]
        before, wanted = group.device, group.bytes_of(target)
        if wanted == before:
            return lambda _: None
        world.pin("live", name, "overwrites weights")
        if not group.is_kept(wanted):
            raise Harm(f'restores {name} of "{target}" from bytes that nobody holds')
        if before is not None and not group.is_kept(before):
            raise Harm(f"overwrites the only bytes of {name}")
        if group.dirty or group.paused:
            raise Harm(f"writes {name} where a step is open or memory is paused")
        group.device = wanted
        return lambda one: setattr(one.groups[name], "device", before)

    return Act(f"restore {name}", do, torn)


def activated(target: str) -> Act:
    def do(world: World) -> Change:
        before, world.active = world.active, target
        return lambda one: setattr(one, "active", before)

    return Act(f"activate {target}", do)
