"""Calls on named copies, decided and then told a second time as what happens to bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import pytest

from states import BUFFERS, FROZEN_BASE, ContentFacts, Facts, LeaseFacts, Refusal, TrainerState
from states.guards_snapshots import (
    SNAPSHOT_TABLE,
    SnapshotAsk,
    SnapshotCall,
    SnapshotGuard,
    SnapshotPermit,
    decide_snapshot_call,
    groups_to_lend_again,
)
from states.render_snapshots import snapshots_page

NEW, REF, OTHER = 5, 8, 9
"""The actor's newest version, that of the ref model, and one of nobody's."""

WRITES = (SnapshotCall.BACKUP, SnapshotCall.COPY, SnapshotCall.KEEP_MODEL)


# --- a second statement of the rules, in words of bytes ------------------------------------------


@dataclass(frozen=True)
class Places:
    """Where the bytes of one group can be read: place to version. Places of tags are those with memory of their own."""

    held: dict[str, int]
    says: dict[str, int]

    def after(self, asked: SnapshotAsk, group: str) -> Places:
        """The same once the call was made, if the bytes of what is put come from somewhere else than the tag."""
        puts = dict(asked.puts)
        if not asked.whole and group not in puts:
            return self
        held, says = dict(self.held), dict(self.says)
        if puts.get(group) != says.get(asked.tag):
            held.pop(asked.tag, None)
            says.pop(asked.tag, None)
        return Places(held, says)


def places_of(one: ContentFacts) -> Places:
    """Read off the facts, without asking them anything."""
    says = dict(one.copies)
    held = {tag: version for tag, version in one.copies if tag not in one.borrowed}
    if one.live is not None:
        held["device"] = one.live
    if one.saver is not None and not (one.live is not None and one.retained and not one.frozen):
        held["saver"] = one.saver
    if one.file is not None:
        held["file"] = one.file
    return Places(held, says)


def who_needs(one: ContentFacts, says: dict[str, int], active: str, *, but: str) -> set[int]:
    """Versions that somebody will ask for: the actor, tags without bytes, and the model that is to come back."""
    needed = {one.version}
    needed |= {version for tag, version in says.items() if tag in one.borrowed and tag != but}
    if one.live is None:
        needed.add(one.version if active == "actor" else says.get(active, one.version))
    return needed


def dangers_of(asked: SnapshotAsk, facts: Facts) -> list[str]:
    """What would go wrong if the call was made. Nothing means that it must be allowed."""
    found = ["nobody knows what the bytes are"] if asked.state is TrainerState.FAULTED else []
    if asked.call is SnapshotCall.GET:
        return found
    if facts.step_open:
        found.append("half-trained bytes would get a name, or be overwritten")
    if asked.call is SnapshotCall.RESTORE:
        return found + [danger for one in facts.contents for danger in _of_restoring(asked, one, facts)]
    if asked.tag == "actor" and facts.active_model != "actor":
        found.append("the way back to the actor would hold another model, or be gone")
    if asked.call is SnapshotCall.RELEASE and asked.tag == facts.active_model != "actor":
        found.append("nobody would know what the live bytes are")
    found += _of_copying(asked, facts)
    return found + [danger for one in facts.contents for danger in _of_replacing(asked, one, facts)]


def _of_copying(asked: SnapshotAsk, facts: Facts) -> Iterator[str]:
    sources = [one for one in facts.contents if one.group in asked.copies]
    if any(facts.paused_tags and one.live is None and one.backup in ("none", "disk") for one in sources):
        yield "there is nothing to copy from"
    room = facts.host_free_bytes
    if asked.call is not SnapshotCall.RELEASE and room is not None and facts.copy_need_bytes > room:
        yield "the host would run out"


def _of_replacing(asked: SnapshotAsk, one: ContentFacts, facts: Facts) -> Iterator[str]:
    before = places_of(one)
    after = before.after(asked, one.group)
    if after.says != before.says and _is_read(facts, f"snapshot:{asked.tag}", one.group):
        yield "a reader would see other bytes"
    gone = set(before.held.values()) - set(after.held.values())
    if gone & who_needs(one, before.says, facts.active_model, but=asked.tag):
        yield "bytes would exist nowhere afterwards"


def _of_restoring(asked: SnapshotAsk, one: ContentFacts, facts: Facts) -> Iterator[str]:
    if asked.tag != facts.active_model:
        yield "bytes of one model would be live under the name of another"
    memory = dict(asked.memory)[one.group]
    if dict(one.copies).get(asked.tag, memory) == memory:
        return  # nothing is written
    is_paused = facts.paused_tags > 0 and one.live is None
    if is_paused and one.backup in ("none", "disk"):
        yield "there is no memory to write to"
    if _is_read(facts, "saver-backup" if one.live is None else "live", one.group):
        yield "a reader would see other bytes"
    elsewhere = {version for place, version in places_of(one).held.items() if place not in ("device", "saver")}
    if memory is not None and memory not in elsewhere:
        yield "bytes would exist nowhere afterwards"


def _is_read(facts: Facts, memory: str, group: str) -> bool:
    return any(one.source == memory and group in one.groups for one in facts.leases)


# --- the space -----------------------------------------------------------------------------------


def groups() -> Iterator[ContentFacts]:
    """One group: where it is, what brings it back, and which tag says and holds what."""
    residencies = (
        {"live": NEW}, {"live": REF}, {"live": OTHER}, {"live": None, "saver": NEW}, {"live": None, "saver": REF},
        {"live": None, "backup": "none"}, {"live": None, "backup": "disk"},
        {"live": REF, "saver": NEW, "retained": True},
        {"live": None, "backup": "none", "file": NEW}, {"live": REF, "file": NEW, "backup": "none"},
        {"live": REF, "saver": NEW, "retained": True, "group": BUFFERS, "frozen": False},
    )  # fmt: skip
    actor, ref = ((), (("actor", NEW),), (("actor", OTHER),)), ((), (("ref", NEW),), (("ref", REF),))
    for where, kept in product(residencies, product(actor, ref)):
        copies = (*kept[0], *kept[1])
        for borrowed in {(), tuple(tag for tag, _ in copies), tuple(tag for tag, _ in kept[1])}:
            yield ContentFacts(version=NEW, copies=copies, borrowed=borrowed, **where)  # type: ignore[arg-type]


def asks(state: TrainerState, one: ContentFacts) -> Iterator[SnapshotAsk]:
    """Every call, on a tag that exists or does not, with anything that it may put there."""
    memory = one.live if one.live is not None else one.saver
    for tag in ("actor", "ref", "new"):
        yield SnapshotAsk(state, SnapshotCall.GET, tag)
        yield SnapshotAsk(state, SnapshotCall.RELEASE, tag, whole=True)
        for version in {memory, None}:
            yield SnapshotAsk(state, SnapshotCall.RESTORE, tag, memory=((one.group, version),))
        for call, version in product(WRITES, (NEW, REF)):
            yield SnapshotAsk(state, call, tag, ((one.group, version),), whole=version == REF)
        yield SnapshotAsk(state, SnapshotCall.KEEP_MODEL, tag, ((one.group, None),))
        for call in (SnapshotCall.BACKUP, SnapshotCall.KEEP_MODEL):
            yield SnapshotAsk(state, call, tag, ((one.group, NEW),), copies=(one.group, "another-group"))
        yield SnapshotAsk(state, SnapshotCall.COPY, tag, (("another-group", 1),), whole=True)


def leases(group: str) -> Iterator[tuple[LeaseFacts, ...]]:
    """Nobody reads, or somebody does: this group or another, somewhere."""
    yield ()
    for source in ("live", "saver-backup", "snapshot:actor", "snapshot:ref", "base-file"):
        yield (LeaseFacts("reader", source, (group,)),)
    yield (LeaseFacts("reader", "snapshot:ref", ("another-group",)),)


Case = tuple[SnapshotAsk, Facts]


def _with_everything_else(index: int, one: ContentFacts) -> Iterator[Case]:
    """The rest of the trainer, for one group in five: steps, room, states."""
    if index % 5:
        return
    facts = Facts(contents=(one,), paused_tags=int(one.live is None))
    others = (
        replace(facts, step_open=True),
        replace(facts, copy_need_bytes=2, host_free_bytes=1),
        replace(facts, copy_need_bytes=2, host_free_bytes=2),
        replace(facts, paused_tags=0),
    )
    for state, other in product(TrainerState, others):
        yield from ((asked, other) for asked in asks(state, one))


def cases() -> Iterator[Case]:
    """Everything that matters to one group, in two slices: bytes with readers, and the rest of the trainer."""
    for index, one in enumerate(groups()):
        yield from _with_everything_else(index, one)
        paused = int(one.live is None)
        for active, read in [("ref", ()), *(("actor", read) for read in leases(one.group))]:
            facts = Facts(contents=(one,), active_model=active, leases=read, paused_tags=paused)
            yield from ((asked, facts) for asked in asks(TrainerState.AWAKE, one))


def disagreements(some: Iterator[Case], table: dict[SnapshotCall, tuple[SnapshotGuard, ...]]) -> Iterator[str]:
    """Where the table lets a danger through, or refuses what is safe."""
    for asked, facts in some:
        decision = decide_snapshot_call(asked, facts, table=table)
        dangers = dangers_of(asked, facts)
        if isinstance(decision, SnapshotPermit) and dangers:
            yield f"unsafe: {asked}: {dangers}"
        if isinstance(decision, Refusal) and not dangers:
            yield f"needlessly refused: {asked}: {decision.failed}: {facts.contents}"


@cache
def _all_cases() -> tuple[Case, ...]:
    return tuple(cases())


@pytest.mark.no_cover  # tens of thousands of cases; the guards have tests of their own, below
def test_a_call_is_refused_if_and_only_if_bytes_would_be_lost_or_a_reader_deceived() -> None:
    """The guards against what would happen to bytes, over every case."""
    found = list(disagreements(iter(_all_cases()), dict(SNAPSHOT_TABLE)))
    print(f"{len(_all_cases())} calls were asked")

    assert len(_all_cases()) > 50_000
    assert found[:3] == []


MUTANTS = [(call, guard) for call, guards in SNAPSHOT_TABLE.items() for guard in guards]


@pytest.mark.parametrize(("call", "guard"), MUTANTS, ids=lambda one: getattr(one, "name", str(one)))
def test_no_guard_can_be_deleted(call: SnapshotCall, guard: SnapshotGuard) -> None:
    """Without it something unsafe is let through."""
    without = tuple(one for one in SNAPSHOT_TABLE[call] if one is not guard)
    some = (case for case in _all_cases() if case[0].call is call)

    assert next(disagreements(some, {**SNAPSHOT_TABLE, call: without}), "").startswith("unsafe")


@pytest.mark.no_cover  # tens of thousands of cases; the guards have tests of their own, below
def test_every_refusal_says_why_and_what_to_do() -> None:
    """A guard that fails is not mute."""
    refused = [one for asked, facts in _all_cases() if isinstance(one := decide_snapshot_call(asked, facts), Refusal)]

    assert all(verdict.because and verdict.remedy for one in refused for verdict in one.failed)
    assert all(one.failed for one in refused)


def test_a_guard_that_cannot_be_evaluated_refuses() -> None:
    """A defect of the facts is no permission."""
    broken = Facts(contents=(ContentFacts(copies=None),))  # type: ignore[arg-type]
    decision = decide_snapshot_call(SnapshotAsk(TrainerState.AWAKE, SnapshotCall.RELEASE, "ref", whole=True), broken)

    assert isinstance(decision, Refusal)
    assert "could not be evaluated" in decision.failed[0].because


def test_the_page_names_every_call_and_every_guard_with_its_rule() -> None:
    """It is drawn from the table."""
    page = snapshots_page()

    assert all(f"`{call}`" in page for call in SnapshotCall)
    assert all(guard.rule and guard.rule in page for guards in SNAPSHOT_TABLE.values() for guard in guards)


# --- what lean gives up again --------------------------------------------------------------------


def base(**changes: object) -> ContentFacts:
    """A frozen base that is live, and that the actor's tag holds a second time."""
    given: dict[str, object] = {"version": NEW, "live": NEW, "copies": (("actor", NEW),)}
    return ContentFacts(FROZEN_BASE, **(given | changes))  # type: ignore[arg-type]


