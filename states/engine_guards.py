"""Guards about an engine: small named predicates over what it is known to hold and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from states.engine_memory import BASE_ONLY, EngineAsk, EngineMemory, TagState, is_adapter
from states.handover_needs import WEIGHTS
from states.names import ADAPTER_PREFIX, adapter_group
from states.verdict import Answer, Verdict


@dataclass(frozen=True, slots=True)
class EngineGuard:
    """One rule about an engine: its name, the rule in words, and the predicate."""

    name: str
    rule: str
    body: Callable[[EngineMemory, EngineAsk], Answer]

    def __call__(self, memory: EngineMemory, ask: EngineAsk) -> Verdict:
        """The verdict over this record and what is asked."""
        holds, because, remedy = self.body(memory, ask)
        return Verdict(self.name, holds, because, "" if holds else remedy)


def _guard(body: Callable[[EngineMemory, EngineAsk], Answer]) -> EngineGuard:
    return EngineGuard(body.__name__.replace("_", "-"), " ".join((body.__doc__ or "").split()), body)


@_guard
def the_tags_are_known(memory: EngineMemory, ask: EngineAsk) -> Answer:
    """The engine has every tag that is named, and it is known where its memory is."""
    wrong = [tag for tag in ask.tags if memory.tag(tag) in (None, TagState.UNKNOWN)]
    there = ", ".join(f"{tag} ({state})" for tag, state in memory.tags)
    return not wrong, f"unknown: {', '.join(wrong) or 'none'}; there are {there}", "name a tag that it has, or probe it"


@_guard
def every_tag_is_resident(memory: EngineMemory, _: EngineAsk) -> Answer:
    """All memory of the engine is mapped."""
    missing = [tag for tag, state in memory.tags if state is not TagState.RESIDENT]
    because = f"not resident: {', '.join(missing)}" if missing else "every tag is resident"
    return not missing, because, f"resume({', '.join(missing)}) first"


@_guard
def the_weights_are_resident(memory: EngineMemory, _: EngineAsk) -> Answer:
    """The memory of the weights is mapped: what is written into released memory is lost, or ends the process."""
    state = memory.tag(WEIGHTS)
    return state is TagState.RESIDENT, f"{WEIGHTS} is {state}", f"resume({WEIGHTS}) first"


@_guard
def the_base_is_whole(memory: EngineMemory, _: EngineAsk) -> Answer:
    """Every group of the base, parameters and buffers, has a version that was committed."""
    missing = memory.missing_base()
    because = f"content undefined: {', '.join(missing)} not pushed" if missing else "the base is whole"
    return not missing, because, "push the base first: update_weights sends what is missing"


@_guard
def the_base_comes_first(memory: EngineMemory, _: EngineAsk) -> Answer:
    """The base under an adapter is valid, or the same update has sent it already."""
    missing = memory.missing_base(with_pending=True)
    because = f"the base under it is undefined: {', '.join(missing)}" if missing else "the base is there"
    return not missing, because, "send the base first"


@_guard
def no_adapter_was_sent_before_the_base(memory: EngineMemory, _: EngineAsk) -> Answer:
    """The update has not loaded an adapter yet: a new base would void it. An engine that keeps adapters apart may."""
    loaded = [group for group, version in memory.touched if is_adapter(group) and version is not None]
    because = f"this update has already loaded: {', '.join(loaded) or 'none'}"
    return memory.keeps_adapters or not loaded, because, "abort it and send the base before the adapters"


@_guard
def a_base_group_is_named(_: EngineMemory, ask: EngineAsk) -> Answer:
    """What is sent as base is a group of the base."""
    is_base = bool(ask.group) and not is_adapter(ask.group)
    return is_base, f"the group is {ask.group or 'not named'}", "name a group of the base"


@_guard
def an_adapter_group_is_named(_: EngineMemory, ask: EngineAsk) -> Answer:
    """What is loaded or unloaded is an adapter, and not called as the base is asked for."""
    is_one = is_adapter(ask.group) and ask.group not in (ADAPTER_PREFIX, adapter_group(BASE_ONLY))
    return is_one, f"the group is {ask.group or 'not named'}", f"name the group {adapter_group('NAME')}"


@_guard
def a_version_is_given(_: EngineMemory, ask: EngineAsk) -> Answer:
    """What is sent says which version it is."""
    return ask.version is not None, f"the version is {ask.version}", "send it with the version of its bytes"


@_guard
def an_adapter_is_named(_: EngineMemory, ask: EngineAsk) -> Answer:
    """A request says whose answer it wants: an adapter, or the base on purpose."""
    return bool(ask.adapter), f"the request is for {ask.adapter or 'nobody'}", "name an adapter, or ask for BASE_ONLY"


@_guard
def the_adapter_has_a_version(memory: EngineMemory, ask: EngineAsk) -> Answer:
    """The adapter that a request names was committed and nothing has undone that since."""
    held = ask.adapter in ("", BASE_ONLY) or adapter_group(ask.adapter) in dict(memory.versions)
    loaded = ", ".join(memory.adapters()) or "none"
    because = f"adapter {ask.adapter!r} has {'a' if held else 'no'} valid version here, loaded are: {loaded}"
    return held, because, "push it, or ask for BASE_ONLY"


@_guard
def the_versions_are_the_expected(memory: EngineMemory, ask: EngineAsk) -> Answer:
    """What answers is what the request expects."""
    held = dict(memory.versions)
    stale = [
        f"{group} is {held.get(group, 'none')}, wanted is {version}"
        for group, version in ask.expected
        if held.get(group) != version
    ]
    return not stale, f"stale: {'; '.join(stale)}" if stale else "it is current", "push the wanted versions first"


@_guard
def the_caches_are_flushed(memory: EngineMemory, _: EngineAsk) -> Answer:
    """Prefixes that were computed with other weights are gone."""
    because = f"flushed since the weights changed: {memory.flushed}"
    return memory.flushed, because, "flush the prefix cache within the update; if that fails, abort it"


@_guard
def the_update_is_not_broken(memory: EngineMemory, _: EngineAsk) -> Answer:
    """No call of the open update has failed."""
    because = f"the update failed ({memory.broken})" if memory.broken else "no call of it failed"
    return not memory.broken, because, "abort it and begin again"


@_guard
def the_known_instance_answers(memory: EngineMemory, ask: EngineAsk) -> Answer:
    """What answers is the instance that all of this is known of; another one holds nothing of it."""
    other = "" if ask.said is None else ask.said.instance_id
    same = ask.said is None or other == memory.instance_id
    because = f"known is instance {memory.instance_id or 'none'}, asked was {other or 'none'}"
    return same, because, "take note of its restart first"


@_guard
def it_admits_requests(_: EngineMemory, ask: EngineAsk) -> Answer:
    """It answered, and says that it admits requests."""
    is_open = ask.said is not None and ask.said.is_open
    return is_open, f"it admits requests: {is_open}", "ask it what it holds"


@_guard
def it_admits_none(_: EngineMemory, ask: EngineAsk) -> Answer:
    """It answered, and says that it admits no request."""
    is_shut = ask.said is not None and not ask.said.is_open
    return is_shut, f"it admits none: {is_shut}", "ask it what it holds"
