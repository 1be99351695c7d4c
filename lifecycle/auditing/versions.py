"""Versions: what facts and ends tell must follow from what was told before, and reads must be of the trainer's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.audit.chain import SCHEMA
from lifecycle.auditing.following import others
from lifecycle.auditing.kinds import EVERY, Found, Kind, Seen
from states import BUFFERS, OFFLOADED, ContentFacts, Facts, Source, TrainerEvent, TrainerState, adapter_group
from states.sources import decide_reads

_KEEP: Final = frozenset({"begin_step", "sleep", "offload", "wake_up", "update_weights", "switch_model"})
"""Events that give no version."""
_TELLS_ALL: Final = frozenset({notes.JOINED, notes.ADOPTED})
_LATER: Final = -1
"""A version that is told later."""


class Versions:
    """Follows the version of each content group.

    What an accumulation or a fault has changed is told later: until then those groups are not known.
    """

    events = EVERY

    def __init__(self) -> None:
        self._known: dict[str, int] | None = None
        self._newest: int | None = None
        self._facts: Facts | None = None
        self._told: dict[str, int] = {}
        self._held: tuple[ContentFacts, ...] = ()
        self._is_first = False

    def see(self, seen: Seen) -> Found:
        """Facts, the end of a transition, or a note."""
        record = seen.record
        if seen.event == "opened":
            if not record.get("continues"):
                self.forget()
                self._is_first = record["schema"] == SCHEMA
        elif seen.facts is not None:
            yield from self._told_by_facts(seen.facts)
            yield from _reads(seen)
            self._facts = seen.facts
            if record["source"] == TrainerState.FAULTED:
                self._known = None  # an undo that is owed may give back what was there before
        elif seen.event == "moved":
            yield from self._moved(record)
        elif seen.event == "failed":
            if record["target"] == TrainerState.FAULTED:
                self._known = self._newest = None
                self._held = ()
        elif seen.event == "noted":
            self._noted(record)

    def _told_by_facts(self, facts: Facts) -> Found:
        if self._facts is not None and self._facts.contents is facts.contents and self._known == self._told:
            return
        told = self._told = {one.group: one.version for one in facts.contents}
        if self._known is not None and self._known != told:
            known = {group: told.get(group) if one == _LATER else one for group, one in self._known.items()}
            unlike = sorted(group for group in known.keys() | told.keys() if known.get(group) != told.get(group))
            if unlike:
                named = (f"{one} {told.get(one)}, and the trainer has {known.get(one)}" for one in unlike[:3])
                yield Kind.VERSION, f"the facts name {'; '.join(named)}"
        if self._newest is not None and (self._known is None or _LATER not in self._known.values()):
            is_known = True  # versions only rise: what was not too new for an entry is not later either
            for one in others(self._held, facts.contents):
                held = (one.live, one.saver, one.file, *[version for _, version in one.copies])
                later = [version for version in held if version is not None and version > self._newest]
                if later:
                    is_known = False
                    yield Kind.VERSION, f"{one.group} is held in version {later[0]}, which nobody has given out"
            self._held = facts.contents if is_known else ()
        if self._newest is None:  # only facts tell all; a saver may hold some of a model that is no longer kept
            self._newest = -1
            self._rise([version for one in facts.contents for version in (one.live, one.saver, one.file)])
        self._known = told
        self._rise([one.version for one in facts.contents])
        self._rise([version for one in facts.contents if one.copies for _, version in one.copies])

    def _moved(self, record: dict[str, Any]) -> Found:
        changed, facts, trigger = record["versions"], self._facts, record["trigger"]
        known = None if self._known is None else dict(self._known)
        if self._is_first and record.get("checkpoint") != changed:
            yield Kind.VERSION, "the first end of a session tells other versions as all than as changed"
        if self._is_first and known is not None:
            changed = dict.fromkeys(known.keys() - changed.keys()) | changed  # what it has ended was told nowhere
        self._is_first = False
        if known is not None and facts is not None:
            yield from self._changed(known, changed, trigger, facts)
            known = {group: one for group, one in (known | changed).items() if one is not None}
            if record.get("checkpoint", known) != known:
                yield Kind.VERSION, "the checkpoint tells other versions than the records before it"
        told = record["details"].get("versions", {})
        if any(changed.get(group) != one for group, one in told.items()) if isinstance(told, dict) else True:
            yield Kind.VERSION, "the details tell other versions than the record"
        self._known = known
        self._rise(changed.values())

    def _changed(
        self, known: Mapping[str, int], changed: Mapping[str, int | None], trigger: str, facts: Facts
    ) -> Found:
        for group, version in changed.items():
            if known.get(group) == version:
                continue  # what an accumulation has changed before is told now
            if trigger in _KEEP or not _may_change(trigger, group, facts):
                yield Kind.VERSION, f"{trigger} tells version {version} of {group}, which it does not change"
            elif version is not None and self._newest is not None and version <= self._newest:
                yield Kind.VERSION, f"{trigger} gives {group} version {version}, {self._newest} was given out before"

    def _noted(self, record: dict[str, Any]) -> None:
        note, versions = record["note"], record.get("versions")
        told = {key: one for key, one in versions.items() if isinstance(one, int)} if isinstance(versions, dict) else {}
        self._rise(told.values())
        if note in _TELLS_ALL:
            self._is_first = self._is_first and note != notes.JOINED
            self._known = told
        elif note in {notes.ABORTED, notes.OUTSIDE} and self._known is not None:
            self._known = self._known | told
        elif note == notes.ACCUMULATED and self._known is not None:
            self._known = self._known | {BUFFERS: _LATER}

    def _rise(self, versions: Iterable[object]) -> None:
        for one in versions:
            if isinstance(one, int) and self._newest is not None and one > self._newest:
                self._newest = one

    def end(self) -> Found:
        """Any version may be the last."""
        yield from ()

    def forget(self) -> None:
        """The next facts are believed."""
        self._known = self._newest = self._facts = None
        self._held, self._is_first = (), False


def _may_change(trigger: str, group: str, facts: Facts) -> bool:
    if trigger == TrainerEvent.TRAINED:
        return group in facts.touched
    if trigger == TrainerEvent.RECONCILE_ADAPTERS:
        return group in {adapter_group(name) for name in (*facts.to_load, *facts.to_retire)}
    return True


def _reads(seen: Seen) -> Found:
    """Where bytes are read: from a place that holds the trainer's own version, and is not given back."""
    facts, record = seen.facts, seen.record
    assert facts is not None
    told = record.get("decision")
    if isinstance(told, list):  # version 1 tells each of them
        wanted = {one.group: one.version for one in facts.contents}
        for one in told:
            if one["source"] is not None and one["version"] != wanted.get(one["group"]):
                yield Kind.READ, f"{one['group']} is read in version {one['version']}, it is {wanted.get(one['group'])}"
    if seen.event != "began" or record["source"] not in OFFLOADED or facts.active_tags:
        return
    unplaced = {one.group for one in facts.contents if one.backup == "unplaced"}
    live = [one.group for one in decide_reads(facts) if one.source is Source.LIVE and one.group not in unplaced]
    if live:
        yield Kind.READ, f"{', '.join(live[:3])} would be read from device memory that was given back"
