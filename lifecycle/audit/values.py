"""Values of facts that a log tells as changes, in full again. What did not change is shared, not copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit.rows import COPIES, KEYED, in_order
from lifecycle.audit.spans import positions_in

DAMAGE: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""What may be raised by a record that somebody has changed."""
_CONTAINERS: Final = frozenset({dict, list})


class Values:
    """Reads the values of one log, in their order: some point at what records before have told."""

    def __init__(self) -> None:
        self._lists: dict[int, list[Any]] = {}
        self._gone: dict[str, dict[str, Any]] = {}

    def begin(self) -> None:
        """A record tells all facts: what follows points at nothing before it."""
        self._lists.clear()
        self._gone.clear()

    def of(self, name: str, before: Any, told: Any) -> Any:
        """What a fact is.

        Args:
            name: of the fact.
            before: what it was. It is not changed.
            told: what the record says of it: the value, or how it changed.

        Raises:
            One of :data:`DAMAGE`: somebody has changed the record.
        """
        if type(told) is dict and name in KEYED:
            return self._rows(KEYED[name].key, before, told, self._gone.setdefault(name, {}))
        return self.plain(told)

    def _rows(self, key: str, before: list[Any], told: Mapping[str, Any], gone: dict[str, Any]) -> list[Any]:
        entries = before.copy()
        for one in told.get("changed", ()):
            fields = one.copy()
            at = fields.pop("at")
            fields.pop(key, None)
            others = self._take_others(fields)
            for position in positions_in(at):
                entry = {**entries[position], **fields}
                entries[position] = _changed(before[position], entry, others) if others else entry
        left = frozenset(told.get("gone", ()))
        if left:
            gone |= {one[key]: one for one in entries if one[key] in left}
            entries = [one for one in entries if one[key] not in left]
        for one in told.get("new", ()):
            entry = {name: self.plain(value) for name, value in one.items() if name != "at"}
            entries.insert(one.get("at", len(entries)), gone.get(one[key], {}) | entry)
        return entries

    def _take_others(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Take out of a row what is not the value of a field as it stands there; nearly always there is nothing."""
        names = [name for name, told in fields.items() if type(told) in _CONTAINERS or "." in name]
        others = {}
        for name in names:
            value = self.plain(fields.pop(name))
            if type(value) is dict or "." in name:
                others[name] = value
            else:
                fields[name] = value
        return others

    def plain(self, told: Any) -> Any:
        """A value that stands there, with the lists that it points at."""
        if type(told) is list:
            return [self.plain(one) for one in told] if told and type(told[0]) is dict else told
        if type(told) is not dict:
            return told
        if "as" in told:
            return self._lists[told["as"]]
        if "id" in told:
            self._lists[told["id"]] = told["is"]
            return told["is"]
        return told if "was" in told else {name: self.plain(one) for name, one in told.items()}


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
