"""What cannot be true at once of facts, whatever the event and the state: rules, each with the facts that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import attrgetter
from typing import Final

from states import ADAPTER_PREFIX, BUFFERS, TRAINABLE_BASE, EngineFacts, Facts, adapter_group
from states.push_plan import in_order

GROUPS: Final = "groups"
"""The names of the entries of contents, in their order: a rule here looks at nothing else of them."""
_NAMED: Final = ("to_load", "to_retire", "unaccounted", "accumulated", "step_unknown", "step_frozen")
_SIZES: Final = (
    "backup_need_bytes", "copy_need_bytes", "disk_need_bytes", "resume_need_bytes", "transport_bytes",
    "active_tags", "paused_tags", "host_free_bytes", "disk_free_bytes", "device_free_bytes",
)  # fmt: skip
_SIZES_OF: Final = attrgetter(*_SIZES)
_DIGEST: Final = 64


def _names(facts: Facts) -> Iterator[str]:
    for name in _NAMED:
        told: tuple[str, ...] = getattr(facts, name)
        if told and list(told) != sorted({*told}):
            yield f"{name} is not in order, or names something twice"


def _plan(facts: Facts) -> Iterator[str]:
    is_planned = bool(facts.to_load or facts.to_retire)
    if len(facts.plan_digest) != (_DIGEST if is_planned else 0):
        yield f"plan_digest is {facts.plan_digest!r}, and there is {'a' if is_planned else 'no'} plan"
    held = {one.group for one in facts.contents}
    for name in facts.to_retire:
        if adapter_group(name) not in held:
            yield f"{name} is to be retired, and is not there"
    for name in {*facts.to_load} - {*facts.to_retire}:
        if adapter_group(name) in held:
            yield f"{name} is to be loaded, and is there already"
    for name in {*facts.unsucceeded} - {*facts.to_retire}:
        yield f"{name} has no successor, and is not to be retired"


def _step(facts: Facts) -> Iterator[str]:
    groups = [one.group for one in facts.contents]
    if len({*groups}) != len(groups):
        yield "contents name a group twice"
    if list(facts.touched) == groups:  # a checkpoint is loaded
        return
    always, adapters = _touched_always(groups), adapters_in(facts)
    if facts.touched[: len(always)] != always or any(not one.startswith(ADAPTER_PREFIX) for one in adapters):
        yield f"touched is {', '.join(facts.touched)}, which no step touches"
    elif list(adapters) != sorted({*adapters}):
        yield "touched is not in order, or names something twice"
    unknown = tuple(sorted(one.removeprefix(ADAPTER_PREFIX) for one in adapters if one not in groups))
    if facts.step_unknown != unknown:
        yield f"step_unknown is {facts.step_unknown}, by what is touched and held it is {unknown}"
    for name in facts.step_frozen:
        if adapter_group(name) not in adapters:
            yield f"step_frozen names {name}, which the step does not touch"


def adapters_in(facts: Facts) -> tuple[str, ...]:
    """What a step touches besides what every step does; nothing where a checkpoint is loaded."""
    groups = [one.group for one in facts.contents]
    return () if list(facts.touched) == groups else facts.touched[len(_touched_always(groups)) :]


def _touched_always(groups: list[str]) -> tuple[str, ...]:
    return tuple([one for one in (TRAINABLE_BASE, BUFFERS) if one in groups])


def _sizes(facts: Facts) -> Iterator[str]:
    for name, value in zip(_SIZES, _SIZES_OF(facts), strict=True):
        if value is not None and value < 0:
            yield f"{name} is {value}"


def _room(facts: Facts) -> Iterator[str]:
    if not facts.disk_need_bytes and (
        facts.disk_free_bytes is not None or facts.disk_problem or not facts.disk_is_real
    ):
        yield "the disk was looked at, and nothing is to be written there"
    if facts.disk_problem and (facts.disk_free_bytes is not None or not facts.disk_is_real):
        yield "the disk cannot be used, and its room is told"
    if bool(facts.transport_bytes) > bool(facts.transport_holders):
        yield "transport bytes are outstanding, and nobody holds them"


def _slots(facts: Facts) -> Iterator[str]:
    if facts.unwritable and not facts.plan_digest:
        yield "slots cannot be written, and nothing is to be written"
    if facts.unknown_slot_state and not {*facts.unknown_slot_state} <= {*facts.to_load, *facts.to_retire}:
        yield "the state of slots is not known that are not to change"


def _models(facts: Facts) -> Iterator[str]:
    if len({*facts.models}) != len(facts.models):
        yield "models name one twice"


def _gradients(facts: Facts) -> Iterator[str]:
    if not facts.gradients_kept and not facts.accumulated:
        yield "gradients cannot be kept, and none are accumulated"


def _engines(facts: Facts) -> Iterator[str]:
    if not facts.engines:
        return
    groups = [one.group for one in facts.contents]
    for one in facts.engines:
        for problem in _engine(one, groups):
            yield f"{one.name}: {problem}"


def _engine(one: EngineFacts, groups: list[str]) -> Iterator[str]:
    if not {*one.stale} <= {*groups} or not _are_in_order(one.stale):
        yield f"it lacks {', '.join(one.stale)}, which is not in order or not there"
    if (one.unknown or "weights" in one.discarded) and len(one.stale) != len(groups):
        yield "what it holds is gone or not known, and it lacks less than everything"
    if one.weights_resident is None and not one.unknown:
        yield "whether it holds its weights is not known, and what it holds is"
    if one.weights_resident and "weights" in one.discarded:
        yield "it holds its weights, and has discarded them"
    for name in one.extra:
        if adapter_group(name) in groups:
            yield f"it is to unload {name}, which the trainer has"


@lru_cache(64)
def _are_in_order(groups: tuple[str, ...]) -> bool:
    """Each once, as they are sent. Engines lack the same groups again and again."""
    return groups == in_order({*groups})


Rule = Callable[[Facts], Iterator[str]]

RULES: Final[tuple[tuple[frozenset[str], Rule], ...]] = (
    (frozenset(_NAMED), _names),
    (frozenset({"to_load", "to_retire", "plan_digest", "unsucceeded", GROUPS}), _plan),
    (frozenset({"touched", "step_unknown", "step_frozen", GROUPS}), _step),
    (frozenset(_SIZES), _sizes),
    (frozenset({"disk_need_bytes", "disk_free_bytes", "disk_problem", "disk_is_real", "transport_bytes",
                "transport_holders"}), _room),
    (frozenset({"unwritable", "plan_digest", "unknown_slot_state", "to_load", "to_retire"}), _slots),
    (frozenset({"models"}), _models),
    (frozenset({"gradients_kept", "accumulated"}), _gradients),
    (frozenset({"engines", GROUPS}), _engines),
)  # fmt: skip
"""The facts that each rule reads, and the rule: what it says stays so while these do."""
