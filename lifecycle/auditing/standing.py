"""What stays as it is from one record to the next: configuration, the open step, models and tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.auditing.kinds import EVERY, Found, Kind, Seen
from states import ACTOR, Facts, TrainerEvent, TrainerState

_CONFIGURED: Final = (
    "colocate", "lora", "offload_target", "with_ref", "with_teacher", "keep_old_actor", "strategy", "frozen_base",
)  # fmt: skip
_FOLLOWED: Final = (
    *_CONFIGURED, "active_model", "accumulated", "step_open", "active_tags", "paused_tags", "scratch_paused", "touched",
)  # fmt: skip
_TAGS: Final = frozenset({"active_tags", "paused_tags", "scratch_paused"})
_VALUES: Final = attrgetter(*_FOLLOWED)
_CLOSES: Final = frozenset({notes.ABORTED, notes.ACCUMULATED})


class Standing:
    """Follows the facts that only an event or a call changes."""

    events = EVERY

    def __init__(self) -> None:
        self._known: dict[str, object] = {}
        self._facts: Facts | None = None

    def see(self, seen: Seen) -> Found:
        """Facts, or what changes them."""
        record = seen.record
        if seen.facts is not None:
            yield from self._told(seen.facts)
            self._facts = seen.facts
        elif seen.event == "moved":
            self._moved(record)
        elif seen.event == "failed":
            self._let_go({"models"} if record["target"] != TrainerState.FAULTED else self._known.keys())
        elif seen.event == "noted":
            if record["note"] in _CLOSES and self._known.get("step_open") is False:
                yield Kind.FACTS, f"{record['note']}, and none was open"
            self._noted(record)
        elif not record.get("continues"):
            self.forget()

    def _told(self, facts: Facts) -> Found:
        told = dict(zip(_FOLLOWED, _VALUES(facts), strict=True))
        told["models"] = _kept(facts)
        if not self._known.items() <= told.items():  # at once: they nearly always are what they were
            for name, known in self._known.items():
                if told[name] != known:
                    yield Kind.FACTS, f"{name} is {told[name]}, by the records before it {known}"
        self._known = told
        if not facts.step_open:
            self._let_go({"touched"})

    def _moved(self, record: Mapping[str, Any]) -> None:
        trigger, facts = record["trigger"], self._facts
        if facts is None or trigger == TrainerEvent.RECOVER:
            self._let_go({*self._known} - {*_CONFIGURED})
        elif trigger == TrainerEvent.BEGIN_STEP:
            self._known |= {"step_open": True, "touched": facts.touched}
        elif trigger == TrainerEvent.TRAINED:
            self._closed(tuple(one for one in facts.accumulated if one not in facts.touched))
        elif trigger == TrainerEvent.SWITCH_MODEL:
            self._known["active_model"] = facts.switch_target
            self._let_go({"models"})
        elif trigger == TrainerEvent.RECONCILE_ADAPTERS:
            dropped = record["details"].get("dropped_gradients_of", ())
            self._known["accumulated"] = tuple(one for one in facts.accumulated if one not in dropped)
        else:
            self._paused(trigger, record["details"], facts)

    def _closed(self, accumulated: tuple[str, ...]) -> None:
        self._known |= {"step_open": False, "accumulated": accumulated}
        self._let_go({"touched"})

    def _paused(self, trigger: str, details: Mapping[str, Any], facts: Facts) -> None:
        every = facts.active_tags + facts.paused_tags
        if trigger == TrainerEvent.SLEEP:
            self._known["scratch_paused"] = bool(details.get("paused")) or facts.scratch_paused
        elif trigger == TrainerEvent.OFFLOAD:
            self._known |= {"active_tags": 0, "paused_tags": every}
        elif trigger == TrainerEvent.WAKE_UP:
            self._known |= {"active_tags": every, "paused_tags": 0, "scratch_paused": False}

    def _noted(self, record: Mapping[str, Any]) -> None:
        note = record["note"]
        if note == notes.ABORTED:
            self._known["step_open"] = False
            self._let_go({"touched"})
        elif note == notes.ACCUMULATED:
            self._closed(tuple(record.get("groups", ())))
        elif note in notes.COPIED:
            self._let_go({"models"})
        elif note == notes.PLACED:
            self._let_go(_TAGS)
        elif note == notes.JOINED:
            self.forget()

    def _let_go(self, names: Iterable[str]) -> None:
        for name in tuple(names):
            self._known.pop(name, None)

    def end(self) -> Found:
        """Anything may stand at the end."""
        yield from ()

    def forget(self) -> None:
        """The next facts are believed."""
        self._known, self._facts = {}, None


def _kept(facts: Facts) -> tuple[str, ...]:
    return tuple([one for one in facts.models if one != ACTOR])
