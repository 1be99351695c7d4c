"""What stays as it is from one record to the next: configuration, the open step, models, tags and where bytes lie."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from lifecycle.auditing.kinds import Found, Kind, Seen
from states import ACTOR, ContentFacts, Facts, TrainerEvent, TrainerState, adapter_group

_CONFIGURED: Final = (
    "colocate", "lora", "offload_target", "with_ref", "with_teacher", "keep_old_actor", "strategy", "frozen_base",
)  # fmt: skip
_FOLLOWED: Final = (
    *_CONFIGURED, "active_model", "accumulated", "step_open", "active_tags", "paused_tags", "scratch_paused",
)  # fmt: skip
_TAGS: Final = frozenset({"active_tags", "paused_tags", "scratch_paused"})
_VALUES: Final = attrgetter(*_FOLLOWED)
_CALLS: Final = ("snapshots.", "keep_model")
_STILL: Final = frozenset({TrainerEvent.SLEEP, TrainerEvent.OFFLOAD, TrainerEvent.UPDATE_WEIGHTS})
"""Events after which every group is in the version in which it was before, if its bytes are known."""


class Standing:
    """Follows the facts that only an event or a call changes."""

    def __init__(self) -> None:
        self._known: dict[str, object] = {}
        self._facts: Facts | None = None

    def see(self, seen: Seen) -> Found:
        """Facts, or what changes them."""
        record = seen.record
        if seen.facts is not None:
            yield from self._compared(seen.facts)
            self._known = dict(zip(_FOLLOWED, _VALUES(seen.facts), strict=True))
            self._known["models"] = _kept(seen.facts)
            if seen.facts.step_open:
                self._known["touched"] = seen.facts.touched
            self._facts = seen.facts
        elif seen.event == "moved":
            self._moved(record)
        elif seen.event == "failed":
            self._let_go({"models"} if record["target"] != TrainerState.FAULTED else self._known.keys())
        elif seen.event == "noted":
            self._noted(record)
        elif not record.get("continues"):
            self.forget()

    def _compared(self, facts: Facts) -> Found:
        for name, known in self._known.items():
            told = _kept(facts) if name == "models" else getattr(facts, name)
            if told != known:
                yield Kind.FACTS, f"{name} is {told}, by the records before it {known}"

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
        if note == "a step was aborted":
            self._known["step_open"] = False
            self._let_go({"touched"})
        elif note == "gradients were accumulated":
            self._closed(tuple(record.get("groups", ())))
        elif note.startswith(_CALLS):
            self._let_go({"models"})
        elif note == "gradients and moments were placed":
            self._let_go(_TAGS)
        elif note == "ranks joined":
            self.forget()

    def _let_go(self, names: Any) -> None:
        for name in tuple(names):
            self._known.pop(name, None)

    def end(self) -> Found:
        """Anything may stand at the end."""
        yield from ()

    def forget(self) -> None:
        """The next facts are believed."""
        self._known, self._facts = {}, None


def _kept(facts: Facts) -> tuple[str, ...]:
    return tuple(one for one in facts.models if one != ACTOR)


class Contents:
    """Follows in which version the bytes of each group are, in the trainer's memory, in copies and in the base file."""

    def __init__(self) -> None:
        self._before: dict[str, ContentFacts] | None = None
        self._facts: Facts | None = None
        self._moved: frozenset[str] | None = frozenset()
        self._is_copied = False
        self._is_filed = False

    def see(self, seen: Seen) -> Found:
        """Facts, or what changes where bytes are."""
        record = seen.record
        if seen.facts is not None:
            if self._facts is None or self._facts.contents is not seen.facts.contents or self._moved is None:
                yield from self._compared(seen.facts)
                self._before = {one.group: one for one in seen.facts.contents}
            self._facts, self._moved, self._is_copied, self._is_filed = seen.facts, frozenset(), False, False
        elif seen.event == "moved" and self._facts is not None:
            self._ended(record, self._facts)
        elif seen.event == "noted":
            self._noted(record["note"])
        elif seen.event == "opened" and not record.get("continues"):
            self.forget()
        elif seen.event == "failed":
            self._moved, self._is_copied, self._is_filed = None, True, True

    def _compared(self, facts: Facts) -> Found:
        if self._before is None or self._moved is None:
            return
        for now in facts.contents:
            one = self._before.get(now.group)
            if one is None or one is now:
                continue
            was, is_now = _present(one), _present(now)
            if now.group not in self._moved and None not in (was, is_now) and was != is_now:
                yield Kind.FACTS, f"{now.group} lies there in version {is_now}, and before in {was}"
            if not self._is_copied and (one.copies, one.borrowed) != (now.copies, now.borrowed):
                yield Kind.FACTS, f"{now.group} has copies {now.copies}, and before {one.copies}; nothing has made them"
            if not self._is_filed and one.file != now.file:
                yield (
                    Kind.FACTS,
                    f"the base file holds version {now.file}, and before {one.file}; nobody has written it",
                )

    def _ended(self, record: Mapping[str, Any], facts: Facts) -> None:
        trigger, moved = record["trigger"], record["moved"]
        self._is_filed = "base-file-write" in moved
        if trigger == TrainerEvent.BEGIN_STEP:
            self._is_copied = bool(moved.get("snapshot"))
        elif trigger == TrainerEvent.TRAINED:
            self._moved, self._is_copied = frozenset(facts.touched), True
        elif trigger == TrainerEvent.RECONCILE_ADAPTERS:
            self._moved = frozenset(map(adapter_group, (*facts.to_load, *facts.to_retire)))
            self._is_copied = True
        elif trigger == TrainerEvent.SLEEP:
            self._is_copied = True
        elif trigger not in _STILL:
            self._moved = None if trigger != TrainerEvent.WAKE_UP else self._moved
            self._is_copied = trigger != TrainerEvent.WAKE_UP
            self._is_filed |= trigger == TrainerEvent.RECOVER

    def _noted(self, note: str) -> None:
        if note.startswith(_CALLS):
            self._is_copied = True
        elif note in {"a step was aborted", "gradients were accumulated", "versions of engines were adopted"}:
            self._moved, self._is_copied, self._is_filed = None, True, True
        elif note == "ranks joined":
            self.forget()

    def end(self) -> Found:
        """Bytes may lie anywhere at the end."""
        yield from ()

    def forget(self) -> None:
        """The next facts are believed."""
        self._before, self._facts, self._moved = None, None, frozenset()


def _present(one: ContentFacts) -> int | None:
    """The version in the trainer's own memory, as far as the facts tell it."""
    return one.live if one.live is not None else one.saver
