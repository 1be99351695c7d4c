"""Engines: what was sent is what they lacked, and what they hold is what they were sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import UPDATE_WEIGHTS
from states import EngineFacts, Facts

_OUTCOME: Final = frozenset(
    {"engine", "committed", "sent", "unloaded", "moved_bytes", "instance_id", "verified", "error"}
)


class Engines(Check):
    """Follows what each engine has acknowledged in a session whose beginning is on the record."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, int]] = {}
        self._instances: dict[str, str] = {}
        self._facts: Facts | None = None
        self._is_from_start = False

    def looks(self) -> Mapping[str, Look]:
        """What was sent to engines."""
        return {"moved": self._ended, "failed": self._ended}

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """What engines say that they hold."""
        if seen.record["transition"] == 1:
            self._is_from_start = True
        self._facts = facts
        for engine in facts.engines:
            if not engine.unknown and not engine.fenced:
                self._compare(engine, facts, found)

    def _ended(self, seen: Seen, found: Found) -> None:
        record = seen.record
        if record["trigger"] != UPDATE_WEIGHTS:
            return
        told = record["details"].get("engines", {}) if seen.event == "moved" else record.get("engines", {})
        outcomes = told if isinstance(told, dict) else {}
        self._sent(outcomes, found, is_whole=seen.event == "moved")
        moved = sum([one.get("moved_bytes", 0) for one in outcomes.values()])
        if moved != record["moved"].get("sync", 0):
            found.say(Kind.EFFECTS, f"engines were sent {moved} bytes, moved were {record['moved'].get('sync', 0)}")

    def _compare(self, engine: EngineFacts, facts: Facts, found: Found) -> None:
        held = self._held.get(engine.name)
        is_known = self._is_from_start or held is not None
        held = held or {}
        others = [one for one in facts.contents if held.get(one.group) != one.version]
        stale = frozenset(engine.stale) if others else ()
        unsent = {one.group: one.version for one in others if one.group not in stale}
        for group, version in unsent.items() if is_known else ():
            was = f"it was sent {held[group]}" if group in held else "which it was never sent"
            found.say(Kind.ENGINE, f"{engine.name} serves {group} in version {version}, {was}")
        self._held[engine.name] = held | unsent if unsent else held

    def _sent(self, told: dict[str, Any], found: Found, *, is_whole: bool) -> None:
        facts = self._facts
        if facts is None:
            return
        asked = {one.name: one for one in facts.engines}
        versions = {one.group: one.version for one in facts.contents}
        for name, outcome in told.items():
            engine = asked.get(name)
            if engine is None:
                found.say(Kind.ENGINE, f"{name} was sent something, and was not asked what it holds")
                continue
            for problem in _groups(outcome, engine, versions):
                found.say(Kind.ENGINE, f"{name} {problem}")
            for problem in (*_form(name, outcome), *self._instance(engine, outcome, len(versions))):
                found.say(Kind.EFFECTS, f"{name}: {problem}")
            if outcome["committed"]:
                self._held[name] = versions  # one for all engines: of thousands of groups there is one list
        left = sorted(one.name for one in facts.engines if (one.stale or one.extra) and one.name not in told)
        if is_whole and left:
            found.say(Kind.ENGINE, f"nothing is told of what was sent to {', '.join(left)}")

    def _instance(self, engine: EngineFacts, outcome: Mapping[str, Any], groups: int) -> Iterator[str]:
        """Another instance than the one that was confirmed last lacks everything."""
        instance, known = outcome["instance_id"], self._instances.get(engine.name)
        if instance and known not in (None, instance) and len(engine.stale) != groups:
            yield f"{instance} was sent {list(engine.stale)}, {known} was confirmed"
        if outcome["committed"]:
            self._instances[engine.name] = instance

    def forget(self) -> None:
        """What engines say next is believed."""
        self._held.clear()
        self._instances.clear()
        self._facts, self._is_from_start = None, False


def _groups(outcome: Mapping[str, Any], engine: EngineFacts, versions: Mapping[str, int]) -> Iterator[str]:
    """Groups that were sent, against those that it lacked."""
    sent, unloaded = outcome["sent"], outcome["unloaded"]
    never = [group for group in sent if group not in versions]
    if never:
        yield f"was sent {', '.join(never)}, which the trainer does not have"
    elif sent != [one for one in engine.stale if one in sent]:
        yield f"was sent {sent}, and lacked {list(engine.stale)}"
    elif outcome["committed"] and len(sent) != len(engine.stale):
        yield f"is said to be current, it lacked {list(engine.stale)} and got {sent}"
    if unloaded != [one for one in engine.extra if one in unloaded]:
        yield f"has unloaded {unloaded}, and was to unload {list(engine.extra)}"
    elif outcome["committed"] and len(unloaded) != len(engine.extra):
        yield f"is said to be current, it was to unload {list(engine.extra)} and unloaded {unloaded}"


def _form(name: str, outcome: Mapping[str, Any]) -> Iterator[str]:
    """What an outcome says of itself."""
    if outcome.keys() != _OUTCOME or outcome["engine"] != name:
        yield f"its outcome is one of {outcome.get('engine')}, with {', '.join(sorted(outcome))}"
    if outcome["committed"] is bool(outcome["error"]):
        yield f"it is {'' if outcome['committed'] else 'not '}committed, and the error is {outcome['error']!r}"
    if outcome["moved_bytes"] < 0:
        yield f"it was sent {outcome['moved_bytes']} bytes"
    if {*outcome["verified"]} != ({*outcome["sent"]} if outcome["committed"] else set()):
        yield f"{', '.join(outcome['verified']) or 'nothing'} was verified, sent was {outcome['sent']}"
    if outcome["committed"] and not outcome["instance_id"]:
        yield "no instance of it has committed"
