"""What users, engines and the registry do to the small world between two events of the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from states import ACTOR, Facts, Source, TrainerState, decide_read
from tests.states.world import ADAPTER, Group, World
from tests.states.world_effects import check_read, forget_stale, renew
from tests.states.world_memory import readable

_AWAKE, _FAULTED = TrainerState.AWAKE, TrainerState.FAULTED
_RECONCILING = TrainerState.ADAPTER_RECONCILING

Doing = tuple[str, Callable[[World], None]]


def doings(world: World, facts: Facts) -> Iterator[tuple[str, World]]:
    """Each thing that may happen, and the world after it. Nothing does while a reconcile is under way."""
    if world.state is _RECONCILING:
        return
    found = [*_readers(world, facts), *_steps(world), *_registry(world), *_engine(world), *_models(world)]
    for how, do in found:
        other = world.copy()
        do(other)
        yield how, other


def _set(**changes: object) -> Callable[[World], None]:
    def do(world: World) -> None:
        for name, value in changes.items():
            setattr(world, name, value)

    return do


def _readers(world: World, facts: Facts) -> Iterator[Doing]:
    if world.lease is not None:
        yield "close the lease", _set(lease=None)
        return
    if world.state is _FAULTED or "readers" not in world.setting.life:
        return
    for content in facts.contents:
        read = decide_read(content, facts)
        if read.source is None or (world.groups[content.group].dirty and read.source is Source.LIVE):
            continue
        check_read(world, read.source, content.group, read.tag)
        source = f"snapshot:{read.tag}" if read.source is Source.SNAPSHOT else str(read.source)
        yield f"lease {content.group} from {source}", _set(lease=(source, content.group))


def _steps(world: World) -> Iterator[Doing]:
    if world.step is not None and world.state is _AWAKE:
        yield "the step is abandoned", _abandon


def _abandon(world: World) -> None:
    renew(world)
    forget_stale(world)


def _registry(world: World) -> Iterator[Doing]:
    if ADAPTER not in world.groups or world.step is not None or "registry" not in world.setting.life:
        return
    if world.registered == "none":
        yield "register A", _set(registered="new")
    else:
        yield "deregister A", _set(registered="none")


def _engine(world: World) -> Iterator[Doing]:
    if world.step is not None or world.lease is not None or "engine" not in world.setting.life:
        return  # it shares nothing with a step or a reader: the order makes no difference
    yield (
        "the engine releases its weights" if world.resident else "the engine takes its weights",
        _set(resident=not world.resident),
    )
    if world.acked:
        yield "the engine starts anew", _set(acked=frozenset(), serves=False, fenced=False)
    if world.transport:
        yield "receivers close their buffers", _set(transport=False)


def _models(world: World) -> Iterator[Doing]:
    if "models" not in world.setting.life or world.step is not None or world.lease is not None:
        return
    if world.state is not _FAULTED and _can_be_released(world, "ref"):
        yield "release ref", _release("ref")
    if world.state is not _AWAKE:
        return
    base = next(iter(world.groups))
    if world.active == ACTOR:
        if "ref" not in world.models:
            yield "keep ref as the model is", _keep_all
            yield "keep another base as ref", lambda one: _keep_other(one, base)
    elif world.groups[base].tags.get("ref") == world.groups[base].device:
        yield "renew ref", lambda one: _keep_other(one, base)


def _keep_all(world: World) -> None:
    for name in world.loaded():
        world.put("ref", name, readable(world, name))


def _keep_other(world: World, base: str) -> None:
    world.put("ref", base, world.groups[base].fresh_id(), own=True)


def _can_be_released(world: World, tag: str) -> bool:
    """A copy is not dropped while it is the last readable one of the newest bytes of a group."""

    def is_elsewhere(group: Group) -> bool:
        others = {version for other, version in group.tags.items() if other != tag}
        readable_now = group.host if group.paused else group.device
        return group.wanted in {readable_now, group.file, *(group.own & others)}

    holds = [one for one in world.loaded().values() if one.tags.get(tag) == one.wanted and one.wanted in one.own]
    return tag in world.models and all(map(is_elsewhere, holds))


def _release(tag: str) -> Callable[[World], None]:
    def do(world: World) -> None:
        world.models -= {tag}
        for group in world.groups.values():
            group.tags.pop(tag, None)

    return do
