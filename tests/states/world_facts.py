"""The facts of the small world, read off its bytes; and what is wrong with a state, whatever led to it."""

from __future__ import annotations

from collections.abc import Iterator

from states import (
    ACTOR,
    FROZEN_BASE,
    RESTING,
    ContentFacts,
    EngineFacts,
    Facts,
    LeaseFacts,
    Source,
    TrainerState,
    decide_read,
)
from tests.states import world_effects as effects
from tests.states.world import ADAPTER, Group, Harm, World


def content_of(name: str, group: Group) -> ContentFacts:
    """The facts of one group, read off its bytes."""
    own = {tag for tag, version in group.tags.items() if version in group.own}
    live = group.region if not group.paused else None  # while a step is open its bytes still go by their old name
    saver = group.host if group.kind == "cpu" else None
    held = {live, saver, group.file, *(group.tags[tag] for tag in own)}
    is_lost = group.paused and group.kind != "cpu" and group.wanted not in held
    return ContentFacts(
        group=name,
        version=int(group.wanted or 0),
        live=live,
        saver=saver,
        retained=group.host is not None and not group.paused,
        file=group.file,
        copies=tuple(sorted(group.tags.items())),
        borrowed=tuple(sorted(group.tags.keys() - own)),
        backup=group.kind,
        frozen=name == FROZEN_BASE,
        unreadable=("weight",) if is_lost else (),
    )


def facts_of(world: World) -> Facts:
    """What the guards may look at, read off the world."""
    setting, loaded = world.setting, world.loaded()
    regions = [one for one in world.groups.values() if one.kind != "unplaced"]
    slot = world.groups.get(ADAPTER)
    has_adapter = slot is not None and slot.wanted is not None
    stale = tuple(name for name in loaded if world.fenced or name not in world.acked)
    engine = EngineFacts(
        "E0",
        weights_resident=world.resident,
        stale=stale,
        extra=("A",) if world.serves and not has_adapter else (),
        fenced="a push failed" if world.fenced else "",
    )
    return Facts(
        colocate=setting.colocate,
        lora=setting.lora,
        offload_target=setting.target,
        with_ref=setting.with_ref,
        strategy=setting.strategy,
        frozen_base="file" if setting.file else "saver",
        active_model=world.active,
        models=tuple(sorted(world.models)),
        contents=tuple(content_of(name, one) for name, one in loaded.items()),
        origin=world.origin,
        to_load=("A",) if slot is not None and world.registered == "new" else (),
        to_retire=("A",) if has_adapter and world.registered != "same" else (),
        step_open=world.step is not None,
        engines=(engine,),
        leases=() if world.lease is None else (LeaseFacts("reader", world.lease[0], (world.lease[1],)),),
        unwritable=("slot",) if slot is not None and slot.paused and slot.kind != "cpu" else (),
        transport_bytes=int(world.transport),
        active_tags=sum(not one.paused for one in regions),
        paused_tags=sum(one.paused for one in regions),
        scratch_paused=world.scratch,
    )


def is_well(world: World) -> bool:
    """Awake, and the actor can train; or bytes of no model are live, and the user has to say what becomes of them."""
    if world.state is not TrainerState.AWAKE or world.step is not None:
        return False
    live = world.loaded().values()
    foreign = [
        one for one in live if one.device not in (None, one.bytes_of(world.active)) and not one.is_kept(one.device)
    ]
    return bool(foreign) or (world.active == ACTOR and all(one.device == one.wanted for one in live))


def judged(world: World) -> Iterator[str]:
    """What is wrong with a state, whatever led to it."""
    for name, group in world.loaded().items():
        yield from _lost(world, name, group)
        if world.state in RESTING and not group.dirty:
            yield from _misread(world, name, group)
    if FROZEN_BASE in world.groups:
        yield from _second_copies(world, world.groups[FROZEN_BASE])


def _lost(world: World, name: str, group: Group) -> Iterator[str]:
    held = {group.file, *group.own, None if group.dirty else group.region}
    if not group.dirty and group.wanted not in held:
        yield f"the newest bytes of {name} are nowhere"
    for tag, version in group.tags.items():
        if tag != ACTOR and version not in held:
            yield f'the bytes of {name} that "{tag}" consists of are nowhere'


def _misread(world: World, name: str, group: Group) -> Iterator[str]:
    read = decide_read(content_of(name, group), facts_of(world))
    try:
        effects.check_read(world, read.source, name, read.tag)
    except Harm as harm:
        yield str(harm)
    if read.source is Source.SAVER_BACKUP and not group.paused and name != FROZEN_BASE:
        yield f"reads {name} from the backup of an earlier pause"


def _second_copies(world: World, base: Group) -> Iterator[str]:
    setting = world.setting
    if base.kind == "none" and base.host is not None:
        yield "a base that comes back from elsewhere has a host backup too"
    is_hidden = base.kind in ("none", "disk") and base.file != base.wanted
    alone = setting.colocate and setting.lora and setting.target == "cpu" and not setting.with_ref
    had_other_bytes = "models" in setting.life or ("loads" in setting.life and base.kind == "none")
    needs_none = (setting.strategy == "lean" and not had_other_bytes) or (setting.strategy == "reference" and alone)
    if needs_none and not (is_hidden and setting.strategy == "lean") and base.own:
        yield f"a second host copy of the frozen base is held: {sorted(base.tags)}"
