"""What a user may do with the named copies, and when: small guards, and one table of which call asks which.

Effects of an event are decided by the transition table; this is for the calls beside it, which move no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from states.decision import Refusal
from states.facts import ContentFacts, Facts, LeaseFacts
from states.guards import no_step_in_flight
from states.guards_memory import host_has_room_for_copies
from states.names import ACTOR, Source, Strategy, TrainerState
from states.verdict import Answer, Guard, NotABool, Verdict


class SnapshotCall(StrEnum):
    """The public calls that read, write or drop named copies."""

    GET = "snapshots.get"
    BACKUP = "snapshots.backup"
    COPY = "snapshots.copy"
    KEEP_MODEL = "keep_model"
    RESTORE = "snapshots.restore"
    RELEASE = "snapshots.release"


@dataclass(frozen=True, slots=True)
class SnapshotAsk:
    """What is asked for.

    Attributes:
        state: the state the trainer is in.
        call: the call.
        tag: the tag that it reads, writes or drops.
        puts: (group, version) of what the tag would hold of these groups afterwards; None for bytes of no version.
        whole: whatever else the tag holds is dropped.
        copies: the groups that would be copied from the trainer's own memory.
        memory: (group, version) of what the trainer's own memory holds, on the device or where a resume reads it.
            Only a restore writes there.
    """

    state: TrainerState
    call: SnapshotCall
    tag: str
    puts: tuple[tuple[str, int | None], ...] = ()
    whole: bool = False
    copies: tuple[str, ...] = ()
    memory: tuple[tuple[str, int | None], ...] = ()

    def replaced(self, facts: Facts) -> tuple[ContentFacts, ...]:
        """The groups of which the tag holds a version now, and another or none afterwards."""
        after, found = dict(self.puts), []
        for one in facts.contents:
            held = one.copy_version(self.tag)
            if held is not None and held != after.get(one.group, None if self.whole else held):
                found.append(one)
        return tuple(found)

    def overwritten(self, facts: Facts) -> tuple[tuple[ContentFacts, int | None], ...]:
        """The groups that a restore would write into the trainer's memory, and the version that lies there."""
        held = dict(self.memory)
        written = (one for one in facts.contents if one.group in held)
        return tuple(
            (one, held[one.group]) for one in written if one.copy_version(self.tag) not in (None, held[one.group])
        )


@dataclass(frozen=True, slots=True)
class SnapshotPermit(NotABool):
    """The call may be made.

    Attributes:
        asked: the call.
        verdicts: every guard that was asked; all hold.
    """

    asked: SnapshotAsk
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class SnapshotGuard:
    """One rule: its name, whether it is equal on every rank (``shared``) or not (``local``), and in words."""

    name: str
    scope: str
    rule: str
    body: Callable[[SnapshotAsk, Facts], Answer]

    def __call__(self, asked: SnapshotAsk, facts: Facts) -> Verdict:
        """The verdict over the call and these facts. Never raises."""
        return Guard(lambda held: self.body(asked, held), name=self.name, scope=self.scope)(facts)


def _guard(scope: str = "shared") -> Callable[[Callable[[SnapshotAsk, Facts], Answer]], SnapshotGuard]:
    def wrap(body: Callable[[SnapshotAsk, Facts], Answer]) -> SnapshotGuard:
        return SnapshotGuard(body.__name__.replace("_", "-"), scope, " ".join((body.__doc__ or "").split()), body)

    return wrap


def _also(one: Guard) -> SnapshotGuard:
    """A guard of the transition table, asked of a call."""

    def body(_: SnapshotAsk, facts: Facts) -> Answer:
        verdict = one(facts)
        return verdict.holds, verdict.because, verdict.remedy

    return SnapshotGuard(one.name, one.scope, one.rule, body)


@_guard()
def not_faulted(asked: SnapshotAsk, _: Facts) -> Answer:
    """The trainer is not faulted: until recover() has compared them, nobody knows what its bytes are."""
    is_sound = asked.state is not TrainerState.FAULTED
    return is_sound, f"the trainer is {asked.state}", "call recover() first; it says which bytes it could verify"


