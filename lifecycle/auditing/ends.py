"""Ends: what a transition says it has done is what it was decided to do, and the bytes that it moved are those."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.tags import BACKUPS, own, prefix_in
from states import FROZEN_BASE, Effect, Facts, TrainerEvent, TrainerState, adapter_group
from states.replay import EDGES

_E: Final = TrainerEvent
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
        return {"opened": self._opened, "moved": self._ended, "failed": self._ended, "noted": self._noted}

    def _opened(self, seen: Seen, found: Found) -> None:  # noqa: ARG002 - as every look
        if not seen.record.get("continues"):
            self.forget()

    def _noted(self, seen: Seen, found: Found) -> None:  # noqa: ARG002 - as every look
        if seen.record["note"] == notes.PLACED:
            self._awake = self._gone = None

    def _ended(self, seen: Seen, found: Found) -> None:
        record = seen.record
        _look_at_kinds(record, found)
        if seen.event == "moved" and self._facts is not None:
            self._done(record, self._facts, found)
        self._held, self._gone = record["held"], None
        if record["target"] == TrainerState.AWAKE:
            self._awake = record["held"]
        if self._prefix is None:
            self._prefix = prefix_in(record)

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """What is not on the device, of what is when the trainer is awake, has to be resumed."""
        self._facts = facts
        if self._awake is None or self._prefix is None or self._held is None:
            return
        if seen.record["source"] == TrainerState.FAULTED:
            return
        if self._gone is None:
            awake, now = (own(one, "device", self._prefix) for one in (self._awake, self._held))
            self._gone = sum(awake.values()) - sum(now.values())
        if facts.resume_need_bytes != self._gone:
            told = f"{facts.resume_need_bytes} bytes have to be resumed, {self._gone} are not on the device"
            found.say(Kind.FACTS, told)

    def _done(self, record: Mapping[str, Any], facts: Facts, found: Found) -> None:
        trigger, details = record["trigger"], record["details"]
        if trigger == _E.RECONCILE_ADAPTERS:
            _look_at_reconciled(details, facts, found)
        elif trigger == _E.TRAINED:
            told = {*details["versions"]}
            wanted = {*facts.touched} - ({FROZEN_BASE} - told)
            if told != wanted:
                found.say(Kind.EFFECTS, f"versions are told of {_named(told)}, the step touches {_named(wanted)}")
        elif trigger == _E.SLEEP and _is_twice(details["paused"]):
            found.say(Kind.EFFECTS, "a tag was paused twice")
        elif trigger == _E.OFFLOAD and self._held is not None:
            _look_at_offloaded(record, facts, self._held, found)
        elif trigger == _E.WAKE_UP and self._held is not None:
            _look_at_woken(record, facts, self._held, found)
        copied = record["moved"].get("snapshot", 0)
        if details.get("backed_up_bytes", copied) != copied:
            found.say(Kind.EFFECTS, f"{details['backed_up_bytes']} bytes were backed up, and {copied} copied")
        if trigger in {_E.SLEEP, _E.TRAINED, _E.BEGIN_STEP} and copied > facts.copy_need_bytes:
            found.say(Kind.BYTES, f"{copied} bytes were copied, and {facts.copy_need_bytes} were needed")

    def forget(self) -> None:
        """Ends are compared with the next facts."""
        self._facts = self._held = self._awake = self._prefix = self._gone = None


def _look_at_kinds(record: Mapping[str, Any], found: Found) -> None:
    allowed = _KINDS.get((record["source"], record["trigger"], record["edge"]))
    if allowed is None:
        return
    other = record["moved"].keys() - allowed
    if other:
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
    _compare_sum(record, "backup", found, (before.get("device", {}).get(tag, 0) for tag in paused if _has(held, tag)))
    for place, need in (("saver_host", facts.backup_need_bytes), ("saver_disk", facts.disk_need_bytes)):
        grown = sum(held.get(place, {}).get(tag, 0) - before.get(place, {}).get(tag, 0) for tag in paused)
        if grown != need:
            found.say(Kind.BYTES, f"{place} holds {grown} bytes more, {need} were needed")


def _look_at_woken(record: Mapping[str, Any], facts: Facts, before: _Held, found: Found) -> None:
    details, held = record["details"], record["held"].get("device", {})
    resumed, scratch = details["resumed"], details["resumed_scratch"]
    if _is_twice(resumed) or len(resumed) != facts.paused_tags:
        found.say(Kind.EFFECTS, f"{len(resumed)} tag(s) were resumed, {facts.paused_tags} were paused")
    if _is_twice(scratch) or bool(scratch) > facts.scratch_paused:
        found.say(Kind.EFFECTS, f"{_named(scratch)} were resumed, and were not paused or stand there twice")
    _compare_sum(record, "restore", found, (held.get(tag, 0) for tag in resumed if _has(before, tag)))
    taken = sum(held.get(tag, 0) for tag in (*resumed, *scratch))
    if taken != facts.resume_need_bytes:
        found.say(Kind.BYTES, f"{taken} bytes were resumed, {facts.resume_need_bytes} were needed")


def _compare_sum(record: Mapping[str, Any], kind: str, found: Found, sizes: Iterable[int]) -> None:
    total, told = sum(sizes), record["moved"].get(kind, 0)
    if total != told:
        found.say(Kind.BYTES, f"{told} bytes of {kind} were moved, the tags that were have {total}")


def _has(held: _Held, tag: str) -> bool:
    return any(tag in held.get(place, {}) for place in BACKUPS)


def _is_twice(names: Collection[str]) -> bool:
    return len({*names}) != len(names)


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
