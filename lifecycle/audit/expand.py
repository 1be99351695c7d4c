"""Facts that a log tells as changes, in full again. What did not change is shared between records, not copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit.rows import COPIES, KEYED, in_order
from lifecycle.audit.spans import positions_in

Record = dict[str, object]

_DAMAGE: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)


class ExpandedFacts(dict[str, Any]):
    """Facts in full, ``{"shared": {...}, "local": {...}}``. Other records share parts of them: do not change any.

    Attributes:
        written: what the line says, which its hash is of.
        before: the facts that those are changes of, None once the next ones were expanded: only neighbours are held.
    """

    written: Mapping[str, Any]
    before: Mapping[str, Any] | None


def is_whole(facts: object) -> bool:
    """Whether the facts of a record are all that the event was decided on.

    They are not where the record that they are a change of is missing, torn or damaged.
    """
    return isinstance(facts, dict) and "since" not in facts


class Expander:
    """Expands the records of one log, in their order.

    Args:
        only: the facts that are asked for; the others stay as they stood in the last record that told all, which
            takes no time. All of them when None.
    """

    def __init__(self, only: frozenset[str] | None = None) -> None:
        self._only = only
        self._facts: Mapping[str, Any] | None = None
        self._sequence: object = None
        self._lists: dict[int, list[Any]] = {}
        self._gone: dict[str, dict[str, Any]] = {}

    def expand(self, record: Record) -> None:
        """Put the facts of the record in full, in its place.

        They stay as they are written where the record that they are a change of is not the one that was read before,
        see :func:`is_whole`.
        """
        told = record.get("facts")
        if not isinstance(told, dict):
            return
        if "since" not in told:
            self._lists.clear()
            self._gone.clear()
            self._facts, self._sequence = told, record.get("sequence")
            return
        before, since, self._facts = self._facts, self._sequence, None
        if before is None or told["since"] != since:
            return
        try:
            facts = ExpandedFacts({scope: self._scope(before[scope], told[scope]) for scope in ("shared", "local")})
        except _DAMAGE:  # a line that somebody has changed
            return
        facts.written, facts.before = told, before
        if isinstance(before, ExpandedFacts):
            before.before = None
        record["facts"] = facts
        self._facts, self._sequence = facts, record.get("sequence")

    def _scope(self, before: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        if not told and type(told) is dict:
            return before
        scope = before.copy()
        for name, one in told.items():
            scope[name] = self._value(name, before[name], one)
        return scope

    def _value(self, name: str, before: list[Any], told: Any) -> Any:
        if type(told) is not dict and type(told) is not list:
            return told if self._only is None or name in self._only else before
        if self._only is not None and name not in self._only:
            self._plain(told)  # for the lists in it that later facts point at
            return before
        if type(told) is dict and name in KEYED:
            return self._rows(KEYED[name].key, before, told, self._gone.setdefault(name, {}))
        return self._plain(told)

    def _rows(self, key: str, before: list[Any], told: Mapping[str, Any], gone: dict[str, Any]) -> list[Any]:
        entries = before.copy()
        for one in told.get("changed", ()):
            plain, others = self._change(one, key)
            for at in positions_in(one["at"]):
                entry = {**entries[at], **plain}
                entries[at] = _changed(before[at], entry, others) if others else entry
        left = frozenset(told.get("gone", ()))
        if left:
            gone |= {one[key]: one for one in entries if one[key] in left}
            entries = [one for one in entries if one[key] not in left]
        for one in told.get("new", ()):
            entry = {name: self._plain(value) for name, value in one.items() if name != "at"}
            entries.insert(one.get("at", len(entries)), gone.get(one[key], {}) | entry)
        return entries

    def _change(self, row: Mapping[str, Any], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a row sets: fields of which the value stands there, and all others."""
        plain, others = {}, {}
        for name, told in row.items():
            value = self._plain(told) if type(told) is dict or type(told) is list else told
            if type(value) is dict or "." in name:
                others[name] = value
            elif name not in ("at", key):
                plain[name] = value
        return plain, others

    def _plain(self, told: Any) -> Any:
        if type(told) is list:
            return [self._plain(one) for one in told] if told and type(told[0]) is dict else told
        if type(told) is not dict:
            return told
        if "as" in told:
            return self._lists[told["as"]]
        if "id" in told:
            self._lists[told["id"]] = told["is"]
            return told["is"]
        return told if "was" in told else {name: self._plain(one) for name, one in told.items()}


def _changed(first: Mapping[str, Any], entry: dict[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with changes that do not stand there as values of its fields.

    Args:
        first: the entry before all changes of this record; ``{"was": field}`` is what that field held in it.
        entry: the same with the changes so far, a dict of its own.
        others: field, or ``copies.TAG``, to its value.
    """
    copies = {}
    for name, told in others.items():
        value = first[told["was"]] if type(told) is dict else told
        if "." in name:
            copies[name.partition(".")[2]] = value
        else:
            entry[name] = value
    if copies:
        entry[COPIES] = [list(one) for one in in_order(first[COPIES], dict(entry[COPIES]) | copies)]
    return entry
