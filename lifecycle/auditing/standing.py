"""What stays as it is from one record to the next: configuration, the open step, models and tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import (
    BEGIN_STEP,
    FAULTED,
    OFFLOAD,
    RECONCILE_ADAPTERS,
    RECOVER,
    SLEEP,
    SWITCH_MODEL,
    TRAINED,
    WAKE_UP,
)
from states import ACTOR, Facts

_CONFIGURED: Final = (
    "colocate", "lora", "offload_target", "with_ref", "with_teacher", "keep_old_actor", "strategy", "frozen_base",
)  # fmt: skip
_FOLLOWED: Final = dict.fromkeys(
    (*_CONFIGURED, "active_model", "accumulated", "step_open", "active_tags", "paused_tags", "scratch_paused",
     "touched", "models")
)  # fmt: skip
_TAGS: Final = ("active_tags", "paused_tags", "scratch_paused")
_CLOSES: Final = frozenset({notes.ABORTED, notes.ACCUMULATED})


class Standing(Check):
    """Follows the facts that only an event or a call changes."""

    def __init__(self) -> None:
        self._known: dict[str, object] = {}
        self._open: dict[str, None] = dict.fromkeys(_FOLLOWED)
        self._facts: Facts | None = None

    def looks(self) -> Mapping[str, Look]:
        """What changes facts."""
        return {"moved": self._moved, "failed": self._failed, "noted": self._noted}

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """Facts that are others than in the record before, and those that have to be."""
        known, opened = self._known, self._open
        self._facts, self._open = facts, {}
        for name in (*filter(_FOLLOWED.__contains__, seen.changed), *opened):
            told = _kept(facts) if name == "models" else getattr(facts, name)
            if name in known and known[name] != told:
                found.say(Kind.FACTS, f"{name} is {told}, by the records before it {known[name]}")
            known[name] = told
        if not facts.step_open:
            known.pop("touched", None)
            self._open["touched"] = None

    def _failed(self, seen: Seen, found: Found) -> None:
        self._let_go(("models",) if seen.record["target"] != FAULTED else self._known)

    def _moved(self, seen: Seen, found: Found) -> None:
        record, facts = seen.record, self._facts
        trigger = record["trigger"]
        if facts is None or trigger == RECOVER:
            self._let_go([name for name in self._known if name not in _CONFIGURED])
        elif trigger == BEGIN_STEP:
            self._becomes(step_open=True, touched=facts.touched)
        elif trigger == TRAINED:
            self._closed(tuple(one for one in facts.accumulated if one not in facts.touched))
        elif trigger == SWITCH_MODEL:
            self._becomes(active_model=facts.switch_target)
            self._let_go(("models",))
        elif trigger == RECONCILE_ADAPTERS:
            dropped = record["details"].get("dropped_gradients_of", ())
            self._becomes(accumulated=tuple([one for one in facts.accumulated if one not in dropped]))
        else:
            self._paused(trigger, record["details"], facts)

    def _closed(self, accumulated: tuple[str, ...]) -> None:
        self._becomes(step_open=False, accumulated=accumulated)
        self._let_go(("touched",))

    def _paused(self, trigger: str, details: Mapping[str, Any], facts: Facts) -> None:
        every = facts.active_tags + facts.paused_tags
        if trigger == SLEEP:
            self._becomes(scratch_paused=bool(details.get("paused")) or facts.scratch_paused)
        elif trigger == OFFLOAD:
            self._becomes(active_tags=0, paused_tags=every)
        elif trigger == WAKE_UP:
            self._becomes(active_tags=every, paused_tags=0, scratch_paused=False)

    def _noted(self, seen: Seen, found: Found) -> None:
        record = seen.record
        note = record["note"]
        if note in _CLOSES and self._known.get("step_open") is False:
            found.say(Kind.FACTS, f"{note}, and none was open")
        if note == notes.ABORTED:
            self._becomes(step_open=False)
            self._let_go(("touched",))
        elif note == notes.ACCUMULATED:
            self._closed(tuple(record.get("groups", ())))
        elif note in notes.COPIED:
            self._let_go(("models",))
        elif note == notes.PLACED:
            self._let_go(_TAGS)
        elif note == notes.JOINED:
            self.forget()

    def _becomes(self, **facts: object) -> None:
        """What the next record has to tell."""
        self._known.update(facts)
        self._open.update(dict.fromkeys(facts))

    def _let_go(self, names: Iterable[str]) -> None:
        """The next record may tell anything of these."""
        for name in tuple(names):
            self._known.pop(name, None)
            self._open[name] = None

    def forget(self) -> None:
        """The next facts are believed."""
        self._known, self._facts, self._open = {}, None, dict.fromkeys(_FOLLOWED)


def _kept(facts: Facts) -> tuple[str, ...]:
    return tuple([one for one in facts.models if one != ACTOR])
