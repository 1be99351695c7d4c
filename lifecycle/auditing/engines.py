"""Engines: what was sent is what they lacked, and what they hold is what they were sent."""

from __future__ import annotations

from typing import Any

from lifecycle.auditing.kinds import Found, Kind, Seen
from states import EngineFacts, Facts, TrainerEvent


class Engines:
    """Follows what each engine has acknowledged in a session whose beginning is on the record."""

    def __init__(self) -> None:
        self._pushed: dict[tuple[str, str], set[int]] = {}
        self._met: set[str] = set()
        self._facts: Facts | None = None
        self._is_from_start = False

    def see(self, seen: Seen) -> Found:
        """What engines say, and what was sent to them."""
        record = seen.record
        if seen.event == "opened":
            if not record.get("continues"):
                self.forget()
        elif seen.facts is not None:
            self._is_from_start |= record["transition"] == 1
            self._facts = seen.facts
            for engine in seen.facts.engines:
                yield from self._holds(engine, seen.facts)
        elif seen.event in {"moved", "failed"} and record["trigger"] == TrainerEvent.UPDATE_WEIGHTS:
            told = record["details"].get("engines", {}) if seen.event == "moved" else record.get("engines", {})
            yield from self._sent(told if isinstance(told, dict) else {}, is_whole=seen.event == "moved")

    def _holds(self, engine: EngineFacts, facts: Facts) -> Found:
        if engine.unknown or engine.fenced:
            return
        is_known = self._is_from_start or engine.name in self._met
        self._met.add(engine.name)
        for one in facts.contents:
            pushed = self._pushed.setdefault((engine.name, one.group), set())
            if one.group in engine.stale:
                continue
            if is_known and one.version not in pushed:
                yield Kind.ENGINE, f"{engine.name} serves {one.group} in version {one.version}, which it was never sent"
            pushed.add(one.version)

    def _sent(self, told: dict[str, Any], *, is_whole: bool) -> Found:
        facts = self._facts
        if facts is None:
            return
        asked = {one.name: one for one in facts.engines}
        versions = {one.group: one.version for one in facts.contents}
        for name, outcome in told.items():
            engine = asked.get(name)
            if engine is None:
                yield Kind.ENGINE, f"{name} was sent something, and was not asked what it holds"
                continue
            sent = outcome.get("sent", [])
            never = [group for group in sent if group not in versions]
            if never:
                yield Kind.ENGINE, f"{name} was sent {', '.join(never)}, which the trainer does not have"
            elif not set(sent) <= set(engine.stale):
                yield Kind.ENGINE, f"{name} was sent {sent}, and lacked {list(engine.stale)}"
            if outcome.get("committed"):
                if set(sent) != set(engine.stale):
                    yield Kind.ENGINE, f"{name} is said to be current, it lacked {list(engine.stale)} and got {sent}"
                for group, version in versions.items():
                    self._pushed.setdefault((name, group), set()).add(version)
                self._met.add(name)
        left = sorted(one.name for one in facts.engines if (one.stale or one.extra) and one.name not in told)
        if is_whole and left:
            yield Kind.ENGINE, f"nothing is told of what was sent to {', '.join(left)}"

    def end(self) -> Found:
        """Engines need no end."""
        yield from ()

    def forget(self) -> None:
        """What engines say next is believed."""
        self._pushed.clear()
        self._met.clear()
        self._facts, self._is_from_start = None, False
