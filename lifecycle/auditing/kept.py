"""Copies and the base file: which versions they hold follows from the calls and events that wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lifecycle.audit import notes
from lifecycle.auditing.following import others
from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import (
    FAULTED,
    OFFLOAD,
    RECONCILE_ADAPTERS,
    RECOVER,
    SWITCH_MODEL,
    TRAINED,
    UPDATE_WEIGHTS,
    WAKE_UP,
)
from states import ACTOR, FROZEN_BASE, Facts, adapter_group
from states.guards_snapshots import SnapshotCall

_RENUMBERS: Final = frozenset({notes.ADOPTED, notes.JOINED})
_STILL: Final = frozenset({OFFLOAD, WAKE_UP, UPDATE_WEIGHTS})
"""Events that write no copy."""

_Copies = dict[str, dict[str, int]]


class Kept(Check):
    """Follows the versions in named copies, by tag and group, and that of the base file.

    Of a tag that an event may have written the next facts are believed, but for the groups that a call has named
    since.
    """

    def __init__(self) -> None:
        self._copies: _Copies | None = None
        self._unknown: dict[str, set[str]] = {}
        self._facts: Facts | None = None
        self._lends = self._has_file = False
        self._is_written = False

    def looks(self) -> Mapping[str, Look]:
        """What writes copies."""
        return {"moved": self._ended, "failed": self._failed, "noted": self._noted}

    def _failed(self, seen: Seen, found: Found) -> None:
        if seen.record["target"] == FAULTED:
            self.forget()

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """The copies that facts name."""
        before, self._facts = self._facts, facts
        if self._is_written or before is None or facts.contents is not before.contents:
            copies = _copies_of(facts)
            if self._copies is not None:
                self._compare(facts, self._copies, copies, found)
            if before is not None:
                self._compare_entries(before, facts, found)
            self._copies, self._is_written = copies, False
        self._lends = self._has_file = True
        if self._unknown:
            self._unknown = {}

    def _compare(self, facts: Facts, known: _Copies, told: _Copies, found: Found) -> None:
        if not known and not told:
            return
        groups = {one.group for one in facts.contents}
        for tag in told.keys() | known.keys():
            followed = groups & self._unknown.get(tag, groups)
            _compare_tag(tag, _among(known.get(tag, {}), followed), _among(told.get(tag, {}), followed), found)

    def _compare_entries(self, before: Facts, facts: Facts, found: Found) -> None:
        """By whom an entry is borrowed, and its file, where nothing has changed these."""
        known = {one.group: one for one in before.contents}
        for one in others(before.contents, facts.contents):
            was = known.get(one.group, one)
            if self._lends and was.borrowed != one.borrowed:
                found.say(Kind.FACTS, f"{one.group} is borrowed by {one.borrowed}, and was by {was.borrowed}")
            if self._has_file and was.file != one.file and one.group == FROZEN_BASE:
                found.say(Kind.FACTS, f"the base file holds version {one.file}, and nobody has written it")

    def _ended(self, seen: Seen, found: Found) -> None:
        record, facts = seen.record, self._facts
        trigger = record["trigger"]
        if facts is None:
            return
        is_loaded = trigger == TRAINED and FROZEN_BASE in facts.touched
        if is_loaded or "base-file-write" in record["moved"]:  # of the same content there may be a file already
            self._has_file = False
        if trigger in _STILL:
            return
        self._lends = False
        self._unknown[ACTOR] = set()
        if trigger == SWITCH_MODEL and record["moved"].get("snapshot"):
            for tag in (*facts.models, facts.switch_target, facts.active_model):
                self._unknown[tag] = set()
        elif trigger == RECONCILE_ADAPTERS:
            for group in map(adapter_group, (*facts.to_load, *facts.to_retire)):
                for held in (self._copies or {}).values():
                    self._is_written |= held.pop(group, None) is not None
        elif trigger == RECOVER:
            self.forget()

    def _noted(self, seen: Seen, found: Found) -> None:
        record = seen.record
        note = record["note"]
        if note in _RENUMBERS:
            self.forget()
        elif note in {notes.ABORTED, notes.OUTSIDE}:
            self._unknown[ACTOR] = set()
            self._lends = False
        elif note in notes.COPIED:
            self._lends, self._is_written = False, True
            if note == SnapshotCall.RELEASE and (record["bytes"] or any(record["versions"].values())):
                found.say(Kind.FACTS, f"{note} has copied something")
            if self._copies is not None:
                tag = record["tag"]
                held, named = self._copies.setdefault(tag, {}), self._unknown.get(tag)
                for group, version in record["versions"].items():
                    if (named is None or group in named) and held.get(group) == version:
                        told = f'{note} changed {group} in "{tag}" to {version}, in which it was before'
                        found.say(Kind.FACTS, told)
                    held[group] = version
                if named is not None:
                    named.update(record["versions"])
                self._copies[tag] = {group: one for group, one in held.items() if one is not None}

    def forget(self) -> None:
        """The copies of the next facts are believed."""
        self._copies = self._facts = None
        self._lends = self._has_file = self._is_written = False
        self._unknown = {}


def _among(held: Mapping[str, int], groups: set[str]) -> dict[str, int]:
    return {group: version for group, version in held.items() if group in groups}


def _compare_tag(tag: str, known: Mapping[str, int], told: Mapping[str, int], found: Found) -> None:
    if told != known:
        unlike = sorted(group for group in told.keys() | known.keys() if told.get(group) != known.get(group))
        named = ", ".join(unlike[:3])
        found.say(Kind.FACTS, f'the "{tag}" copy holds other versions of {named}; nothing wrote it')


def _copies_of(facts: Facts) -> _Copies:
    copies: _Copies = {}
    for one in facts.contents:
        for tag, version in one.copies:
            copies.setdefault(tag, {})[one.group] = version
    return copies
