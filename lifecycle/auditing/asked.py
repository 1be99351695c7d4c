"""Facts by themselves: what an event looks at, and what cannot be true at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Final

from lifecycle.auditing.following import others
from lifecycle.auditing.kinds import DECIDED, Found, Kind, Seen
from states import (
    ACTOR,
    ADAPTER_PREFIX,
    BUFFERS,
    FROZEN_BASE,
    OFFLOADED,
    TRAINABLE_BASE,
    ContentFacts,
    EngineFacts,
    Facts,
    TrainerEvent,
    TrainerState,
    adapter_group,
)
from states.push_plan import in_order

_E: Final = TrainerEvent
_EVENTS: Final = frozenset(TrainerEvent)
_STEPS: Final = frozenset({_E.BEGIN_STEP, _E.TRAINED})
_ONLY: Final[dict[str, tuple[object, frozenset[str]]]] = {
    "step_differs": ((), frozenset({_E.TRAINED})),
    "unknown_slot_state": ((), frozenset({_E.RECONCILE_ADAPTERS})),
    "unwritable": ((), frozenset({_E.RECONCILE_ADAPTERS})),
    "strays": ((), _STEPS | {_E.OFFLOAD}),
    "transport_bytes": (0, frozenset({_E.OFFLOAD, _E.WAKE_UP})),
    "transport_holders": ((), frozenset({_E.OFFLOAD, _E.WAKE_UP})),
    "backup_need_bytes": (0, frozenset({_E.OFFLOAD})),
    "disk_need_bytes": (0, frozenset({_E.OFFLOAD})),
    "copy_need_bytes": (0, _STEPS | {_E.SLEEP, _E.SWITCH_MODEL}),
    "engines": ((), frozenset({_E.UPDATE_WEIGHTS})),
    "switch_target": ("actor", frozenset({_E.SWITCH_MODEL})),
}
"""Facts that are gathered for these events alone, and what they are elsewhere."""
_ONLY_OF: Final[dict[str, tuple[Callable[[Facts], object], tuple[object, ...]]]] = {
    event: (attrgetter(*names), tuple(_ONLY[name][0] for name in names))
    for event in TrainerEvent
    for names in [[name for name, (_, events) in _ONLY.items() if event not in events]]
}
"""The same by event: what reads those that it does not ask for, and what they are then."""
_NAMED: Final = ("to_load", "to_retire", "unaccounted", "accumulated", "step_unknown", "step_frozen")
_PLANNED: Final = attrgetter(*_NAMED, "unsucceeded", "plan_digest")
_NO_PLAN: Final = ((), (), (), (), (), (), (), "")
_SIZES: Final = (
    "backup_need_bytes", "copy_need_bytes", "disk_need_bytes", "resume_need_bytes", "transport_bytes",
    "active_tags", "paused_tags", "host_free_bytes", "disk_free_bytes", "device_free_bytes",
)  # fmt: skip
_SIZES_OF: Final = attrgetter(*_SIZES)
BESIDE: Final = ("active_model", "active_tags", "models", "paused_tags")
"""The facts that are looked at beside each entry of contents."""
_BESIDE: Final = attrgetter(*BESIDE)
_BUT_ENTRIES: Final = attrgetter(*[one.name for one in fields(Facts) if one.name not in ("contents", "leases")])
_DIGEST: Final = 64


class Asked:
    """Looks at the facts of one record at a time."""

    events = DECIDED

    def __init__(self) -> None:
        self._looked_at: tuple[tuple[ContentFacts, ...], object] = ((), None)
        self._fine: dict[tuple[str, str], object] = {}

    def see(self, seen: Seen) -> Found:
        """The facts of an event. Those of another call are gathered in full."""
        facts, record = seen.facts, seen.record
        if facts is None or record["trigger"] not in _EVENTS:
            return
        trigger, source = record["trigger"], record["source"]
        if not self._is_as_before(facts, (trigger, source)):
            for problem in (*_alone(facts, trigger), *_plan(facts), *_step(facts, trigger), *_room(facts, trigger),
                            *_memory(facts, source), *_engines(facts), *_slots(facts)):  # fmt: skip
                self._fine.pop((trigger, source), None)  # it is told again as long as it stands there
                yield Kind.FACTS, problem
        for one in self._to_look_at(facts):
            for problem in _content(one, facts):
                self._looked_at = (), None  # it is told again as long as it stands there
                yield Kind.FACTS, f"{one.group}: {problem}"

    def _is_as_before(self, facts: Facts, asked: tuple[str, str]) -> bool:
        """Whether all but versions is as it was when this event was asked of this state and nothing was wrong."""
        now = _BUT_ENTRIES(facts), [(one.group, one.file is None) for one in facts.contents]
        before = self._fine.get(asked)
        self._fine[asked] = now
        return before == now

    def _to_look_at(self, facts: Facts) -> Iterable[ContentFacts]:
        """The entries of which not everything that is looked at is as it was when nothing was wrong with them."""
        before, beside = self._looked_at, _BESIDE(facts)
        self._looked_at = facts.contents, beside
        return facts.contents if before[1] != beside else others(before[0], facts.contents)

    def end(self) -> Found:
        """Facts need no end."""
        yield from ()

    def forget(self) -> None:
        """What facts say stands in one record."""


def _alone(facts: Facts, trigger: str) -> Iterator[str]:
    values, expected = _ONLY_OF[trigger]
    if values(facts) == expected:  # at once: it nearly always is so
        return
    for name, (otherwise, events) in _ONLY.items():
        if trigger not in events and getattr(facts, name) != otherwise:
            yield f"{name} is {getattr(facts, name)}, and {trigger} does not ask for it"


def _plan(facts: Facts) -> Iterator[str]:
    if _PLANNED(facts) == _NO_PLAN:
        return
    for name in _NAMED:
        told: tuple[str, ...] = getattr(facts, name)
        if list(told) != sorted({*told}):
            yield f"{name} is not in order, or names something twice"
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


def _step(facts: Facts, trigger: str) -> Iterator[str]:
    groups = tuple(one.group for one in facts.contents)
    if len({*groups}) != len(groups):
        yield "contents name a group twice"
    if facts.touched == groups:  # a checkpoint is loaded
        return
    always = tuple(one for one in (TRAINABLE_BASE, BUFFERS) if one in groups)
    adapters = facts.touched[len(always) :]
    if facts.touched[: len(always)] != always or any(not one.startswith(ADAPTER_PREFIX) for one in adapters):
        yield f"touched is {', '.join(facts.touched)}, which no step touches"
    elif list(adapters) != sorted({*adapters}):
        yield "touched is not in order, or names something twice"
    if adapters and not facts.step_open and trigger not in _STEPS:
        yield f"touched names {', '.join(adapters)}, and no step is open"
    unknown = tuple(sorted(one.removeprefix(ADAPTER_PREFIX) for one in adapters if one not in groups))
    if facts.step_unknown != unknown:
        yield f"step_unknown is {facts.step_unknown}, by what is touched and held it is {unknown}"
    for name in facts.step_frozen:
        if adapter_group(name) not in adapters:
            yield f"step_frozen names {name}, which the step does not touch"


def _room(facts: Facts, trigger: str) -> Iterator[str]:
    for name, value in zip(_SIZES, _SIZES_OF(facts), strict=True):
        if value is not None and value < 0:
            yield f"{name} is {value}"
    if not facts.disk_need_bytes and (
        facts.disk_free_bytes is not None or facts.disk_problem or not facts.disk_is_real
    ):
        yield "the disk was looked at, and nothing is to be written there"
    if facts.disk_problem and (facts.disk_free_bytes is not None or not facts.disk_is_real):
        yield "the disk cannot be used, and its room is told"
    if facts.host_free_bytes is not None and not facts.copy_need_bytes and trigger != _E.OFFLOAD:
        yield "the room on the host was looked at, and nothing is to be copied there"
    if bool(facts.transport_bytes) > bool(facts.transport_holders):
        yield "transport bytes are outstanding, and nobody holds them"


def _slots(facts: Facts) -> Iterator[str]:
    if facts.unwritable and not facts.plan_digest:
        yield "slots cannot be written, and nothing is to be written"
    if facts.unknown_slot_state and not {*facts.unknown_slot_state} <= {*facts.to_load, *facts.to_retire}:
        yield "the state of slots is not known that are not to change"
    if len({*facts.models}) != len(facts.models):
        yield "models name one twice"


def _memory(facts: Facts, source: str) -> Iterator[str]:
    if not facts.gradients_kept and not facts.accumulated:
        yield "gradients cannot be kept, and none are accumulated"
    if facts.base_file_problem and all(one.file is None for one in facts.contents):
        yield "the base file has a problem, and there is none"
    if source == TrainerState.FAULTED:
        return
    if source == TrainerState.AWAKE and (facts.paused_tags or facts.scratch_paused or facts.resume_need_bytes):
        yield "something is paused, and the trainer is awake"
    if source == TrainerState.SLEEPING and facts.paused_tags:
        yield "weights are paused, and the trainer is only asleep"
    if source == TrainerState.SLEEPING and facts.resume_need_bytes and not facts.scratch_paused:
        yield "bytes have to be resumed, and nothing is paused"
    if source in OFFLOADED and facts.active_tags:
        yield f"{facts.active_tags} tag(s) of weights are active, and the trainer is offloaded"


def _content(one: ContentFacts, facts: Facts) -> Iterator[str]:
    if one.frozen is not (one.group == FROZEN_BASE):
        yield "only the frozen base is frozen, and nothing else"
    if one.file is not None and one.group != FROZEN_BASE:
        yield "it is no frozen base, and lies in a base file"
    if one.copies or one.borrowed:
        yield from _copies(one, facts.models)
    if one.retained and one.live is None and not facts.active_tags:
        yield "its backup is retained, and it is paused"
    if one.saver is not None and one.live is not None and not one.retained:
        yield "it is live, and has a backup that is not retained"
    present = one.saver if one.live is None else one.live
    if facts.active_model == ACTOR and present not in (None, one.version, *[held for _, held in one.copies]):
        yield f"version {present} lies there, it is of version {one.version}"
    if one.live is not None and one.backup != "unplaced" and facts.paused_tags and not facts.active_tags:
        yield "it is live, and every tag is paused"
    if one.live is None and one.saver is not None and not (one.retained or facts.paused_tags):  # retained: lost live
        yield "it lies in a backup, and no tag is paused"
    if one.unreadable and one.version in (one.live, one.saver, one.file, *one.kept_versions()):
        yield "its newest version can be read, and tensors of it cannot"


def _copies(one: ContentFacts, models: tuple[str, ...]) -> Iterator[str]:
    tags = [tag for tag, _ in one.copies]
    if len({*tags}) != len(tags) or not {*tags} <= {*models}:
        yield f"its copies are {', '.join(tags)}, the kept models {', '.join(models)}"
    if not {*one.borrowed} <= {*tags}:
        yield "a copy that is not there is borrowed"


def _engines(facts: Facts) -> Iterator[str]:
    if not facts.engines:
        return
    groups = [one.group for one in facts.contents]
    for one in facts.engines:
        for problem in _engine(one, groups):
            yield f"{one.name}: {problem}"


def _engine(one: EngineFacts, groups: list[str]) -> Iterator[str]:
    if not {*one.stale} <= {*groups} or one.stale != in_order({*one.stale}):
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
