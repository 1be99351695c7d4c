"""What each effect does to the small world: a list of single acts, each with the act that takes it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from states import ACTOR, FROZEN_BASE, Effect, Step, TrainerState
from tests.states import world_memory as memory
from tests.states.world import ADAPTER, Harm, World
from tests.states.world_memory import Act, Change, readable


@dataclass(frozen=True)
class Asked:
    """What an event is asked with.

    Attributes:
        adapters: of a step.
        loads: the step loads a checkpoint.
        target: of a switch.
    """

    adapters: tuple[str, ...] = ()
    loads: bool = False
    target: str = ACTOR


Acts = Callable[[World, Step, Asked], list[Act]]


def acts_of(step: Step, asked: Asked) -> Iterator[tuple[Effect, Callable[[World], list[Act]]]]:
    """The effects of a step, each with what lists its acts in the world that it finds."""
    for effect in step.effects:
        if effect in _EFFECTS:
            yield effect, lambda world, listed=_EFFECTS[effect]: listed(world, step, asked)  # type: ignore[misc]


def _regions(world: World, *, paused: bool | None = None) -> list[str]:
    placed = ((name, one) for name, one in world.groups.items() if one.kind != "unplaced")
    return [name for name, one in placed if paused is None or one.paused is paused]


def _resume_weights(world: World, _step: Step, _asked: Asked) -> list[Act]:
    if _regions(world, paused=True) and _regions(world, paused=False):
        raise Harm("resumes a trainer of which a part is paused")
    if world.transport:
        raise Harm("takes memory while receivers map buffers of the last push")
    return [memory.resumed(name) for name in _regions(world, paused=True)]


def _keep_outgoing(world: World, _step: Step, asked: Asked) -> list[Act]:
    groups = world.loaded().items()
    return [memory.kept(name) for name, one in groups if memory.is_overwritten(one, asked.target)]


def _restore_model(world: World, _step: Step, asked: Asked) -> list[Act]:
    return [*(memory.restored(name, asked.target) for name in world.loaded()), memory.activated(asked.target)]


# --- adapters, steps, engines --------------------------------------------------------------------


def adapters_written(world: World) -> list[Act]:
    acts = []
    if world.groups[ADAPTER].wanted is not None and world.registered in ("none", "new"):
        acts.append(_slot(ADAPTER, load=False))
    if world.registered == "new":
        acts.append(_slot(ADAPTER, load=True))
    return acts


def _slot(name: str, *, load: bool) -> Act:
    def do(world: World) -> Change:
        group, registered, acked, books = world.groups[name], world.registered, world.acked, world.groups[name].copy()
        if group.paused and group.kind != "cpu":
            raise Harm("writes an adapter into paused memory")
        if group.dirty or world.step is not None:
            raise Harm("changes an adapter in the middle of a step")
        if world.active != ACTOR:
            raise Harm(f'writes an adapter of the actor into "{world.active}"')
        for source in ("live", "saver-backup"):
            world.pin(source, name, "writes an adapter")
        version = group.fresh_id() if load else None
        group.wanted = version
        if group.paused:
            group.host = version
        else:
            group.device = version
        group.tags, group.own = {}, set()
        world.registered = "same" if load else world.registered
        world.took_a_new_id(name)

        def undo(other: World) -> None:
            other.groups[name] = books.copy()
            other.registered, other.acked = registered, acked

        return undo

    return Act(f"{'load' if load else 'retire'} {name}", do)


def step_opened(asked: Asked) -> Act:
    def do(world: World) -> Change:
        books = {name: (dict(one.tags), set(one.own)) for name, one in world.groups.items()}
        _can_train(world)
        world.step, world.loads = asked.adapters, asked.loads
        for name in world.changed_by(asked.adapters, loads=asked.loads):
            group = world.groups[name]
            world.pin("live", name, "changes weights")
            if asked.loads and name == FROZEN_BASE:
                group.own |= set(group.tags.values())  # who borrowed the base gets it before it changes
            group.dirty = True

        def undo(other: World) -> None:
            other.step, other.loads = None, False
            for name, (tags, own) in books.items():
                other.groups[name].dirty = False
                other.groups[name].tags, other.groups[name].own = dict(tags), set(own)

        return undo

    return Act("open the step", do)


def _can_train(world: World) -> None:
    if world.step is not None:
        raise Harm("opens a step inside another one")
    if world.active != ACTOR:
        raise Harm(f'trains "{world.active}"')
    if world.scratch:
        raise Harm("computes gradients in paused memory")
    for name, group in world.loaded().items():
        if group.device != group.wanted:
            raise Harm(f"computes on other bytes than the newest of {name}")


def renew(world: World) -> None:
    """The bytes that the open step has changed take new ids, and the step is closed."""
    for name, group in world.groups.items():
        if group.dirty:
            group.wanted = group.device = group.fresh_id()
            group.dirty = False
            world.took_a_new_id(name)
    world.step, world.loads = None, False


def committed() -> Act:
    def do(world: World) -> Change:
        if world.step is None:
            raise Harm("commits a step that was not opened")
        if ADAPTER.removeprefix("adapter/") in world.step and world.groups[ADAPTER].wanted is None:
            raise Harm("commits an adapter without a slot")
        step, loads, acked = world.step, world.loads, world.acked
        changed = {name: (one.wanted, one.device) for name, one in world.groups.items() if one.dirty}
        for name in changed:
            world.pin("live", name, "changes weights")
        renew(world)

        def undo(other: World) -> None:
            other.step, other.loads, other.acked = step, loads, acked
            for name, (wanted, device) in changed.items():
                other.groups[name].wanted, other.groups[name].device = wanted, device
                other.groups[name].dirty = True

        return undo

    return Act("commit", do)


def file_written() -> Act:
    def do(world: World) -> Change:
        group = world.groups[FROZEN_BASE]
        before = group.file
        if before != group.wanted:
            group.file = readable(world, FROZEN_BASE)
        return lambda one: setattr(one.groups[FROZEN_BASE], "file", before)

    return Act("write the base file", do)


def sent(step: Step) -> Act:
    def fence(world: World) -> None:
        world.fenced, world.acked = "engine" in world.setting.life, frozenset()

    def do(world: World) -> Change:
        if not world.resident:
            raise Harm("writes weights into memory that the engine has released")
        for read in step.reads:
            if read.group not in world.acked or world.fenced:
                check_read(world, read.source, read.group, read.tag)
        if "engine" not in world.setting.life:
            return fence  # an engine that remembers nothing is behind at every moment
        world.acked, world.fenced = frozenset(world.loaded()), False
        world.serves = ADAPTER in world.loaded()
        world.transport = world.setting.colocate
        return fence

    return Act("send", do, fence)


def check_read(world: World, source: object, name: str, tag: str) -> None:
    """Raise unless the source really holds the newest bytes of the group."""
    found = None if source is None else world.place_of(source, name, tag)  # type: ignore[arg-type]
    wanted = world.groups[name].wanted
    if found != wanted:
        raise Harm(f"reads {found or 'nothing'} of {name} from {tag or source}, wanted is {wanted}")


def after(step: Step, world: World) -> None:
    """What is done once all effects have succeeded: the state moves, and lean drops copies of older bytes."""
    world.state = step.target
    world.origin = step.state if step.target is TrainerState.ADAPTER_RECONCILING else None
    if Effect.COMMIT_VERSIONS in step.effects:
        forget_stale(world)


def forget_stale(world: World) -> None:
    """Lean drops the actor's copies of bytes that are no longer the newest: they serve nobody."""
    for group in world.groups.values() if world.setting.strategy == "lean" else ():
        if group.tags.get(ACTOR) not in (None, group.wanted):
            del group.tags[ACTOR]


