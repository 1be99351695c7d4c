"""Facts by themselves: what an event looks at, and what cannot be true at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Final

from lifecycle.auditing.asked_rules import GROUPS, RULES, adapters_in
from lifecycle.auditing.following import others
from lifecycle.auditing.kinds import Check, Found, Kind, Seen
from lifecycle.auditing.members import (
    AWAKE,
    BEGIN_STEP,
    OFFLOAD,
    RECONCILE_ADAPTERS,
    SLEEP,
    SLEEPING,
    SWITCH_MODEL,
    TRAINED,
    UPDATE_WEIGHTS,
    WAKE_UP,
)
from states import ACTOR, FROZEN_BASE, OFFLOADED, ContentFacts, Facts, TrainerEvent

_EVENTS: Final = frozenset(TrainerEvent)
_STEPS: Final = frozenset({BEGIN_STEP, TRAINED})
_ONLY: Final[dict[str, tuple[object, frozenset[str]]]] = {
    "step_differs": ((), frozenset({TRAINED})),
    "unknown_slot_state": ((), frozenset({RECONCILE_ADAPTERS})),
    "unwritable": ((), frozenset({RECONCILE_ADAPTERS})),
    "strays": ((), _STEPS | {OFFLOAD}),
    "transport_bytes": (0, frozenset({OFFLOAD, WAKE_UP})),
    "transport_holders": ((), frozenset({OFFLOAD, WAKE_UP})),
    "backup_need_bytes": (0, frozenset({OFFLOAD})),
    "disk_need_bytes": (0, frozenset({OFFLOAD})),
    "copy_need_bytes": (0, _STEPS | {SLEEP, SWITCH_MODEL}),
    "engines": ((), frozenset({UPDATE_WEIGHTS})),
    "switch_target": ("actor", frozenset({SWITCH_MODEL})),
}
"""Facts that are gathered for these events alone, and what they are elsewhere."""
_ONLY_OF: Final[dict[str, tuple[Callable[[Facts], object], tuple[object, ...]]]] = {
    event: (attrgetter(*names), tuple(_ONLY[name][0] for name in names))
    for event in TrainerEvent
    for names in [[name for name, (_, events) in _ONLY.items() if event not in events]]
}
"""The same by event: what reads those that it does not ask for, and what they are then."""
BESIDE: Final = frozenset({"active_model", "active_tags", "models", "paused_tags"})
"""The facts that are looked at beside each entry of contents."""
_EVERY: Final = frozenset({*(one.name for one in fields(Facts)), GROUPS})


class Asked(Check):
    """Looks at the facts of one record at a time: at those that changed since they were looked at, and found right.

    What is wrong is told again at each record, as long as it stands there.
    """

    def __init__(self) -> None:
        self._due = {*_EVERY}
        self._groups: list[str] = []
        self._contents: tuple[ContentFacts, ...] = ()

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """The facts of an event. Those of another call are gathered in full."""
        trigger, due = seen.record["trigger"], self._due
        due.update(seen.changed)
        if trigger not in _EVENTS:
            return
        self._due = set()
        if "contents" in due:
            self._look_at_contents(facts, due, found)
        elif not due.isdisjoint(BESIDE):
            self._look_at_each(facts.contents, facts, found)
        for problem in _of_event(facts, trigger) + _of_state(facts, seen.record["source"]):
            found.say(Kind.FACTS, problem)
        for read, rule in RULES:
            if not due.isdisjoint(read):
                for problem in rule(facts):
                    self._due |= read
                    found.say(Kind.FACTS, problem)

    def _look_at_contents(self, facts: Facts, due: set[str], found: Found) -> None:
        """Entries that are others than before, or all of them. What else looks at groups looks at their names alone."""
        before, self._contents = self._contents, facts.contents
        self._look_at_each(facts.contents if due & BESIDE else others(before, facts.contents), facts, found)
        groups = [one.group for one in facts.contents]
        if groups != self._groups:
            due.add(GROUPS)
            self._groups = groups

    def _look_at_each(self, contents: Iterable[ContentFacts], facts: Facts, found: Found) -> None:
        for one in contents:
            for problem in _content(one, facts):
                self._due |= BESIDE
                found.say(Kind.FACTS, f"{one.group}: {problem}")

    def forget(self) -> None:
        """What facts say stands in one record, but which of them changed is not known."""
        self._due = {*_EVERY}


def _of_event(facts: Facts, trigger: str) -> list[str]:
    """What this event does not look at."""
    wrong = []
    values, expected = _ONLY_OF[trigger]
    if values(facts) != expected:
        for name, (otherwise, events) in _ONLY.items():
            if trigger not in events and getattr(facts, name) != otherwise:
                wrong.append(f"{name} is {getattr(facts, name)}, and {trigger} does not ask for it")
    if facts.touched and not facts.step_open and trigger not in _STEPS and (adapters := adapters_in(facts)):
        wrong.append(f"touched names {', '.join(adapters)}, and no step is open")
    if facts.host_free_bytes is not None and not facts.copy_need_bytes and trigger != OFFLOAD:
        wrong.append("the room on the host was looked at, and nothing is to be copied there")
    return wrong


def _of_state(facts: Facts, source: str) -> list[str]:
    """What is not so in this state."""
    wrong = []
    if facts.base_file_problem and all(one.file is None for one in facts.contents):
        wrong.append("the base file has a problem, and there is none")
    if source == AWAKE and (facts.paused_tags or facts.scratch_paused or facts.resume_need_bytes):
        wrong.append("something is paused, and the trainer is awake")
    elif source == SLEEPING and facts.paused_tags:
        wrong.append("weights are paused, and the trainer is only asleep")
    elif source in OFFLOADED and facts.active_tags:
        wrong.append(f"{facts.active_tags} tag(s) of weights are active, and the trainer is offloaded")
    if source == SLEEPING and facts.resume_need_bytes and not facts.scratch_paused:
        wrong.append("bytes have to be resumed, and nothing is paused")
    return wrong


def _content(one: ContentFacts, facts: Facts) -> list[str]:
    """What cannot be true of an entry."""
    wrong = _paused(one, facts) if one.live is None else _live(one, facts)
    if one.frozen is not (one.group == FROZEN_BASE):
        wrong.append("only the frozen base is frozen, and nothing else")
    if one.file is not None and one.group != FROZEN_BASE:
        wrong.append("it is no frozen base, and lies in a base file")
    if one.copies or one.borrowed:
        wrong += _copies(one, facts.models)
    present = one.saver if one.live is None else one.live
    is_other = present not in (None, one.version) and facts.active_model == ACTOR
    if is_other and present not in [held for _, held in one.copies]:
        wrong.append(f"version {present} lies there, it is of version {one.version}")
    if one.unreadable and one.version in (one.live, one.saver, one.file, *one.kept_versions()):
        wrong.append("its newest version can be read, and tensors of it cannot")
    return wrong


def _paused(one: ContentFacts, facts: Facts) -> list[str]:
    wrong = []
    if one.retained and not facts.active_tags:
        wrong.append("its backup is retained, and it is paused")
    if one.saver is not None and not (one.retained or facts.paused_tags):  # retained: lost live
        wrong.append("it lies in a backup, and no tag is paused")
    return wrong


def _live(one: ContentFacts, facts: Facts) -> list[str]:
    wrong = []
    if one.saver is not None and not one.retained:
        wrong.append("it is live, and has a backup that is not retained")
    if facts.paused_tags and one.backup != "unplaced" and not facts.active_tags:
        wrong.append("it is live, and every tag is paused")
    return wrong


def _copies(one: ContentFacts, models: tuple[str, ...]) -> Iterator[str]:
    tags = [tag for tag, _ in one.copies]
    if len({*tags}) != len(tags) or not {*tags} <= {*models}:
        yield f"its copies are {', '.join(tags)}, the kept models {', '.join(models)}"
    if not {*one.borrowed} <= {*tags}:
        yield "a copy that is not there is borrowed"
