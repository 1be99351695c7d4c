"""Versions: what facts and ends tell must follow from what was told before, and reads must be of the trainer's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lifecycle.audit import notes
from lifecycle.audit.chain import SCHEMA
from lifecycle.auditing.following import others
from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import FAULTED, RECONCILE_ADAPTERS, TRAINED
from states import BUFFERS, OFFLOADED, ContentFacts, Facts, Source, adapter_group
from states.sources import decide_reads

_KEEP: Final = frozenset({"begin_step", "sleep", "offload", "wake_up", "update_weights", "switch_model"})
"""Events that give no version."""
_TELLS_ALL: Final = frozenset({notes.JOINED, notes.ADOPTED})
_LIVE: Final = Source.LIVE
_LATER: Final = -1
"""A version that is told later."""


class Versions(Check):
    """Follows the version of each content group.

    What an accumulation or a fault has changed is told later: until then those groups are not known.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] | None = None
        self._newest: int | None = None
        self._facts: Facts | None = None
        self._told: dict[str, int] = {}
        self._held: tuple[ContentFacts, ...] = ()
        self._is_first = False

    def begin(self, seen: Seen, found: Found) -> None:
        """The first end of a session of this version tells all versions, which is compared."""
        self.forget()
        self._is_first = seen.record["schema"] == SCHEMA

    def looks(self) -> Mapping[str, Look]:
        """The end of a transition, or a note."""
        return {"moved": self._moved, "failed": self._failed, "noted": self._noted}

    def _failed(self, seen: Seen, found: Found) -> None:
        if seen.record["target"] == FAULTED:
            self._known = self._newest = None
            self._held = ()

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """Versions that facts name."""
        if self._facts is None or self._facts.contents is not facts.contents:
            self._told = {one.group: one.version for one in facts.contents}
            self._compare(facts, found)
        elif self._known != self._told:
            self._compare(facts, found)
        _look_at_reads(seen, facts, found)
        self._facts = facts
        if seen.record["source"] == FAULTED:
            self._known = None  # an undo that is owed may give back what was there before

    def _compare(self, facts: Facts, found: Found) -> None:
        told = self._told
        is_later = self._known is not None and _LATER in self._known.values()
        if self._known is not None and self._known != told:
            known = {group: told.get(group) if one == _LATER else one for group, one in self._known.items()}
            unlike = sorted(group for group in known.keys() | told.keys() if known.get(group) != told.get(group))
            if unlike:
                named = (f"{one} {told.get(one)}, and the trainer has {known.get(one)}" for one in unlike[:3])
                found.say(Kind.VERSION, f"the facts name {'; '.join(named)}")
        if self._newest is not None and not is_later:
            self._look_at_held(facts, self._newest, found)
        if self._newest is None:  # only facts tell all; a saver may hold some of a model that is no longer kept
            self._newest = -1
            self._rise([version for one in facts.contents for version in (one.live, one.saver, one.file)])
        self._known = told
        self._rise(told.values())
        for one in facts.contents:
            if one.copies:
                self._rise([version for _, version in one.copies])

    def _look_at_held(self, facts: Facts, newest: int, found: Found) -> None:
        """What is held anywhere was given out. Versions only rise: what was not too new for an entry stays so."""
        is_known = True
        for one in others(self._held, facts.contents):
            if (
                not one.copies
                and (one.live or 0) <= newest
                and (one.saver or 0) <= newest
                and (one.file or 0) <= newest
            ):
                continue  # nearly always
            held = [one.live, one.saver, one.file, *[version for _, version in one.copies]]
            later = [version for version in held if version is not None and version > newest]
            if later:
                is_known = False
                found.say(Kind.VERSION, f"{one.group} is held in version {later[0]}, which nobody has given out")
        self._held = facts.contents if is_known else ()

    def _moved(self, seen: Seen, found: Found) -> None:
        record = seen.record
        changed, facts, trigger = record["versions"], self._facts, record["trigger"]
        known = self._known
        if self._is_first and record.get("checkpoint") != changed:
            found.say(Kind.VERSION, "the first end of a session tells other versions as all than as changed")
        if self._is_first and known is not None:
            changed = dict.fromkeys(known.keys() - changed.keys()) | changed  # what it has ended was told nowhere
        self._is_first = False
        if known is not None and facts is not None:
            if changed:
                self._compare_changed(known, changed, trigger, facts, found)
                known = {group: one for group, one in (known | changed).items() if one is not None}
            if record.get("checkpoint", known) != known:
                found.say(Kind.VERSION, "the checkpoint tells other versions than the records before it")
        if "versions" in record["details"] and not _are_among(record["details"]["versions"], changed):
            found.say(Kind.VERSION, "the details tell other versions than the record")
        self._known = known
        self._rise(changed.values())

    def _compare_changed(
        self, known: Mapping[str, int], changed: Mapping[str, int | None], trigger: str, facts: Facts, found: Found
    ) -> None:
        for group, version in changed.items():
            if known.get(group) == version:
                continue  # what an accumulation has changed before is told now
            if trigger in _KEEP or not _may_change(trigger, group, facts):
                found.say(Kind.VERSION, f"{trigger} tells version {version} of {group}, which it does not change")
            elif version is not None and self._newest is not None and version <= self._newest:
                told = f"{trigger} gives {group} version {version}, {self._newest} was given out before"
                found.say(Kind.VERSION, told)

    def _noted(self, seen: Seen, found: Found) -> None:
        record = seen.record
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

    def forget(self) -> None:
        """The next facts are believed."""
        self._known = self._newest = self._facts = None
        self._held, self._is_first = (), False


def _are_among(told: object, changed: Mapping[str, int | None]) -> bool:
    return isinstance(told, dict) and all(changed.get(group) == one for group, one in told.items())


def _may_change(trigger: str, group: str, facts: Facts) -> bool:
    if trigger == TRAINED:
        return group in facts.touched
    if trigger == RECONCILE_ADAPTERS:
        return group in {adapter_group(name) for name in (*facts.to_load, *facts.to_retire)}
    return True


def _look_at_reads(seen: Seen, facts: Facts, found: Found) -> None:
    """Where bytes are read: from a place that holds the trainer's own version, and is not given back."""
    record = seen.record
    told = record.get("decision")
    if isinstance(told, list):  # version 1 tells each of them
        wanted = {one.group: one.version for one in facts.contents}
        for one in told:
            if one["source"] is not None and one["version"] != wanted.get(one["group"]):
                it_is = f"it is {wanted.get(one['group'])}"
                found.say(Kind.READ, f"{one['group']} is read in version {one['version']}, {it_is}")
    if seen.event != "began" or facts.active_tags or record["source"] not in OFFLOADED:
        return
    unplaced = {one.group for one in facts.contents if one.backup == "unplaced"}
    live = [one.group for one in decide_reads(facts) if one.source is _LIVE and one.group not in unplaced]
    if live:
        found.say(Kind.READ, f"{', '.join(live[:3])} would be read from device memory that was given back")
