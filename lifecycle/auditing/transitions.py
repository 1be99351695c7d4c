"""Which records follow which: numbers of transitions, ends of what began, states, and edges of the table."""

from __future__ import annotations

from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.audit.chain import SCHEMA
from lifecycle.auditing.kinds import DECIDED, ENDED, EVERY, Found, Kind, Seen
from states import TrainerState
from states.replay import EDGES

_SAME: Final = ("trigger", "edge", "source")
_TURNS: Final = notes.COPIED | {notes.ABORTED, notes.ACCUMULATED, notes.OUTSIDE}
"""Notes of calls that wait for their turn."""
_ALWAYS: Final = frozenset({"enter", "agree", "commit"})
_EFFECTS: Final = {key[:3]: effects for key, effects in EDGES.items()}


class Pairs:
    """Each transition has the next number, and what began has exactly one end."""

    events = EVERY

    def __init__(self) -> None:
        self._number: int | None = None
        self._open: dict[str, Any] | None = None

    def see(self, seen: Seen) -> Found:
        """A decision, its end, or a note."""
        record, number = seen.record, seen.record.get("transition")
        if seen.event == "opened":
            if not record.get("continues"):
                yield from self.end()
                self._number = 0 if record["schema"] == SCHEMA else None  # one of version 1 may begin later
                self._open = None
        elif seen.event in DECIDED:
            yield from self.end()
            if self._number is not None and number != self._number + 1:
                yield Kind.NUMBERING, f"transition {number} follows {self._number}"
            self._open = record if seen.event == "began" else None
            self._number = number
        elif seen.event in ENDED:
            yield from self._ended(record)
            self._number, self._open = number, None
        elif record.get("note") == notes.JOINED:
            self._number = number
        elif self._number is not None and number != self._number:
            yield Kind.NUMBERING, f"a note of transition {number} stands after transition {self._number}"
        elif self._open is not None and record["note"] in _TURNS:
            yield Kind.UNPAIRED, f"{record['note']} in the middle of transition {number}"

    def _ended(self, record: dict[str, Any]) -> Found:
        began = self._open
        if began is None:
            if self._number is not None:
                yield Kind.UNPAIRED, f"transition {record['transition']} ends and has not begun"
            return
        if record["transition"] != began["transition"]:
            yield Kind.UNPAIRED, f"transition {record['transition']} ends, {began['transition']} has begun"
        for key in _SAME:
            if record[key] != began[key]:
                yield Kind.UNPAIRED, f"its {key} is {record[key]}, it began with {began[key]}"
        if record["event"] == "lifecycle.moved" and record["target"] != began["target"]:
            yield Kind.UNPAIRED, f"its target is {record['target']}, it began with {began['target']}"

    def end(self) -> Found:
        """What began last has no end."""
        if self._open is not None:
            one, self._open = self._open, None
            yield (
                Kind.UNFINISHED,
                f"transition {one['transition']} ({one['trigger']}, record {one['sequence']}) has no end",
            )

    def forget(self) -> None:
        """Any number may come next."""
        self._number = self._open = None


class States:
    """Each record leaves the state that the one before it has reached, on an edge of the table."""

    events = EVERY - {"noted"}

    def __init__(self) -> None:
        self._state: str | None = None

    def see(self, seen: Seen) -> Found:
        """The state that it leaves, its edge, and the state that it reaches."""
        record, event = seen.record, seen.event
        if event == "opened":
            if not record.get("continues"):
                self.forget()
            return
        source, target = record["source"], record["target"]
        if self._state not in (None, source):
            yield Kind.TRANSITION, f"it leaves {source}, the record before it has left the trainer {self._state}"
        if event in {"refused", "unchanged"}:
            if source != target:
                yield Kind.TRANSITION, f"nothing happened, and it goes from {source} to {target}"
        else:
            yield from self._edge(record, event)
        self._state = source if event == "began" else target

    def _edge(self, record: dict[str, Any], event: str) -> Found:
        source, trigger, edge, target = record["source"], record["trigger"], record["edge"], record["target"]
        effects = _EFFECTS.get((source, trigger, edge))
        if effects is None:
            yield Kind.TRANSITION, f"{trigger}/{edge} is no edge that leaves {source}"
        elif event == "failed":
            if target not in (source, TrainerState.FAULTED):
                yield Kind.TRANSITION, f"it failed, and goes from {source} to {target}"
            if record["effect"] not in {*effects, *_ALWAYS}:
                yield Kind.TRANSITION, f"{trigger}/{edge} has no effect {record['effect']}"
        elif (source, trigger, edge, target) not in EDGES:
            yield Kind.TRANSITION, f"{trigger}/{edge} does not lead from {source} to {target}"

    def end(self) -> Found:
        """Any state may be the last."""
        yield from ()

    def forget(self) -> None:
        """The next record may leave any state."""
        self._state = None
