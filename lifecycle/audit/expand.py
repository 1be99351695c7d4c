"""Facts that a log tells as changes, in full again. What did not change is shared between records, not copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lifecycle.audit.notes import NOTED
from lifecycle.audit.values import DAMAGE, Values

Record = dict[str, object]


class ExpandedFacts(dict[str, Any]):
    """Facts in full, ``{"shared": {...}, "local": {...}}``. Other records share parts of them: do not change any.

    Attributes:
        written: what the line says, which its hash is of.
    """

    written: Mapping[str, Any]


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
        self._values = Values()

    def expand(self, record: Record) -> None:
        """Put the facts of the record in full, in its place.

        They stay as they are written where the record that they are a change of is not the one that was read before,
        see :func:`is_whole`.
        """
        told = record.get("facts")
        if not isinstance(told, dict) or record.get("event") == NOTED:  # facts in a note are its own
            return
        if "since" not in told:
            self._values.begin()
            self._facts, self._sequence = told, record.get("sequence")
            return
        before, since, self._facts = self._facts, self._sequence, None
        if before is None or told["since"] != since:
            return
        try:
            facts = ExpandedFacts({scope: self._scope(before[scope], told[scope]) for scope in ("shared", "local")})
        except DAMAGE:  # a line that somebody has changed
            return
        facts.written = told
        record["facts"] = facts
        self._facts, self._sequence = facts, record.get("sequence")

    def _scope(self, before: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        if not told and type(told) is dict:
            return before
        scope = before.copy()
        for name, one in told.items():
            scope[name] = self._value(name, before[name], one)
        return scope

    def _value(self, name: str, before: Any, told: Any) -> Any:
        if self._only is None or name in self._only:
            return self._values.of(name, before, told)
        self._values.plain(told)  # for the lists in it that later facts point at
        return before
