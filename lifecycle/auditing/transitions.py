"""Which records follow which: numbers of transitions, ends of what began, states, and edges of the table."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

from lifecycle.audit import notes
from lifecycle.audit.chain import SCHEMA
from lifecycle.auditing.kinds import DECIDED, ENDED, Check, Found, Kind, Look, Seen
from lifecycle.auditing.members import FAULTED
from states.replay import EDGES

_SAME: Final = ("trigger", "edge", "source")
_OPEN: Final = ("sequence", "transition", *_SAME, "target")
"""What is kept of what began until it ends."""
_SAME_OF: Final = itemgetter("transition", *_SAME)
_EDGE_OF: Final = itemgetter("source", "trigger", "edge", "target")
_TURNS: Final = notes.COPIED | {notes.ABORTED, notes.ACCUMULATED, notes.OUTSIDE}
"""Notes of calls that wait for their turn."""
_ALWAYS: Final = frozenset({"enter", "agree", "commit"})
_EFFECTS: Final = {key[:3]: effects for key, effects in EDGES.items()}


class Pairs(Check):
    """Each transition has the next number, and what began has exactly one end."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._open: dict[str, Any] | None = None

    def begin(self, seen: Seen, found: Found) -> None:
        """Numbers begin anew, and what is open gets no end. A session of version 1 may begin with any number."""
        self.end(found)
        self._number = 0 if seen.record["schema"] == SCHEMA else None

    def looks(self) -> Mapping[str, Look]:
        """A decision, its end, or a note."""
        decided = dict.fromkeys(DECIDED, self._decided)
        return {"noted": self._noted, **decided, **dict.fromkeys(ENDED, self._ended)}

    def _decided(self, seen: Seen, found: Found) -> None:
        if self._open is not None:
            self.end(found)
        number, last = seen.record["transition"], self._number
        if last is not None and number != last + 1:
            found.say(Kind.NUMBERING, f"transition {number} follows {last}")
        if seen.event == "began":
            self._open = {key: seen.record[key] for key in _OPEN}
        self._number = number

    def _ended(self, seen: Seen, found: Found) -> None:
        record, began, last = seen.record, self._open, self._number
        self._number, self._open = record["transition"], None
        if began is not None:
            _compare(began, record, found)
        elif last is not None:
            found.say(Kind.UNPAIRED, f"transition {record['transition']} ends and has not begun")

    def _noted(self, seen: Seen, found: Found) -> None:
        note, number = seen.record["note"], seen.record["transition"]
        if note == notes.JOINED:
            self._number = number
        elif self._number is not None and number != self._number:
            found.say(Kind.NUMBERING, f"a note of transition {number} stands after transition {self._number}")
        elif self._open is not None and note in _TURNS:
            found.say(Kind.UNPAIRED, f"{note} in the middle of transition {number}")

    def end(self, found: Found) -> None:
        """Say that what began last has no end."""
        if self._open is not None:
            one, self._open = self._open, None
            told = f"transition {one['transition']} ({one['trigger']}, record {one['sequence']}) has no end"
            found.say(Kind.UNFINISHED, told)

    def forget(self) -> None:
        """Any number may come next."""
        self._number = self._open = None


def _compare(began: Mapping[str, Any], record: Mapping[str, Any], found: Found) -> None:
    """An end with what it began with."""
    if _SAME_OF(began) != _SAME_OF(record):
        if record["transition"] != began["transition"]:
            found.say(Kind.UNPAIRED, f"transition {record['transition']} ends, {began['transition']} has begun")
        for key in _SAME:
            if record[key] != began[key]:
                found.say(Kind.UNPAIRED, f"its {key} is {record[key]}, it began with {began[key]}")
    if record["event"] == "lifecycle.moved" and record["target"] != began["target"]:
        found.say(Kind.UNPAIRED, f"its target is {record['target']}, it began with {began['target']}")


class States(Check):
    """Each record leaves the state that the one before it has reached, on an edge of the table."""

    def __init__(self) -> None:
        self._state: str | None = None

    def looks(self) -> Mapping[str, Look]:
        """The state that a record leaves, its edge, and the state that it reaches."""
        edges = dict.fromkeys(("began", *ENDED), self._on_an_edge)
        return {**edges, **dict.fromkeys(("refused", "unchanged"), self._where_it_was)}

    def _where_it_was(self, seen: Seen, found: Found) -> None:
        source, target = seen.record["source"], seen.record["target"]
        if self._state not in (None, source):
            found.say(Kind.TRANSITION, self._other(source))
        if source != target:
            found.say(Kind.TRANSITION, f"nothing happened, and it goes from {source} to {target}")
        self._state = target

    def _on_an_edge(self, seen: Seen, found: Found) -> None:
        record, event = seen.record, seen.event
        source, trigger, edge, target = _EDGE_OF(record)
        if self._state not in (None, source):
            found.say(Kind.TRANSITION, self._other(source))
        effects = _EFFECTS.get((source, trigger, edge))
        if effects is None:
            found.say(Kind.TRANSITION, f"{trigger}/{edge} is no edge that leaves {source}")
        elif event == "failed":
            if target not in (source, FAULTED):
                found.say(Kind.TRANSITION, f"it failed, and goes from {source} to {target}")
            if record["effect"] not in {*effects, *_ALWAYS}:
                found.say(Kind.TRANSITION, f"{trigger}/{edge} has no effect {record['effect']}")
        elif (source, trigger, edge, target) not in EDGES:
            found.say(Kind.TRANSITION, f"{trigger}/{edge} does not lead from {source} to {target}")
        self._state = source if event == "began" else target

    def _other(self, source: str) -> str:
        return f"it leaves {source}, the record before it has left the trainer {self._state}"

    def forget(self) -> None:
        """The next record may leave any state."""
        self._state = None
