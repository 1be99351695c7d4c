"""``after``: what is known of an engine once it has acknowledged a step, or once the step has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from states.engine_decision import EngineStep
from states.engine_memory import (
    EngineAsk,
    EngineEvent,
    EngineMemory,
    EngineSaid,
    EngineState,
    TagState,
    is_adapter,
    without_adapters,
)
from states.handover_needs import KV_CACHE, WEIGHTS

CHANGES_NOTHING: Final = frozenset({EngineEvent.GENERATE, EngineEvent.PROBE})
"""What can fail without any doubt about the engine: it was asked for tokens, or for what it holds."""


def after(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    """What is known once the engine has acknowledged a step that was decided on this record.

    Args:
        memory: what was known.
        step: what was asked and acknowledged.
    """
    change = _CHANGES.get(step.ask.event)
    moved = replace(memory, state=step.target)
    return moved if change is None else change(moved, step)


def lost_at(memory: EngineMemory, step: EngineStep, because: str) -> EngineMemory:
    """What is known once a step has failed in an unknown place: no more than holds whether it was done or not.

    A request that generates, and a question, change nothing; then what was known stays known.

    Args:
        memory: what was known before it.
        step: what was asked.
        because: how it failed.
    """
    if step.ask.event in CHANGES_NOTHING:
        return memory
    done = after(memory, step)
    certain = tuple(one for one in memory.versions if one in done.versions)
    lose = EngineStep(EngineAsk(event=EngineEvent.LOSE, because=because), EngineState.LOST)
    return after(replace(memory, versions=certain, base_groups=done.base_groups), lose)


def broken(memory: EngineMemory, why: str) -> EngineMemory:
    """What is known once a call of the open update has failed: it can only be aborted."""
    return replace(memory, broken=why) if memory.state is EngineState.UPDATING else memory


def _tags_moved(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    reached = dict(step.moves)
    moved = replace(memory, tags=tuple((tag, reached.get(tag, state)) for tag, state in memory.tags))
    versions = _left(moved)
    gone = KV_CACHE in reached and moved.tag(KV_CACHE) is not TagState.RESIDENT
    return replace(moved, versions=versions, flushed=gone or (memory.flushed and versions == memory.versions))


def _left(memory: EngineMemory) -> tuple[tuple[str, int], ...]:
    """The versions that survive where the weights are."""
    weights = memory.tag(WEIGHTS)
    if weights is TagState.DISCARDED:
        return ()
    kept = memory.keeps_adapters or weights is not TagState.RELEASED
    return memory.versions if kept else without_adapters(memory.versions)


def _touched(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    """Bytes of a group were written, or dropped (version None): it has no version until the update is committed."""
    ask = step.ask
    held = tuple((group, version) for group, version in memory.versions if group != ask.group)
    sent = dict(memory.touched) | {ask.group: None if ask.event is EngineEvent.UNLOAD_ADAPTER else ask.version}
    base_groups = memory.base_groups
    if ask.event is EngineEvent.SEND_BASE:
        base_groups = tuple(sorted({*base_groups, ask.group}))
        if not memory.keeps_adapters:
            held = without_adapters(held)  # what the engine merged or stacked over the old base is void
    return replace(memory, versions=held, touched=tuple(sorted(sent.items())), flushed=False, base_groups=base_groups)


def _lost(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    unknown = tuple((tag, TagState.UNKNOWN) for tag, _ in memory.tags)
    because = step.ask.because or "a call failed"
    return replace(memory, because=because, tags=unknown, touched=(), flushed=False, broken="")


def _restarted(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    instance = step.ask.instance_id
    lost = _lost(memory, step)
    because = f"another instance answers ({instance or 'unknown'})"
    return replace(lost, because=because, instance_id=instance, versions=(), flushed=True)


def _probed(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    said = step.ask.said
    assert said is not None  # or neither it-admits-requests nor it-admits-none holds
    tags = tuple((tag, said.tags.get(tag, state)) for tag, state in memory.tags)
    probed = replace(memory, because="", tags=tags)
    known = _known(probed, said)
    changed = any(one not in known for one in memory.versions)  # by somebody else: caches may be of before
    probed = replace(probed, versions=known, flushed=memory.flushed and not changed)
    if step.target is not EngineState.UPDATING:
        return _aborted(probed, step)  # somebody admitted requests in the middle of an update: there is none any more
    return broken(probed, memory.broken or _undone(probed, said))


def _known(memory: EngineMemory, said: EngineSaid) -> tuple[tuple[str, int], ...]:
    """The versions that are known once it has said these. Nothing is held where the bytes are gone."""
    left = _left(memory)
    if memory.tag(WEIGHTS) is TagState.DISCARDED:
        return left
    known = dict(without_adapters(left) if said.tells_adapters else left)
    sent = {group for group, _ in memory.touched}  # what an open update has sent is committed by its commit alone
    for group, held in said.versions.items():
        if held is None:
            known.pop(group, None)
        elif group not in sent:
            known[group] = held
    return tuple(sorted(known.items()))


def _undone(memory: EngineMemory, said: EngineSaid) -> str:
    """Why what the open update has sent is not there any more, empty when it may be."""
    if memory.tag(WEIGHTS) is not TagState.RESIDENT:
        return f"its {WEIGHTS} were released meanwhile"
    missing = [
        group
        for group, version in memory.touched
        if version is not None
        and is_adapter(group)
        and (said.tells_adapters or group in said.versions)
        and said.versions.get(group) != version
    ]
    return f"it does not hold what was sent: {', '.join(missing)}" if missing else ""


def _committed(memory: EngineMemory, _: EngineStep) -> EngineMemory:
    sent = {group: version for group, version in memory.touched if version is not None}
    return replace(memory, versions=tuple(sorted((dict(memory.versions) | sent).items())), touched=())


def _aborted(memory: EngineMemory, _: EngineStep) -> EngineMemory:
    return replace(memory, touched=(), broken="")


def _flushed(memory: EngineMemory, _: EngineStep) -> EngineMemory:
    return replace(memory, flushed=True)


_CHANGES: Final[Mapping[EngineEvent, Callable[[EngineMemory, EngineStep], EngineMemory]]] = {
    EngineEvent.RELEASE: _tags_moved,
    EngineEvent.DISCARD: _tags_moved,
    EngineEvent.RESUME: _tags_moved,
    EngineEvent.SEND_BASE: _touched,
    EngineEvent.LOAD_ADAPTER: _touched,
    EngineEvent.UNLOAD_ADAPTER: _touched,
    EngineEvent.FLUSH: _flushed,
    EngineEvent.COMMIT_UPDATE: _committed,
    EngineEvent.ABORT_UPDATE: _aborted,
    EngineEvent.LOSE: _lost,
    EngineEvent.RESTART: _restarted,
    EngineEvent.PROBE: _probed,
}
