"""Ends: what a transition says it has done is what it was decided to do, and the bytes that it moved are those."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import AWAKE, BEGIN_STEP, FAULTED, OFFLOAD, RECONCILE_ADAPTERS, SLEEP, TRAINED, WAKE_UP
from lifecycle.auditing.tags import own, prefix_in
from lifecycle.places import SAVER_DISK, SAVER_HOST
from states import FROZEN_BASE, Effect, Facts, adapter_group
from states.replay import EDGES

_READS: Final = frozenset({"snapshot", "base-file-read"})
_MOVES: Final[dict[Effect, frozenset[str]]] = {
    Effect.KEEP_GRADIENTS: frozenset({"gradients"}),
    Effect.RETURN_GRADIENTS: frozenset({"gradients"}),
    Effect.PAUSE_WEIGHTS: frozenset({"backup"}),
    Effect.RESUME_WEIGHTS: frozenset({"restore"}),
    Effect.RESTORE_LOST: _READS,
    Effect.RESTORE_MODEL: _READS,
    Effect.BACKUP_ACTOR: frozenset({"snapshot"}),
    Effect.KEEP_OUTGOING: frozenset({"snapshot"}),
    Effect.OPEN_STEP: frozenset({"snapshot"}),
    Effect.WRITE_BASE_FILE: frozenset({"base-file-write"}),
    Effect.WRITE_ADAPTERS: frozenset({"adapters"}),
    Effect.SEND_WEIGHTS: frozenset({"sync"}),
    Effect.DRIVE_TAGS: frozenset({"gradients", *_READS}),
    Effect.VERIFY_AND_MEND: _READS,
}
"""The kinds of bytes that each effect moves."""
_KINDS: Final = {
    key[:3]: frozenset().union(*(_MOVES.get(one, frozenset()) for one in effects)) for key, effects in EDGES.items()
}

_Held = Mapping[str, Mapping[str, int]]


class Ends(Check):
    """Compares the end of each transition with the facts that it was decided on."""

    def __init__(self) -> None:
        self._facts: Facts | None = None
        self._held: _Held | None = None
        self._awake: _Held | None = None
        self._prefix: str | None = None
        self._gone: int | None = None

    def looks(self) -> Mapping[str, Look]:
        """An end, and what changes with what it is compared."""
        return {"moved": self._ended, "failed": self._ended, "noted": self._noted}

    def _noted(self, seen: Seen, found: Found) -> None:
        if seen.record["note"] == notes.PLACED:
            self._awake = self._gone = None

    def _ended(self, seen: Seen, found: Found) -> None:
        record = seen.record
        _look_at_kinds(record, found)
        if seen.event == "moved" and self._facts is not None:
            self._done(record, self._facts, found)
        self._hold(record["held"], is_awake=record["target"] == AWAKE)
        if self._prefix is None:
            self._prefix = prefix_in(record)

    def _hold(self, held: _Held, *, is_awake: bool) -> None:
        """What is held now; mostly that is what was held before."""
        if held != self._held:
            self._held, self._gone = held, None
        if is_awake and held != self._awake:
            self._awake, self._gone = held, None

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """What is not on the device, of what is when the trainer is awake, has to be resumed."""
        self._facts = facts
        if self._awake is None or self._prefix is None or self._held is None:
            return
        if seen.record["source"] == FAULTED:
            return
        if self._gone is None:
            awake, now = own(self._awake, "device", self._prefix), own(self._held, "device", self._prefix)
            self._gone = sum(awake.values()) - sum(now.values())
        if facts.resume_need_bytes != self._gone:
            told = f"{facts.resume_need_bytes} bytes have to be resumed, {self._gone} are not on the device"
            found.say(Kind.FACTS, told)

    def _done(self, record: Mapping[str, Any], facts: Facts, found: Found) -> None:
        trigger, details = record["trigger"], record["details"]
        if trigger == RECONCILE_ADAPTERS:
            _look_at_reconciled(details, facts, found)
        elif trigger == TRAINED:
            told = {*details["versions"]}
            wanted = {*facts.touched} - ({FROZEN_BASE} - told)
            if told != wanted:
                found.say(Kind.EFFECTS, f"versions are told of {_named(told)}, the step touches {_named(wanted)}")
        elif trigger == SLEEP and _is_twice(details["paused"]):
            found.say(Kind.EFFECTS, "a tag was paused twice")
        elif trigger == OFFLOAD and self._held is not None:
            _look_at_offloaded(record, facts, self._held, found)
        elif trigger == WAKE_UP and self._held is not None:
            _look_at_woken(record, facts, self._held, found)
        copied = record["moved"].get("snapshot", 0)
        if details and details.get("backed_up_bytes", copied) != copied:
            found.say(Kind.EFFECTS, f"{details['backed_up_bytes']} bytes were backed up, and {copied} copied")
        if copied > facts.copy_need_bytes and trigger in {SLEEP, TRAINED, BEGIN_STEP}:
            found.say(Kind.BYTES, f"{copied} bytes were copied, and {facts.copy_need_bytes} were needed")

    def forget(self) -> None:
        """Ends are compared with the next facts."""
        self._facts = self._held = self._awake = self._prefix = self._gone = None


def _look_at_kinds(record: Mapping[str, Any], found: Found) -> None:
    moved = record["moved"]
    allowed = _KINDS.get((record["source"], record["trigger"], record["edge"])) if moved else None
    if allowed is not None and (other := moved.keys() - allowed):
        found.say(
            Kind.BYTES, f"bytes of {_named(other)} were moved, which {record['trigger']}/{record['edge']} does not do"
        )


def _look_at_reconciled(details: Mapping[str, Any], facts: Facts, found: Found) -> None:
    loaded, retired = details["loaded"], details["retired"]
    left = {one["name"] if isinstance(one, dict) else one for one in details.get("failed", ())}
    if loaded != [one for one in facts.to_load if one in loaded] or {*loaded} | left != {*facts.to_load} | left:
        found.say(Kind.EFFECTS, f"{_named(loaded)} were loaded, {_named(facts.to_load)} were to be")
    if _is_twice(retired) or {*retired} | left != {*facts.to_retire} | left:
        found.say(Kind.EFFECTS, f"{_named(retired)} were retired, {_named(facts.to_retire)} were to be")
    told = details["versions"].keys()
    if told != {adapter_group(one) for one in loaded}:
        found.say(Kind.EFFECTS, f"versions are told of {_named(told)}, loaded were {_named(loaded)}")
    if not {*details["dropped_gradients_of"]} <= {*facts.accumulated}:
        found.say(Kind.EFFECTS, "gradients were dropped that were not accumulated")


def _look_at_offloaded(record: Mapping[str, Any], facts: Facts, before: _Held, found: Found) -> None:
    paused, held = record["details"]["paused"], record["held"]
    if _is_twice(paused) or len(paused) != facts.active_tags:
        found.say(Kind.EFFECTS, f"{len(paused)} tag(s) were paused, {facts.active_tags} were active")
    _compare_sum(record, "backup", found, [before.get("device", {}).get(tag, 0) for tag in paused if _has(held, tag)])
    for place, need in (("saver_host", facts.backup_need_bytes), ("saver_disk", facts.disk_need_bytes)):
        now, then = held.get(place, {}), before.get(place, {})
        grown = sum([now.get(tag, 0) - then.get(tag, 0) for tag in paused]) if now or then else 0
        if grown != need:
            found.say(Kind.BYTES, f"{place} holds {grown} bytes more, {need} were needed")


def _look_at_woken(record: Mapping[str, Any], facts: Facts, before: _Held, found: Found) -> None:
    details, held = record["details"], record["held"].get("device", {})
    resumed, scratch = details["resumed"], details["resumed_scratch"]
    if _is_twice(resumed) or len(resumed) != facts.paused_tags:
        found.say(Kind.EFFECTS, f"{len(resumed)} tag(s) were resumed, {facts.paused_tags} were paused")
    if _is_twice(scratch) or bool(scratch) > facts.scratch_paused:
        found.say(Kind.EFFECTS, f"{_named(scratch)} were resumed, and were not paused or stand there twice")
    _compare_sum(record, "restore", found, [held.get(tag, 0) for tag in resumed if _has(before, tag)])
    taken = sum([held.get(tag, 0) for tag in (*resumed, *scratch)])
    if taken != facts.resume_need_bytes:
        found.say(Kind.BYTES, f"{taken} bytes were resumed, {facts.resume_need_bytes} were needed")


def _compare_sum(record: Mapping[str, Any], kind: str, found: Found, sizes: Iterable[int]) -> None:
    total, told = sum(sizes), record["moved"].get(kind, 0)
    if total != told:
        found.say(Kind.BYTES, f"{told} bytes of {kind} were moved, the tags that were have {total}")


def _has(held: _Held, tag: str) -> bool:
    return tag in held.get(SAVER_HOST, ()) or tag in held.get(SAVER_DISK, ())


def _is_twice(names: Collection[str]) -> bool:
    return len({*names}) != len(names)


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
