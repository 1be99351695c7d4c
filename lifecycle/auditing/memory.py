"""Bytes held: each change is explained by the event, and a copy is made where the rule says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import ENDED, EVERY, Found, Kind, Seen
from lifecycle.auditing.tags import BACKUPS, Tags, own, prefix_in
from states import ACTOR, ContentFacts, Effect, Facts, TrainerState
from states.replay import EDGES

_GIVES_BACK: Final = frozenset({"sleep", "offload"})
_MOVES: Final = _GIVES_BACK | {"wake_up"}
"""Events that must change what is held."""
_GROWS_BY: Final = {"snapshots": "snapshot", "kept_gradients": "gradients", "base_file": "base-file-write"}
"""Places of named copies and files, and the kind of moved bytes that fills them."""
_COPIES: Final = frozenset({Effect.BACKUP_ACTOR, Effect.KEEP_OUTGOING, Effect.OPEN_STEP})
_READS: Final = frozenset({Effect.RESTORE_MODEL, Effect.RESTORE_LOST, Effect.DRIVE_TAGS, Effect.VERIFY_AND_MEND})
"""Effects that may read a copy: its bytes are moved under the same kind."""
_EFFECTS: Final = {key[:3]: frozenset(effects) for key, effects in EDGES.items()}


class Bytes:
    """Compares the bytes of this trainer's own tags, and of its copies. Other tenants of a saver do as they like."""

    events = ENDED | {"opened", "noted"}

    def __init__(self) -> None:
        self._held: Mapping[str, Tags] | None = None
        self._copied = 0
        self._prefix: str | None = None

    def see(self, seen: Seen) -> Found:
        """The end of a transition, or a call that copies."""
        record = seen.record
        if seen.event == "opened":
            if not record.get("continues"):
                self.forget()
                self._prefix = None
        elif seen.event == "noted":
            if record["note"] in notes.COPIED and isinstance(record.get("bytes"), int):
                self._copied += record["bytes"]
            elif record["note"] == notes.JOINED:
                self.forget()
        elif seen.event in {"moved", "failed"}:
            yield from _sums(record)
            self._prefix = self._prefix or prefix_in(record)
            if self._held is not None and record["trigger"] != "recover":
                yield from self._changes(record, self._held, record["held"])
            self._held, self._copied = record["held"], 0
            if record["target"] == TrainerState.FAULTED:
                self.forget()

    def _changes(self, record: dict[str, Any], before: Mapping[str, Tags], now: Mapping[str, Tags]) -> Found:
        if record["target"] == TrainerState.FAULTED or (before == now and record["trigger"] not in _MOVES):
            return
        prefix = self._prefix or f"{record['model']}/"
        yield from _device(record, own(before, "device", prefix), own(now, "device", prefix))
        for place in BACKUPS:
            yield from _backups(record, place, own(before, place, prefix), own(now, place, prefix))
        for place, kind in _GROWS_BY.items():
            grown = _total(now, place) - _total(before, place)
            allowed = record["moved"].get(kind, 0) + (self._copied if place == "snapshots" else 0)
            if grown > allowed:
                yield Kind.BYTES, f"{place} holds {grown} bytes more, and {allowed} were copied"
        if _total(now, "transport") > _total(before, "transport") and record["trigger"] != "update_weights":
            yield Kind.BYTES, "transport holds more bytes, and nothing was sent"

    def end(self) -> Found:
        """Anything may be held at the end."""
        yield from ()

    def forget(self) -> None:
        """What is held next is believed."""
        self._held, self._copied = None, 0


def _sums(record: dict[str, Any]) -> Found:
    totals, held = record["bytes"], record["held"]
    sums = {place: sum(tags.values()) for place, tags in held.items()} | {"moved": sum(record["moved"].values())}
    for place, size in totals.items():
        summed = sums.get(place, 0)
        if size != summed:
            yield Kind.BYTES, f"bytes.{place} is {size}, its parts are {summed} in all"
    for place in held.keys() - totals.keys():
        yield Kind.BYTES, f"held.{place} is no place"


def _total(held: Mapping[str, Tags], place: str) -> int:
    return sum(held[place].values()) if place in held else 0


def _device(record: dict[str, Any], before: Tags, now: Tags) -> Found:
    details = record.get("details", {})
    is_done = record["event"] == "lifecycle.moved"
    gone = set(details.get("paused", ())) if is_done and record["trigger"] in _GIVES_BACK else set()
    come = set()
    if is_done and record["trigger"] == "wake_up":
        come = {*details.get("resumed", ()), *details.get("resumed_scratch", ())}
    lost, gained = before.keys() - now.keys(), now.keys() - before.keys()
    for tag in sorted((lost - gone) | (gained - come) | (gone & now.keys()) | {one for one in come if one not in now}):
        if tag in now or tag in before:
            yield (
                Kind.BYTES,
                f"{tag} {'is' if tag in now else 'is not'} on the device, which {record['trigger']} does not explain",
            )
    yield from _sizes("device", before, now)


def _backups(record: dict[str, Any], place: str, before: Tags, now: Tags) -> Found:
    if not before and not now:
        return
    details, is_done = record.get("details", {}), record["event"] == "lifecycle.moved"
    written = set(details.get("paused", ())) if record["trigger"] == "offload" and is_done else set()
    if not is_done and record["trigger"] == "offload":
        written = set(now)  # a saver that retains backups keeps those of a pause that was undone
    freed = set(details.get("resumed", ())) if record["trigger"] == "wake_up" else set()
    if not is_done:
        freed = set(before)
    for tag in sorted((now.keys() - before.keys() - written) | (before.keys() - now.keys() - freed)):
        yield (
            Kind.BYTES,
            f"{place} {'holds' if tag in now else 'no longer holds'} {tag}, which {record['trigger']} does not explain",
        )
    yield from _sizes(place, before, now)


def _sizes(place: str, before: Tags, now: Tags) -> Found:
    for tag in before.keys() & now.keys():
        if before[tag] != now[tag]:
            yield Kind.BYTES, f"{tag} has {now[tag]} bytes in {place}, it had {before[tag]}"


class Copies:
    """A second copy stands only where an event, or a call of the user's, was to make one."""

    events = EVERY

    def __init__(self) -> None:
        self._copies: frozenset[tuple[str, int]] | None = None
        self._contents: tuple[ContentFacts, ...] = ()

    def see(self, seen: Seen) -> Found:
        """Copies that facts name, and bytes that an event has copied."""
        record = seen.record
        if seen.facts is not None:
            if self._copies is not None and seen.facts.contents is self._contents:
                return  # nothing that they name has changed
            copies, self._contents = _actor_copies(seen.facts), seen.facts.contents
            if self._copies is not None and not copies <= self._copies:
                new = ", ".join(sorted(group for group, _ in copies - self._copies)[:3])
                yield Kind.COPY, f'the "actor" copy holds {new}, and nothing has made it'
            self._copies = copies
        elif seen.event == "moved":
            effects = _EFFECTS.get((record["source"], record["trigger"], record["edge"]), frozenset())
            if effects & (_COPIES | _READS):
                self._copies = None
            if not effects & (_COPIES | _READS) and record["moved"].get("snapshot"):
                yield Kind.COPY, f"{record['trigger']}/{record['edge']} makes no copy, and bytes of one were copied"
        elif seen.event in {"opened", "noted", "failed"}:
            self._copies = None

    def end(self) -> Found:
        """Copies may stay."""
        yield from ()

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
