"""Bytes held: each change is explained by the event, and a copy is made where the rule says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import FAULTED
from lifecycle.auditing.tags import BACKUPS, Tags, own, prefix_in
from lifecycle.places import PLACES
from states import ACTOR, ContentFacts, Effect, Facts
from states.replay import EDGES

_GIVES_BACK: Final = frozenset({"sleep", "offload"})
_MOVES: Final = _GIVES_BACK | {"wake_up"}
"""Events that must change what is held."""
_GROWS_BY: Final = {"snapshots": "snapshot", "kept_gradients": "gradients", "base_file": "base-file-write"}
"""Places of named copies and files, and the kind of moved bytes that fills them."""
_COPIES: Final = frozenset({Effect.BACKUP_ACTOR, Effect.KEEP_OUTGOING, Effect.OPEN_STEP})
_READS: Final = frozenset({Effect.RESTORE_MODEL, Effect.RESTORE_LOST, Effect.DRIVE_TAGS, Effect.VERIFY_AND_MEND})
"""Effects that may read a copy: its bytes are moved under the same kind."""
_MAY_COPY: Final = {key[:3] for key, effects in EDGES.items() if {*effects} & (_COPIES | _READS)}
"""(source, event, edge) of what has such an effect."""
_NOTHING: Final = dict.fromkeys(PLACES, 0)


class Bytes(Check):
    """Compares the bytes of this trainer's own tags, and of its copies. Other tenants of a saver do as they like."""

    def __init__(self) -> None:
        self._held: Mapping[str, Tags] | None = None
        self._copied = 0
        self._prefix: str | None = None

    def begin(self, seen: Seen, found: Found) -> None:
        """Another session may name its tags otherwise."""
        self.forget()
        self._prefix = None

    def looks(self) -> Mapping[str, Look]:
        """The end of a transition, or a call that copies."""
        return {"noted": self._noted, "moved": self._ended, "failed": self._ended}

    def _noted(self, seen: Seen, found: Found) -> None:
        record = seen.record
        if record["note"] in notes.COPIED and isinstance(record.get("bytes"), int):
            self._copied += record["bytes"]
        elif record["note"] == notes.JOINED:
            self.forget()

    def _ended(self, seen: Seen, found: Found) -> None:
        record, held = seen.record, seen.record["held"]
        _look_at_sums(record, held, found)
        if self._prefix is None:
            self._prefix = prefix_in(record)
        before, trigger = self._held, record["trigger"]
        if before is not None and trigger != "recover" and (trigger in _MOVES or before != held):
            self._compare(record, before, held, found)
        self._held, self._copied = held, 0
        if record["target"] == FAULTED:
            self.forget()

    def _compare(
        self, record: dict[str, Any], before: Mapping[str, Tags], now: Mapping[str, Tags], found: Found
    ) -> None:
        if record["target"] == FAULTED:
            return
        prefix = self._prefix or f"{record['model']}/"
        _compare_device(record, own(before, "device", prefix), own(now, "device", prefix), found)
        for place in BACKUPS:
            if place in before or place in now:
                _compare_backups(record, place, own(before, place, prefix), own(now, place, prefix), found)
        for place, kind in _GROWS_BY.items():
            allowed = record["moved"].get(kind, 0) + (self._copied if place == "snapshots" else 0)
            grown = _total(now, place) - _total(before, place)
            if grown > allowed:
                found.say(Kind.BYTES, f"{place} holds {grown} bytes more, and {allowed} were copied")
        if _total(now, "transport") > _total(before, "transport") and record["trigger"] != "update_weights":
            found.say(Kind.BYTES, "transport holds more bytes, and nothing was sent")

    def forget(self) -> None:
        """What is held next is believed."""
        self._held, self._copied = None, 0


def _look_at_sums(record: dict[str, Any], held: Mapping[str, Tags], found: Found) -> None:
    totals: dict[str, int] = record["bytes"]
    sums = {place: sum(tags.values()) for place, tags in held.items()}
    sums["moved"] = sum(record["moved"].values())
    if totals == {**_NOTHING, **sums}:
        return
    for place, size in totals.items():
        summed = sums.get(place, 0)
        if size != summed:
            found.say(Kind.BYTES, f"bytes.{place} is {size}, its parts are {summed} in all")
    for place in held.keys() - totals.keys():
        found.say(Kind.BYTES, f"held.{place} is no place")