GIVEN_UP = {
    "it is live and a pause keeps it readable": base(),
    "it is paused and in the saver's backup": base(live=None, saver=NEW),
    "it is never paused": base(backup="unplaced"),
    "it is in the base file": base(backup="none", file=NEW),
    "it is in the base file, and other bytes are live": base(backup="none", file=NEW, live=OTHER),
    "several tags share it": base(copies=(("actor", NEW), ("old_actor", NEW))),
}
KEPT = {
    "another kept model has another base": base(copies=(("actor", NEW), ("ref", REF))),
    "a pause would hide it": base(backup="none"),
    "only the saver could read it on disk": base(backup="disk"),
    "other bytes are live": base(live=REF),
    "a backup of an earlier pause is no place to rely on": base(live=REF, saver=NEW, retained=True),
    "nobody holds it": base(copies=()),
    "who has it borrows it already": base(borrowed=("actor",)),
    "the copy is of older bytes": base(copies=(("actor", OTHER),)),
    "it can change": base(frozen=False),
}


@pytest.mark.parametrize("one", GIVEN_UP.values(), ids=GIVEN_UP)
def test_lean_gives_up_a_copy_that_no_switch_needs(one: ContentFacts) -> None:
    """The trainer keeps these bytes readable anyway: one host copy is enough."""
    assert groups_to_lend_again(Facts(contents=(one,))) == (FROZEN_BASE,)


@pytest.mark.parametrize("one", KEPT.values(), ids=KEPT)
def test_lean_keeps_a_copy_that_somebody_needs(one: ContentFacts) -> None:
    """Bytes that could not be read otherwise, or that the next switch would have to copy again."""
    assert groups_to_lend_again(Facts(contents=(one,))) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "reference"},
        {"strategy": "duplicate"},
        {"active_model": "ref"},
        {"leases": (LeaseFacts("reader", "snapshot:actor", (FROZEN_BASE,)),)},
    ],
    ids=str,
)
def test_nothing_is_given_up_under_a_reader_another_model_or_another_strategy(changes: dict[str, object]) -> None:
    """A lease pins the copy; other strategies hold what they hold."""
    assert groups_to_lend_again(Facts(contents=(base(),), **changes)) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "read", [LeaseFacts("r", "snapshot:ref", (FROZEN_BASE,)), LeaseFacts("r", "snapshot:actor", (BUFFERS,))], ids=str
)
def test_a_reader_of_other_bytes_is_in_nobodys_way(read: LeaseFacts) -> None:
    """Another tag, or another group."""
    assert groups_to_lend_again(Facts(contents=(base(),), leases=(read,))) == (FROZEN_BASE,)