@_guard()
def the_actors_tag_is_the_actors(asked: SnapshotAsk, facts: Facts) -> Answer:
    """While another model is in live memory the ``actor`` copy is neither written nor dropped."""
    is_spared = asked.tag == ACTOR and facts.active_model != ACTOR
    because = f'"{facts.active_model}" is in live memory, the tag is "{asked.tag}"'
    return not is_spared, because, 'switch_model("actor") first'


@_guard()
def the_active_model_keeps_its_tag(asked: SnapshotAsk, facts: Facts) -> Answer:
    """The tag of a model that is in live memory says what it consists of, and is not dropped. The actor needs none."""
    is_active = asked.tag == facts.active_model != ACTOR
    return not is_active, f'"{facts.active_model}" is the active model', 'switch_model("actor") first'


def _read_by(leases: tuple[LeaseFacts, ...], what: str) -> Answer:
    holders = ", ".join(one.describe() for one in leases)
    return not leases, f"{what} read by: {holders or 'nobody'}", "close the lease, or drop what outlived it"


@_guard("local")
def nobody_reads_what_is_replaced(asked: SnapshotAsk, facts: Facts) -> Answer:
    """No lease reads a copy that the call replaces or drops."""
    groups = {one.group for one in asked.replaced(facts)}
    source = f"{Source.SNAPSHOT}:{asked.tag}"
    leases = tuple(one for one in facts.leases if one.source == source and groups & set(one.groups))
    return _read_by(leases, f'the copies in "{asked.tag}" that would be replaced or dropped are')


def _needed(content: ContentFacts, tag: str, facts: Facts) -> set[int]:
    """Versions that somebody besides the tag relies on: the actor, tags that borrow, what a wake has to write."""
    borrowed = {held for other, held in content.copies if other in content.borrowed and other != tag}
    comes_back = {content.version_of(facts.active_model)} if content.live is None else set()
    return {content.version, *borrowed, *comes_back}


def _readable_without(content: ContentFacts, tag: str) -> set[int | None]:
    """Versions that can be read somewhere else than in the tag."""
    own = {held for other, held in content.copies if other not in content.borrowed and other != tag}
    backup = content.saver if content.frozen or not content.retained else None
    return {content.live, backup, content.file, *own}


@_guard()
def no_last_copy_is_replaced(asked: SnapshotAsk, facts: Facts) -> Answer:
    """What the tag alone holds, and the actor or another model consists of, is neither replaced nor dropped."""
    last = [
        one.group
        for one in asked.replaced(facts)
        if asked.tag not in one.borrowed
        and one.copy_version(asked.tag) in _needed(one, asked.tag, facts) - _readable_without(one, asked.tag)
    ]
    because = f'"{asked.tag}" holds the last readable copy of: {", ".join(last) or "nothing"}'
    remedy = "wake_up() first" if facts.paused_tags else 'switch_model("actor") first, or copy() it to another tag'
    return not last, because, remedy


def _hidden(groups: set[str], facts: Facts) -> str:
    """Those of the groups that are paused without a host backup, by name."""
    paused = (one for one in facts.contents if facts.paused_tags and one.live is None)
    return ", ".join(one.group for one in paused if one.group in groups and one.backup in {"none", "disk"})


@_guard()
def what_is_copied_can_be_read(asked: SnapshotAsk, facts: Facts) -> Answer:
    """What is copied from the trainer's own memory is on the device, or paused with a host backup."""
    hidden = _hidden(set(asked.copies), facts)
    return not hidden, f"paused where nothing can be read: {hidden or 'nothing'}", "wake_up() first"


@_guard()
def the_active_model_is_restored(asked: SnapshotAsk, facts: Facts) -> Answer:
    """A restore does not change which model is active."""
    is_active = asked.tag == facts.active_model
    return is_active, f'"{facts.active_model}" is the active model', f'switch_model("{asked.tag}") instead'


@_guard()
def what_is_restored_can_be_written(asked: SnapshotAsk, facts: Facts) -> Answer:
    """What a restore writes is on the device, or paused with a host backup that resume brings back."""
    hidden = _hidden({one.group for one, _ in asked.overwritten(facts)}, facts)
    return not hidden, f"paused where nothing can be written: {hidden or 'nothing'}", "wake_up() first"


