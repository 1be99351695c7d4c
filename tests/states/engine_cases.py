"""The enumerated space of an engine: every record that can matter, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from states.engine_memory import (
    BASE_ONLY,
    EngineAsk,
    EngineEvent,
    EngineMemory,
    EngineSaid,
    EngineState,
    TagState,
)
from states.engine_table import ENGINE_TABLE

Case = tuple[EngineMemory, EngineAsk]

BASE, ADAPTER, OTHER = ("frozen-base", 1), ("adapter/a", 2), ("buffers", 3)
_E = EngineEvent
_PENDING: tuple[tuple[tuple[str, int | None], ...], ...] = (
    (), (("frozen-base", 4),), (("adapter/a", 5),), (("adapter/a", None),), (("adapter/a", 5), ("frozen-base", 4)),
)  # fmt: skip


def _tags() -> Iterator[tuple[tuple[str, TagState], ...]]:
    for weights, kv_cache in product(TagState, TagState):
        yield ("weights", weights), ("kv_cache", kv_cache)
    yield (("weights", TagState.RESIDENT),)
    yield ("weights", TagState.RESIDENT), ("kv_cache", TagState.RESIDENT), ("cuda_graph", TagState.RELEASED)


@cache
def memories(state: EngineState) -> tuple[EngineMemory, ...]:
    """Every record of one state: tags, mirrors, base and adapter held or not, and what the open update has done.

    Where the weights were discarded there are no versions, and of adapters none where a release voids them.
    """
    updating = state is EngineState.UPDATING
    yes_no = (False, True)
    axes = product(
        _tags(), yes_no, yes_no, yes_no, ("", "a write failed") if updating else ("",), _PENDING if updating else ((),),
        yes_no, (("weights",),) if updating else ((), ("weights",), ("weights", "kv_cache", "cuda_graph")),
    )  # fmt: skip
    return tuple(
        EngineMemory(
            state=state, because="a call failed" if state is EngineState.LOST else "", instance_id="i1", tags=tags,
            mirrored=mirrored, keeps_adapters=keeps, versions=(ADAPTER,) * adapter + (BASE,) * base,
            touched=touched, flushed=flushed, broken=broken,
        )
        for tags, base, adapter, flushed, broken, touched, keeps, mirrored in axes
        if (not base and not adapter) or dict(tags)["weights"] is not TagState.DISCARDED
        if not adapter or keeps or dict(tags)["weights"] is not TagState.RELEASED
    )  # fmt: skip


def _said(instance: str, *, is_open: bool) -> EngineSaid:
    return EngineSaid(instance_id=instance, is_open=is_open, tags={}, versions={})


def asks(event: EngineEvent) -> Iterator[EngineAsk]:
    """Everything that can be asked with one event, also what makes no sense."""
    match event:
        case _E.RELEASE | _E.DISCARD | _E.RESUME:
            for tags in ((), ("weights",), ("kv_cache",), ("weights", "kv_cache"), ("cuda_graph",), ("nobody",)):
                yield EngineAsk(event=event, tags=tags)
        case _E.SEND_BASE | _E.LOAD_ADAPTER | _E.UNLOAD_ADAPTER:
            groups = ("frozen-base", "buffers", "adapter/a", "adapter/b", "adapter/", f"adapter/{BASE_ONLY}", "")
            for group, version in (*((group, 7) for group in groups), ("frozen-base", None), ("adapter/a", None)):
                yield EngineAsk(event=event, group=group, version=version)
        case _E.GENERATE:
            for adapter in ("", "a", "b", BASE_ONLY):
                yield EngineAsk(event=event, adapter=adapter)
            yield EngineAsk(event=event, adapter="a", expected=(("adapter/a", 2), ("frozen-base", 1)))
            yield EngineAsk(event=event, adapter="a", expected=(("adapter/a", 3),))
            yield EngineAsk(event=event, adapter=BASE_ONLY, expected=(("buffers", 3),))
        case _E.PROBE:
            yield EngineAsk(event=event)
            for instance, is_open in product(("i1", "i2"), (False, True)):
                yield EngineAsk(event=event, said=_said(instance, is_open=is_open))
        case _:
            yield EngineAsk(event=event)


@cache
def cases(state: EngineState, event: EngineEvent) -> tuple[Case, ...]:
    """Every record of a state with everything that can be asked with an event; a few where no row takes the event."""
    taken = any(row.source is state and row.event is event for row in ENGINE_TABLE)
    return tuple(product(memories(state)[:: 1 if taken else 23], asks(event)))
