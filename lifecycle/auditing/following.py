"""The facts of a log's records as guards look at them, followed change by change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_type_hints

from msgspec import UNSET, ValidationError, convert, defstruct

from lifecycle.audit.expand import ExpandedFacts
from lifecycle.audit.facts import ENTRIES
from states import Facts

_HINTS: Final = get_type_hints(Facts)
_SCOPES: Final = ("shared", "local")
_PLAIN: Final = defstruct("Plain", [(name, _HINTS[name], UNSET) for name in _HINTS if name not in ENTRIES])
"""Any of the facts that are no lists of entries."""


class FactsReader:
    """Facts of the records of one log. What a record does not change is what it was before, the same objects.

    Types are checked and values made by ``msgspec``, at once: of all facts, or of those that a record changes.
    """

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
            if before is not None and isinstance(told, ExpandedFacts) and told.before is before:
                self._change({name: told[scope][name] for scope in _SCOPES for name in told.written[scope]})
            else:
                both = {**told["shared"], **told["local"]}
                self._facts = convert({"origin": both["origin"], **both}, Facts)
                self._entries = {name: (both[name], getattr(self._facts, name)) for name in ENTRIES}
        except ValidationError as error:
            raise ValueError(str(error)) from error
        self._told = told
        return self._facts

    def _change(self, told: Mapping[str, Any]) -> None:
        """What these facts are now, the others are as they were."""
        if not told:
            return
        plain = {name: one for name, one in told.items() if name not in ENTRIES}
        made = convert(plain, _PLAIN) if plain else None
        values = {name: getattr(made, name) for name in plain}
        values |= {name: self._of_entries(name, one) for name, one in told.items() if name in ENTRIES}
        self._facts = self._facts.changed(values)

    def _of_entries(self, name: str, told: list[Any]) -> tuple[Any, ...]:
        """A list of entries; those that are others than in the list before are made."""
        kind = ENTRIES[name]
        was, made = self._entries[name]
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