def _total(held: Mapping[str, Tags], place: str) -> int:
    return sum(held[place].values()) if place in held else 0


def _compare_device(record: dict[str, Any], before: Tags, now: Tags, found: Found) -> None:
    details = record.get("details", {})
    is_done = record["event"] == "lifecycle.moved"
    gone = set(details.get("paused", ())) if is_done and record["trigger"] in _GIVES_BACK else set()
    come = set()
    if is_done and record["trigger"] == "wake_up":
        come = {*details.get("resumed", ()), *details.get("resumed_scratch", ())}
    lost, gained = before.keys() - now.keys(), now.keys() - before.keys()
    for tag in sorted((lost - gone) | (gained - come) | (gone & now.keys()) | {one for one in come if one not in now}):
        if tag in now or tag in before:
            is_there = f"{tag} {'is' if tag in now else 'is not'} on the device"
            found.say(Kind.BYTES, f"{is_there}, which {record['trigger']} does not explain")
    _compare_sizes("device", before, now, found)


def _compare_backups(record: dict[str, Any], place: str, before: Tags, now: Tags, found: Found) -> None:
    details, is_done = record.get("details", {}), record["event"] == "lifecycle.moved"
    written = set(details.get("paused", ())) if record["trigger"] == "offload" and is_done else set()
    if not is_done and record["trigger"] == "offload":
        written = set(now)  # a saver that retains backups keeps those of a pause that was undone
    freed = set(details.get("resumed", ())) if record["trigger"] == "wake_up" else set()
    if not is_done:
        freed = set(before)
    for tag in sorted((now.keys() - before.keys() - written) | (before.keys() - now.keys() - freed)):
        holds = f"{place} {'holds' if tag in now else 'no longer holds'} {tag}"
        found.say(Kind.BYTES, f"{holds}, which {record['trigger']} does not explain")
    _compare_sizes(place, before, now, found)


def _compare_sizes(place: str, before: Tags, now: Tags, found: Found) -> None:
    for tag in before.keys() & now.keys():
        if before[tag] != now[tag]:
            found.say(Kind.BYTES, f"{tag} has {now[tag]} bytes in {place}, it had {before[tag]}")


class Copies(Check):
    """A second copy stands only where an event, or a call of the user's, was to make one."""

    def __init__(self) -> None:
        self._copies: frozenset[tuple[str, int]] | None = None
        self._contents: tuple[ContentFacts, ...] = ()

    def looks(self) -> Mapping[str, Look]:
        """What an event has copied, and what may have changed copies otherwise."""
        return {"moved": self._moved, **dict.fromkeys(("opened", "noted", "failed"), self._changed)}

    def _changed(self, seen: Seen, found: Found) -> None:
        self._copies = None

    def _moved(self, seen: Seen, found: Found) -> None:
        record = seen.record
        if (record["source"], record["trigger"], record["edge"]) in _MAY_COPY:
            self._copies = None
        elif record["moved"].get("snapshot"):
            told = f"{record['trigger']}/{record['edge']} makes no copy, and bytes of one were copied"
            found.say(Kind.COPY, told)

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """Copies that facts name."""
        if self._copies is not None and facts.contents is self._contents:
            return  # nothing that they name has changed
        copies, self._contents = _actor_copies(facts), facts.contents
        if self._copies is not None and not copies <= self._copies:
            new = ", ".join(sorted(group for group, _ in copies - self._copies)[:3])
            found.say(Kind.COPY, f'the "actor" copy holds {new}, and nothing has made it')
        self._copies = copies

    def forget(self) -> None:
        """The copies of the next facts are believed."""
        self._copies = None


def _actor_copies(facts: Facts) -> frozenset[tuple[str, int]]:
    return frozenset(
        [
            (one.group, version)
            for one in facts.contents
            if one.copies and ACTOR not in one.borrowed
            for tag, version in one.copies
            if tag == ACTOR
        ]
    )