@_guard("local")
def nobody_reads_what_is_overwritten(asked: SnapshotAsk, facts: Facts) -> Answer:
    """No lease reads bytes that a restore overwrites: on the device, or in the saver's backup while it is paused."""
    places: dict[str, set[str]] = {Source.LIVE: set(), Source.SAVER_BACKUP: set()}
    for one, _ in asked.overwritten(facts):
        places[Source.SAVER_BACKUP if one.live is None else Source.LIVE].add(one.group)
    leases = tuple(one for one in facts.leases if places.get(one.source, set()) & set(one.groups))
    return _read_by(leases, "bytes that would be overwritten are")


@_guard()
def what_is_overwritten_is_kept(asked: SnapshotAsk, facts: Facts) -> Answer:
    """The bytes that a restore overwrites, on the device or in the saver's backup, are in some copy or the file."""
    lost = [one.group for one, held in asked.overwritten(facts) if held is not None and held not in one.kept_versions()]
    because = f"would be overwritten without a copy: {', '.join(lost) or 'nothing'}"
    return not lost, because, "snapshots.backup() these bytes first, under a tag that keeps nothing else"


_AT_REST: Final = (not_faulted, _also(no_step_in_flight))
_REPLACES: Final = (
    *_AT_REST,
    the_actors_tag_is_the_actors,
    nobody_reads_what_is_replaced,
    no_last_copy_is_replaced,
)
_COPIES: Final = (*_REPLACES, _also(host_has_room_for_copies))

SNAPSHOT_TABLE: Final[Mapping[SnapshotCall, tuple[SnapshotGuard, ...]]] = {
    SnapshotCall.GET: (not_faulted,),
    SnapshotCall.BACKUP: (*_COPIES, what_is_copied_can_be_read),
    SnapshotCall.COPY: _COPIES,
    SnapshotCall.KEEP_MODEL: (*_COPIES, what_is_copied_can_be_read),
    SnapshotCall.RESTORE: (
        *_AT_REST,
        the_active_model_is_restored,
        what_is_restored_can_be_written,
        nobody_reads_what_is_overwritten,
        what_is_overwritten_is_kept,
    ),
    SnapshotCall.RELEASE: (*_REPLACES, the_active_model_keeps_its_tag),
}
"""Which guards each call asks. Docs and tests are derived from it."""


def decide_snapshot_call(
    asked: SnapshotAsk, facts: Facts, *, table: Mapping[SnapshotCall, tuple[SnapshotGuard, ...]] = SNAPSHOT_TABLE
) -> SnapshotPermit | Refusal:
    """Decide whether a call may be made. Pure: equal arguments, equal answer.

    Args:
        asked: the call, and what it would put where.
        facts: the record of this moment.
        table: the guards of each call; another one than the library's only in tests.

    Returns:
        A permit, or a refusal with every guard that failed.
    """
    verdicts = tuple(guard(asked, facts) for guard in table[asked.call])
    if all(verdicts):
        return SnapshotPermit(asked, verdicts)
    return Refusal(asked.state, asked.call, "", verdicts)


def groups_to_lend_again(facts: Facts) -> tuple[str, ...]:
    """Frozen groups whose stored copies ``lean`` gives up: their tags borrow the trainer's own bytes again.

    A switch to a model with another frozen base has to copy the actor's, which the tags that share it take over.
    That copy stays as long as such a model is kept, for the next switch would need it again; ``reference`` holds
    it as well. It goes when no such model is left, the actor is in the trainer's memory, which stays readable
    through a pause, and nobody reads the copy.
    """
    if facts.strategy != Strategy.LEAN or facts.active_model != ACTOR:
        return ()
    return tuple(one.group for one in facts.contents if one.frozen and _is_held_twice(one, facts))


def _is_held_twice(content: ContentFacts, facts: Facts) -> bool:
    holders = content.fresh_copies()
    others = [tag for tag, held in content.copies if held != content.version]
    stays = content.backup in {"cpu", "unplaced"} and content.is_in_own_memory()
    sources = {f"{Source.SNAPSHOT}:{tag}" for tag in holders}
    is_read = any(one.source in sources and content.group in one.groups for one in facts.leases)
    return bool(holders) and not others and (stays or content.restored_from_file()) and not is_read
