"""Compares what the table decides with what the oracle allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, product

from states import (
    RESTING,
    TABLE,
    Decision,
    Effect,
    Facts,
    NoChange,
    Read,
    Refusal,
    Row,
    Step,
    TableError,
    TrainerEvent,
    TrainerState,
    adapter_group,
    decide,
)
from tests import strategies as facts_of
from tests.states.oracle import rule_on

Case = tuple[TrainerState, TrainerEvent, Facts]

_ANYWHERE = (TrainerEvent.WAKE_UP, TrainerEvent.RECONCILE_ADAPTERS, TrainerEvent.UPDATE_WEIGHTS)
_LEAVING = {
    TrainerState.AWAKE: (
        *_ANYWHERE[1:], TrainerEvent.SLEEP, TrainerEvent.BEGIN_STEP, TrainerEvent.TRAINED, TrainerEvent.SWITCH_MODEL,
    ),
    TrainerState.SLEEPING: (*_ANYWHERE, TrainerEvent.OFFLOAD),
    TrainerState.OFFLOADED_CPU: _ANYWHERE,
    TrainerState.OFFLOADED_DISK: _ANYWHERE,
    TrainerState.ADAPTER_RECONCILING: (TrainerEvent.RECONCILED, TrainerEvent.RECONCILE_ABANDONED),
    TrainerState.FAULTED: (TrainerEvent.RECOVER,),
}  # fmt: skip
"""The events that act in a state; the others are settled or refused whatever the facts."""


def answer(case: Case, table: tuple[Row, ...] = TABLE) -> Decision | TableError:
    """What the table decides, or the error that two rows hold at once."""
    try:
        return decide(*case, table=table)
    except TableError as error:
        return error


def disagreement(case: Case, decision: Decision | TableError) -> str:
    """What is wrong with the decision: a word, a colon, and why. Empty when the oracle agrees."""
    state, event, facts = case
    ruling = rule_on(state, event, facts)
    asked = f"{event} in {state}"
    match decision:
        case TableError():
            return f"ambiguous: {decision}"
        case Step() if ruling.answer != "moves":
            return f"unsafe: {asked}: {ruling.dangers or ruling.answer}"
        case Step() if decision.target != ruling.target:
            return f"wrong target: {asked}: {decision.target}, not {ruling.target}"
        case Step() if (Effect.BACKUP_ACTOR in decision.effects) != ruling.copies_actor:
            return f"wrong number of copies: {asked}: {decision.edge}"
        case Step() if (Effect.KEEP_OUTGOING in decision.effects) != ruling.keeps_outgoing:
            return f"wrong number of copies: {asked}: {decision.edge} keeps the outgoing model or does not"
        case Refusal() if ruling.answer != "refused":
            return f"needlessly refused: {asked}: {decision.failed}"
        case NoChange() if ruling.answer != "settled":
            return f"nothing was done: {asked}: {ruling}"
    return ""


def malformed(case: Case, decision: Decision | TableError) -> str:
    """What the form of the answer lacks, whatever it says. Empty when it is well formed."""
    match decision:
        case Refusal() if not decision.failed or not decision.remedy:
            return f"refuses without a reason or a remedy: {decision}"
        case Refusal() if not all(verdict.because and verdict.remedy for verdict in decision.failed):
            return f"a failed guard is mute: {decision.failed}"
        case Step() | NoChange() if not all(decision.verdicts):
            return f"goes ahead although a guard fails: {decision}"
        case Step() if any(not _holds_what_it_says(read, case[2]) for read in decision.reads):
            return f"reads bytes of another version: {decision.reads}"
    return ""


def _holds_what_it_says(read: Read, facts: Facts) -> bool:
    content = next(one for one in facts.contents if one.group == read.group)
    own = {tag: version for tag, version in content.copies if tag not in content.borrowed}
    backup = None if content.retained and not content.frozen else content.saver
    held = {"live": content.live, "saver-backup": backup, "snapshot": own.get(read.tag), "base-file": content.file}
    return read.source is None or held[read.source] == content.version == read.version


def directed_cases(state: TrainerState, event: TrainerEvent) -> Iterator[Case]:
    """Healthy facts with at most one deviation, for one state and event."""
    return ((state, event, facts_of.asked(event, facts)) for facts in facts_of.directed(state))


def all_cases() -> Iterator[Case]:
    """The enumerated space: every deviation for every state and event, any two together, and the full blocks."""
    for state, event in product(TrainerState, TrainerEvent):
        cases = directed_cases(state, event)
        yield from cases if event in _LEAVING[state] else islice(cases, len(facts_of.DEVIATIONS) + 1)
    for state in TrainerState:
        for facts in facts_of.pairs(state):
            yield from ((state, event, facts_of.asked(event, facts)) for event in _LEAVING[state])
    yield from _configuration_block()
    yield from _residency_block()
    yield from _switch_block()
    yield from _lease_block()
    yield from _memory_block()


def _configuration_block() -> Iterator[Case]:
    events = (TrainerEvent.SLEEP, TrainerEvent.TRAINED, TrainerEvent.OFFLOAD, TrainerEvent.RECONCILE_ADAPTERS)
    for given in facts_of.configurations():
        for state, event in product(RESTING, events):
            yield state, event, facts_of.asked(event, facts_of.healthy(state, **given))
        for origin in (*TrainerState, None):
            facts = facts_of.healthy(TrainerState.ADAPTER_RECONCILING, **(given | {"origin": origin}))
            yield TrainerState.ADAPTER_RECONCILING, TrainerEvent.RECONCILED, facts
            yield TrainerState.ADAPTER_RECONCILING, TrainerEvent.RECONCILE_ABANDONED, facts


def _residency_block() -> Iterator[Case]:
    well = facts_of.group(facts_of.ADAPTER, copies=(("actor", facts_of.NEWEST),))
    rules = ("lean", "the-rule-holds", "with-ref")
    for placed, rule, active in product(facts_of.residencies(), rules, ("actor", "ref")):
        given = facts_of.RULES[rule] | {"active_model": active}
        for contents in ((placed, well), (well, placed)):
            engines = facts_of.healthy(TrainerState.AWAKE).engines
            behind = (replace(engines[0], stale=(contents[0].group,)), engines[1])
            facts = facts_of.healthy(TrainerState.SLEEPING, **(given | {"contents": contents, "engines": behind}))
            for event in (TrainerEvent.OFFLOAD, TrainerEvent.WAKE_UP, TrainerEvent.UPDATE_WEIGHTS):
                yield TrainerState.SLEEPING, event, facts
            for event in (TrainerEvent.SLEEP, TrainerEvent.BEGIN_STEP, TrainerEvent.SWITCH_MODEL):
                yield TrainerState.AWAKE, event, facts


def _switch_block() -> Iterator[Case]:
    few = [one for one in facts_of.switchable(facts_of.ADAPTER) if one.live in (facts_of.NEWEST, facts_of.REF)][::3]
    for contents in product(facts_of.switchable(), few):
        for active, target, strategy in product(("actor", "ref"), ("actor", "ref"), ("lean", "reference")):
            given = {
                "contents": contents, "active_model": active, "switch_target": target, "strategy": strategy,
            }  # fmt: skip
            yield TrainerState.AWAKE, TrainerEvent.SWITCH_MODEL, facts_of.healthy(TrainerState.AWAKE, **given)


def _lease_block() -> Iterator[Case]:
    behind = (facts_of.group(copies=(("actor", facts_of.OLDER),)), facts_of.group(facts_of.ADAPTER))
    for leases, rule, contents, touched in product(
        facts_of.all_leases(),
        ({}, *(facts_of.RULES[name] for name in ("the-rule-holds", "with-ref"))),
        (None, behind),
        ((), (facts_of.ADAPTER,), (adapter_group("B"),)),
    ):
        given = rule | {"leases": leases, "touched": touched} | ({} if contents is None else {"contents": contents})
        for state in TrainerState:
            facts = facts_of.healthy(state, **given)
            yield from ((state, event, facts_of.asked(event, facts)) for event in _LEAVING[state])


def _memory_block() -> Iterator[Case]:
    names = (
        "the saver is disabled",
        "a tensor strays",
        "the host has no room",
        "the disk has no room",
        "the disk is memory",
        "the disk cannot be written",
        "the device has no room",
        "a receiver holds a buffer",
        "most tags are paused",
        "scratch is paused",
        "the target is disk",
        "there is no target",
    )
    for chosen in product((False, True), repeat=len(names)):
        facts = facts_of.healthy(TrainerState.SLEEPING)
        for name, is_chosen in zip(names, chosen, strict=True):
            facts = facts_of.DEVIATIONS[name](facts) if is_chosen else facts
        yield TrainerState.SLEEPING, TrainerEvent.OFFLOAD, facts
        yield TrainerState.OFFLOADED_CPU, TrainerEvent.WAKE_UP, facts
        yield TrainerState.FAULTED, TrainerEvent.RECOVER, facts


@dataclass
class Census:
    """What was found over the enumerated space.

    Attributes:
        cases: how many were asked.
        taken: every edge that was taken: source, event, name, target.
        answers: the kinds of answer by state and event.
        wrong: the disagreements by their first word.
        mute: the answers that are not well formed.
    """

    cases: int = 0
    taken: set[tuple[str, str, str, str]] = field(default_factory=set)
    answers: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    mute: list[str] = field(default_factory=list)

    def count(self, case: Case) -> None:
        """Ask one case and judge the answer."""
        state, event, _ = case
        decision = answer(case)
        self.cases += 1
        self.answers.setdefault((state, event), set()).add(type(decision).__name__)
        if isinstance(decision, Step):
            self.taken.add((state, event, decision.edge, decision.target))
        if found := disagreement(case, decision):
            self.wrong.setdefault(found.split(":")[0], []).append(found)
        if found := malformed(case, decision):
            self.mute.append(found)


@cache
def census() -> Census:
    """The enumerated space, asked once a test run."""
    found = Census()
    for case in all_cases():
        found.count(case)
    return found
