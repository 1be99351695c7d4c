"""``decide_engine`` and ``after``: what may be asked of an engine, and what is known once it has acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from states.engine_memory import (
    EngineAsk,
    EngineEvent,
    EngineMemory,
    EngineState,
    TagState,
    without_adapters,
)
from states.engine_table import ENGINE_TABLE, REMEDIES, TAG_TABLE, EngineRow
from states.handover_needs import KV_CACHE, WEIGHTS
from states.verdict import NotABool, Verdict


@dataclass(frozen=True, slots=True)
class EngineStep(NotABool):
    """It may be asked.

    Attributes:
        ask: what is asked.
        target: the state that is reached once it is acknowledged.
        tags: the tags that change, in the order of the engine's own; empty where all of them are so already.
        settled: it holds already: nothing is sent to the engine.
        verdicts: every guard that was asked; all hold.
    """

    ask: EngineAsk
    target: EngineState
    tags: tuple[str, ...] = ()
    settled: bool = False
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRefusal(NotABool):
    """It may not be asked. Nothing is sent.

    Attributes:
        ask: what was asked.
        state: the state the engine is and stays in.
        failed: each verdict that does not hold.
    """

    ask: EngineAsk
    state: EngineState
    failed: tuple[Verdict, ...]

    def __str__(self) -> str:
        reasons = "; ".join(f"{one.because} ({one.name})" for one in self.failed)
        remedies = "; ".join(dict.fromkeys(one.remedy for one in self.failed))
        return f"cannot {self.ask.event} while it is {self.state}: {reasons}; {remedies}"


_TAG_MOVES: Final = (EngineEvent.RELEASE, EngineEvent.DISCARD, EngineEvent.RESUME)


def decide_engine(memory: EngineMemory, ask: EngineAsk) -> EngineStep | EngineRefusal:
    """Decide whether something may be asked of an engine. Pure: equal arguments, equal answer.

    Args:
        memory: what is known of the engine.
        ask: what is asked.
    """
    rows = [one for one in ENGINE_TABLE if one.source is memory.state and one.event is ask.event]
    row = next((one for one in rows if all(selector(memory, ask) for selector in one.when)), None)
    if row is None:
        because = f"it is {memory.state}" + (f": {memory.because}" if memory.state is EngineState.LOST else "")
        verdict = Verdict("the-event-leaves-this-state", False, because, REMEDIES[memory.state])
        return EngineRefusal(ask, memory.state, (verdict,))
    verdicts = tuple(guard(memory, ask) for guard in row.guards)
    if not all(verdicts):
        return EngineRefusal(ask, memory.state, tuple(one for one in verdicts if not one.holds))
    tags = tuple(tag for tag, state in memory.tags if tag in ask.tags and _next(memory, tag, state, ask.event))
    return EngineStep(ask, row.target, tags, _is_settled(memory, row, tags), verdicts)


def _is_settled(memory: EngineMemory, row: EngineRow, tags: tuple[str, ...]) -> bool:
    if row.event in _TAG_MOVES:
        return not tags
    if row.event is EngineEvent.FLUSH and memory.tag(KV_CACHE) in (TagState.RELEASED, TagState.DISCARDED):
        return True  # what was cached went with the memory
    return row.settled


def _next(memory: EngineMemory, tag: str, state: TagState, event: EngineEvent) -> TagState | None:
    """The state that a tag reaches at this event, None when it stays as it is."""
    for row in TAG_TABLE:
        if row.source is state and row.event is event and row.mirrored in (None, tag in memory.mirrored):
            return row.target
    return None


def after(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    """What is known once the engine has acknowledged a step that was decided on this record.

    Args:
        memory: what was known.
        step: what was asked and acknowledged.
    """
    change = _CHANGES.get(step.ask.event)
    moved = replace(memory, state=step.target)
    return moved if change is None or step.settled else change(moved, step)


def lost_at(memory: EngineMemory, step: EngineStep, because: str) -> EngineMemory:
    """What is known once a step has failed in an unknown place: no more than holds whether it was done or not.

    A request that generates, and a question, change nothing; then what was known stays known.

    Args:
        memory: what was known before it.
        step: what was asked.
        because: how it failed.
    """
    if step.ask.event in (EngineEvent.GENERATE, EngineEvent.PROBE):
        return memory
    done = after(memory, step)
    certain = tuple(one for one in memory.versions if one in done.versions)
    lose = EngineStep(EngineAsk(event=EngineEvent.LOSE, because=because), EngineState.LOST)
    return after(replace(memory, versions=certain, base_groups=done.base_groups), lose)


def _touched(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    """Bytes of a group were written, or dropped (version None): it has no version until the update is committed."""
    ask = step.ask
    held = [(group, version) for group, version in memory.versions if group != ask.group]
    sent = dict(memory.touched) | {ask.group: ask.version}
    base_groups = memory.base_groups
    if ask.event is EngineEvent.SEND_BASE:
        held = list(without_adapters(held))  # what the engine merged or stacked over the old base is void
        base_groups = tuple(sorted({*base_groups, ask.group}))
    return replace(
        memory, versions=tuple(held), touched=tuple(sorted(sent.items())), flushed=False, base_groups=base_groups
    )


def broken(memory: EngineMemory, why: str) -> EngineMemory:
    """What is known once a call of the open update has failed: it can only be aborted."""
    return replace(memory, broken=why) if memory.state is EngineState.UPDATING else memory


def _tags_moved(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    tags = tuple(
        (tag, (_next(memory, tag, state, step.ask.event) or state) if tag in step.tags else state)
        for tag, state in memory.tags
    )
    moved = replace(memory, tags=tags)
    if WEIGHTS in step.tags:
        moved = replace(moved, versions=_left(memory, moved.tag(WEIGHTS)))
    gone = KV_CACHE in step.tags and moved.tag(KV_CACHE) is not TagState.RESIDENT
    return replace(moved, flushed=moved.flushed or gone)


def _left(memory: EngineMemory, weights: TagState | None) -> tuple[tuple[str, int], ...]:
    """The versions that survive a move of the weights."""
    if weights is TagState.DISCARDED:
        return ()
    return memory.versions if memory.keeps_adapters else without_adapters(memory.versions)


def _lost(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    unknown = tuple((tag, TagState.UNKNOWN) for tag, _ in memory.tags)
    because = step.ask.because or "a call failed"
    return replace(memory, because=because, tags=unknown, touched=(), flushed=False, broken="")


def _restarted(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    unknown = tuple((tag, TagState.UNKNOWN) for tag, _ in memory.tags)
    instance = step.ask.instance_id
    return replace(
        memory,
        because=f"another instance answers ({instance or 'unknown'})",
        instance_id=instance,
        tags=unknown,
        versions=(),
        touched=(),
        flushed=True,
        broken="",
    )


def _probed(memory: EngineMemory, step: EngineStep) -> EngineMemory:
    said = step.ask.said
    if said is None:
        return memory
    known = dict(without_adapters(memory.versions) if said.tells_adapters else memory.versions)
    sent = {group for group, _ in memory.touched}  # what an open update has sent is committed by its commit alone
    for group, held in said.versions.items():
        if held is None:
            known.pop(group, None)
        elif group not in sent:
            known[group] = held
    tags = tuple((tag, said.tags.get(tag, state)) for tag, state in memory.tags)
    return replace(memory, because="", instance_id=said.instance_id, tags=tags, versions=tuple(sorted(known.items())))


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
