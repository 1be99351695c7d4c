"""Copies and the base file: which versions they hold follows from the calls and events that wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import EVERY, Found, Kind, Seen
from states import ACTOR, FROZEN_BASE, ContentFacts, Facts, TrainerEvent, TrainerState, adapter_group
from states.guards_snapshots import SnapshotCall

_RENUMBERS: Final = frozenset({notes.ADOPTED, notes.JOINED})
_STILL: Final = frozenset({TrainerEvent.OFFLOAD, TrainerEvent.WAKE_UP, TrainerEvent.UPDATE_WEIGHTS})
"""Events that write no copy."""

_Copies = dict[str, dict[str, int]]


class Kept:
    """Follows the versions in named copies, by tag and group, and that of the base file."""

    events = EVERY

    def __init__(self) -> None:
        self._copies: _Copies | None = None
        self._unknown: set[str] = set()
        self._borrowed: dict[str, tuple[str, ...]] | None = None
        self._file: tuple[int | None] | None = None
        self._facts: Facts | None = None

    def see(self, seen: Seen) -> Found:
        """Facts, or what writes copies."""
        record, facts = seen.record, seen.facts
        if facts is not None:
            if self._facts is None or facts.contents is not self._facts.contents or self._copies is None:
                copies = _copies_of(facts)
                yield from self._compared(facts, copies)
                self._copies = copies
                self._borrowed = {one.group: one.borrowed for one in facts.contents}
                base = facts.content(FROZEN_BASE)
                self._file = None if base is None else (base.file,)
            self._facts, self._unknown = facts, set()
        elif seen.event == "noted":
            yield from self._noted(record)
        elif seen.event == "failed":
            if record["target"] == TrainerState.FAULTED:
                self.forget()
        elif seen.event == "moved" and self._facts is not None:
            self._ended(record, self._facts)
        elif seen.event == "opened" and not record.get("continues"):
            self.forget()

    def _compared(self, facts: Facts, copies: _Copies) -> Found:
        groups = {one.group for one in facts.contents}
        for tag in () if self._copies is None else (copies.keys() | self._copies.keys()) - self._unknown:
            known = {group: one for group, one in (self._copies or {}).get(tag, {}).items() if group in groups}
            told = copies.get(tag, {})
            if told != known:
                named = sorted(group for group in told.keys() | known.keys() if told.get(group) != known.get(group))
                yield Kind.FACTS, f'the "{tag}" copy holds other versions of {", ".join(named[:3])}; nothing wrote it'
        for one in facts.contents:
            yield from self._of_group(one)

    def _of_group(self, one: ContentFacts) -> Found:
        if self._borrowed is not None and self._borrowed.get(one.group, one.borrowed) != one.borrowed:
            yield Kind.FACTS, f"{one.group} is borrowed by {one.borrowed}, and was by {self._borrowed[one.group]}"
        if one.group == FROZEN_BASE and self._file not in (None, (one.file,)):
            yield Kind.FACTS, f"the base file holds version {one.file}, and nobody has written it"

    def _ended(self, record: Mapping[str, Any], facts: Facts) -> None:
        trigger = record["trigger"]
        is_loaded = trigger == TrainerEvent.TRAINED and FROZEN_BASE in facts.touched
        if is_loaded or "base-file-write" in record["moved"]:  # of the same content there may be a file already
            self._file = None
        if trigger in _STILL:
            return
        self._borrowed = None
        self._unknown.add(ACTOR)
        if trigger == TrainerEvent.SWITCH_MODEL and record["moved"].get("snapshot"):
            self._unknown |= {*facts.models, facts.switch_target, facts.active_model}
        elif trigger == TrainerEvent.RECONCILE_ADAPTERS:
            for group in map(adapter_group, (*facts.to_load, *facts.to_retire)):
                for held in (self._copies or {}).values():
                    held.pop(group, None)
        elif trigger == TrainerEvent.RECOVER:
            self.forget()

    def _noted(self, record: Mapping[str, Any]) -> Found:
        note = record["note"]
        if note in _RENUMBERS:
            self.forget()
        elif note in {notes.ABORTED, notes.OUTSIDE}:
            self._unknown.add(ACTOR)
            self._borrowed = None
        elif note in notes.COPIED:
            self._borrowed = None
            if note == SnapshotCall.RELEASE and (record["bytes"] or any(record["versions"].values())):
                yield Kind.FACTS, f"{note} has copied something"
            if self._copies is not None:
                held, tag = self._copies.setdefault(record["tag"], {}), record["tag"]
                for group, version in record["versions"].items():
                    if tag not in self._unknown and held.get(group) == version:
                        yield Kind.FACTS, f'{note} changed {group} in "{tag}" to {version}, in which it was before'
                    held[group] = version
                self._copies[tag] = {group: one for group, one in held.items() if one is not None}

    def end(self) -> Found:
        """Copies may stay."""
        yield from ()

    def forget(self) -> None:
        """The copies of the next facts are believed."""
        self._copies = self._borrowed = self._file = self._facts = None
        self._unknown = set()


def _copies_of(facts: Facts) -> _Copies:
    copies: _Copies = {}
    for one in facts.contents:
        for tag, version in one.copies:
            copies.setdefault(tag, {})[one.group] = version
    return copies