_EFFECTS: Final[dict[Effect, Acts]] = {
    Effect.PAUSE_SCRATCH: lambda _world, _step, _asked: [memory.scratch(paused=True, strict=True)],
    Effect.RESUME_SCRATCH: lambda world, _step, _asked: [memory.scratch(paused=False)] if world.scratch else [],
    Effect.PAUSE_WEIGHTS: lambda world, _step, _asked: [memory.paused(name) for name in _regions(world)],
    Effect.RESUME_WEIGHTS: _resume_weights,
    Effect.RESTORE_LOST: lambda world, _step, _asked: [memory.brought_back(name) for name in world.loaded()],
    Effect.WRITE_ADAPTERS: lambda world, _step, _asked: adapters_written(world),
    Effect.BACKUP_ACTOR: lambda world, _step, _asked: [
        memory.backed_up(name) for name in world.loaded() if memory.is_due(world, name)
    ],
    Effect.KEEP_OUTGOING: _keep_outgoing,
    Effect.RESTORE_MODEL: _restore_model,
    Effect.OPEN_STEP: lambda _world, _step, asked: [step_opened(asked)],
    Effect.COMMIT_VERSIONS: lambda _world, _step, _asked: [committed()],
    Effect.WRITE_BASE_FILE: lambda world, _step, _asked: [file_written()] if world.setting.file else [],
    Effect.SEND_WEIGHTS: lambda _world, step, _asked: [sent(step)],
    Effect.DRIVE_TAGS: lambda world, step, _asked: memory.driven(world, step.target),
    Effect.VERIFY_AND_MEND: lambda world, _step, _asked: [memory.mended(name) for name in world.loaded()],
}
"""The effects that touch what this world knows of. Gradients, groups, caches and digests it does not."""
