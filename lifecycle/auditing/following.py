"""The facts of a log's records as guards look at them, followed change by change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import ValidationError, convert

from lifecycle.audit.expand import ExpandedFacts
from lifecycle.audit.facts import ENTRIES, value_of
from states import Facts


class FactsReader:
    """Facts of the records of one log. What a record does not change is what it was before, the same objects."""

    def __init__(self) -> None:
        self._told: Mapping[str, Any] | None = None
        self._facts = Facts()
        self._entries: dict[str, tuple[list[Any], tuple[Any, ...]]] = {}

    def of(self, told: Mapping[str, Any]) -> Facts:
        """The facts.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: they are not those of this version.
        """
        before, self._told = self._told, None
        try:
            if before is None or not isinstance(told, ExpandedFacts) or told.before is not before:
                self._facts = self._whole(told)
            else:
                values = self._values(told["shared"], told.written["shared"])
                values |= self._values(told["local"], told.written["local"])
                self._facts = self._facts.changed(values) if values else self._facts
        except ValidationError as error:
            raise ValueError(str(error)) from error
        self._told = told
        return self._facts

    def _whole(self, told: Mapping[str, Any]) -> Facts:
        both = {**told["shared"], **told["local"]}
        return Facts(**{"origin": both["origin"], **self._values(both, both)})

    def _values(self, told: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        return {name: self._value(name, told[name]) for name in names}

    def _value(self, name: str, told: Any) -> Any:
        """A value; of a list of entries those that are others than in the list before are made."""
        if name not in ENTRIES:
            return value_of(name, told)
        kind = ENTRIES[name]
        was, made = self._entries.get(name, ([], ()))
        if len(was) == len(told):  # nearly always none has come or gone
            now = [done if old is one else convert(one, kind) for one, old, done in zip(told, was, made, strict=True)]
        else:
            held = {id(old): done for old, done in zip(was, made, strict=True)}
            now = [held.get(id(one)) or convert(one, kind) for one in told]
        self._entries[name] = told, tuple(now)
        return self._entries[name][1]


def others(before: tuple[Any, ...], now: tuple[Any, ...]) -> Sequence[Any]:
    """The entries of *now* that do not stand in *before*, as the same object: what was said of those still holds."""
    if before is now:
        return ()
    if len(before) == len(now):
        return [one for one, was in zip(now, before, strict=True) if one is not was]
    known = {id(one) for one in before}
    return [one for one in now if id(one) not in known]
