"""The facts of a log's records as guards look at them, followed change by change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, get_type_hints

from msgspec import UNSET, ValidationError, convert, defstruct
from msgspec.json import encode

from lifecycle.audit.expand import ExpandedFacts
from lifecycle.audit.facts import ENTRIES
from states import Facts

_HINTS: Final = get_type_hints(Facts)
_SCOPES: Final = {"shared": frozenset(Facts().shared()), "local": frozenset(Facts().local())}
_SCOPE_OF: Final = {name: scope for scope, names in _SCOPES.items() for name in sorted(names & ENTRIES.keys())}
_CHANGES: Final = frozenset({*_SCOPES, "since"})
_FIELDS: Final = {name: frozenset(one.name for one in fields(kind)) for name, kind in ENTRIES.items()}
_PLAIN: Final = defstruct("Plain", [(name, _HINTS[name], UNSET) for name in _HINTS if name not in ENTRIES])
"""Any of the facts that are no lists of entries."""


class FactsReader:
    """Facts of the records of one log. What is as it was before is the same object.

    Names are compared, types checked and values made by ``msgspec``, of the facts that are others than before.

    Attributes:
        changed: those of them that :meth:`of` was given last, as they were told, by name.
    """

    def __init__(self) -> None:
        self._told: Mapping[str, Any] | None = None
        self._facts = Facts()
        self._entries: dict[str, tuple[list[Any], tuple[Any, ...]]] = {}
        self._is_full = True
        self.changed: Mapping[str, Any] = {}

    def of(self, told: Mapping[str, Any]) -> Facts:
        """The facts.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: they are not those of this version.
        """
        before, self._told = self._told, None
        if before is None:
            self._entries = {name: ([], ()) for name in ENTRIES}
        self._is_full = before is None or not isinstance(told, ExpandedFacts) or told.before is not before
        self.changed = self._unlike(told, before) if self._is_full else _written(told)
        if self.changed:
            try:
                self._facts = self._facts.changed(self._made(self.changed))
            except ValidationError as error:
                raise ValueError(str(error)) from error
        self._told = told
        return self._facts

    def _made(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """The values of these facts, by name."""
        values, plain = {}, {}
        for name, one in told.items():
            if name in ENTRIES:
                values[name] = self._made_of(name, one)
            else:
                plain[name] = one
        if plain:
            made = convert(plain, _PLAIN)
            for name in plain:
                values[name] = getattr(made, name)
        return values

    def _made_of(self, name: str, told: list[Any]) -> tuple[Any, ...]:
        """A list of entries; those that are others than in the list before are made."""
        was, made = self._entries[name]
        if len(was) == len(told):  # nearly always none has come or gone
            now = [
                done if one is old or (self._is_full and _is_same(one, old)) else _entry(name, one)
                for one, old, done in zip(told, was, made, strict=True)
            ]
        else:
            held = {id(old): done for old, done in zip(was, made, strict=True)}
            now = [held.get(id(one)) or _entry(name, one) for one in told]
        self._entries[name] = told, tuple(now)
        return self._entries[name][1]

    def _unlike(self, told: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Of facts that are told in full, those that are others than before."""
        strange = {*told, *getattr(told, "written", ())} - _CHANGES
        if strange:
            raise ValueError(f"they hold {', '.join(sorted(strange))}")
        for scope, names in _SCOPES.items():
            if told[scope].keys() != names:
                raise ValueError(f"the {scope} ones are not all there, or others are")
        if before is None:
            return {**told["shared"], **told["local"]}
        unlike = {}
        for scope in _SCOPES:
            was = before[scope]
            unlike.update({name: one for name, one in told[scope].items() if not _is_same(one, was[name])})
        for name, scope in _SCOPE_OF.items():
            if name not in unlike:
                self._entries[name] = told[scope][name], self._entries[name][1]
        return unlike


def _written(told: Any) -> dict[str, Any]:
    """Facts that a record tells as changes. No name that was not there can have been changed."""
    written = told.written
    if written.keys() != _CHANGES:
        raise ValueError(f"they hold {', '.join(sorted(written.keys() ^ _CHANGES))}")
    changed = {}
    for scope in _SCOPES:
        now = told[scope]
        for name in written[scope]:
            changed[name] = now[name]
    return changed


def _is_same(one: Any, was: Any) -> bool:
    """Whether two values of JSON are the same: ``true``, ``1`` and ``1.0`` are equal, and they are not."""
    if one is was:
        return True
    if one != was or type(one) is not type(was):
        return False
    return not one or type(one) is str or encode(one) == encode(was)


def _entry(name: str, told: Any) -> Any:
    if told.keys() != _FIELDS[name]:
        raise ValueError(f"an entry of {name} has {', '.join(sorted(told.keys() ^ _FIELDS[name]))}")
    return convert(told, ENTRIES[name])


def others(before: tuple[Any, ...], now: tuple[Any, ...]) -> Sequence[Any]:
    """The entries of *now* that do not stand in *before*, as the same object: what was said of those still holds."""
    if before is now:
        return ()
    if len(before) == len(now):
        return [one for one, was in zip(now, before, strict=True) if one is not was]
    known = {id(one) for one in before}
    return [one for one in now if id(one) not in known]
