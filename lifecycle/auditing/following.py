"""The facts of a log's records as guards look at them, followed change by change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, get_type_hints

from msgspec import UNSET, ValidationError, convert, defstruct

from lifecycle.audit.expand import ExpandedFacts
from lifecycle.audit.facts import ENTRIES
from states import Facts

_HINTS: Final = get_type_hints(Facts)
_SCOPES: Final = {"shared": frozenset(Facts().shared()), "local": frozenset(Facts().local())}
_TOLD: Final = frozenset({*_SCOPES, "since"})
_FIELDS: Final = {name: frozenset(one.name for one in fields(kind)) for name, kind in ENTRIES.items()}
_PLAIN: Final = defstruct("Plain", [(name, _HINTS[name], UNSET) for name in _HINTS if name not in ENTRIES])
"""Any of the facts that are no lists of entries."""


class FactsReader:
    """Facts of the records of one log. What a record does not change is what it was before, the same objects.

    Names are compared, types checked and values made by ``msgspec``, of the facts that are others than before. Of a
    record that tells all facts the types of all are checked: in JSON ``true`` and ``1`` and ``1.0`` are not the same.

    Attributes:
        changed: names of the facts that :meth:`of` was given last and that are others than those before.
    """

    def __init__(self) -> None:
        self._told: Mapping[str, Any] | None = None
        self._facts = Facts()
        self._entries: dict[str, tuple[list[Any], tuple[Any, ...]]] = {}
        self.changed: Collection[str] = ()

    def of(self, told: Mapping[str, Any]) -> Facts:
        """The facts.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: they are not those of this version.
        """
        before, self._told = self._told, None
        try:
            if before is not None and isinstance(told, ExpandedFacts) and told.before is before:
                self._follow(told)
            else:
                self._read(told, before)
        except ValidationError as error:
            raise ValueError(str(error)) from error
        self._told = told
        return self._facts

    def _follow(self, told: ExpandedFacts) -> None:
        """Facts that are told as changes. No name that was not there can have been changed."""
        written = told.written
        if written.keys() != _TOLD:
            raise ValueError(f"they hold {', '.join(sorted(written.keys() ^ _TOLD))}")
        self._change({name: told[scope][name] for scope in _SCOPES for name in written[scope]})

    def _read(self, told: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        """Facts that are told in full."""
        strange = {*told, *getattr(told, "written", ())} - _TOLD
        if strange:
            raise ValueError(f"they hold {', '.join(sorted(strange))}")
        for scope, names in _SCOPES.items():
            if told[scope].keys() != names:
                raise ValueError(f"the {scope} ones are not all there, or others are")
        both = {**told["shared"], **told["local"]}
        for name in ENTRIES:
            _look_at(name, both[name])
        made = convert(both, Facts)
        if before is None:
            self._facts, self.changed = made, both
            self._entries = {name: (both[name], getattr(made, name)) for name in ENTRIES}
            return
        was = {**before["shared"], **before["local"]}
        self.changed = changed = [name for name, one in both.items() if one != was[name]]
        values = {name: getattr(made, name) for name in changed}
        for name in ENTRIES:
            entries = self._same(name, both[name], getattr(made, name)) if name in values else self._entries[name][1]
            self._entries[name] = both[name], entries
            if name in values:
                values[name] = entries
        self._facts = self._facts.changed(values)

    def _same(self, name: str, told: list[Any], made: tuple[Any, ...]) -> tuple[Any, ...]:
        """A list of entries, of which those that are as before are the same objects."""
        was, before = self._entries[name]
        if len(was) != len(told):
            return made
        return tuple(
            [one if now == then else other for now, then, one, other in zip(told, was, before, made, strict=True)]
        )

    def _change(self, told: Mapping[str, Any]) -> None:
        """What these facts are now, the others are as they were."""
        self.changed = told
        if not told:
            return
        plain = {name: one for name, one in told.items() if name not in ENTRIES}
        made = convert(plain, _PLAIN) if plain else None
        values = {name: getattr(made, name) for name in plain}
        if len(plain) < len(told):
            values |= {name: self._of_entries(name, one) for name, one in told.items() if name in ENTRIES}
        self._facts = self._facts.changed(values)

    def _of_entries(self, name: str, told: list[Any]) -> tuple[Any, ...]:
        """A list of entries; those that are others than in the list before are made."""
        was, made = self._entries[name]
        if len(was) == len(told):  # nearly always none has come or gone
            now = [done if old is one else _entry(name, one) for one, old, done in zip(told, was, made, strict=True)]
        else:
            held = {id(old): done for old, done in zip(was, made, strict=True)}
            now = [held.get(id(one)) or _entry(name, one) for one in told]
        self._entries[name] = told, tuple(now)
        return self._entries[name][1]


def _entry(name: str, told: Any) -> Any:
    if told.keys() != _FIELDS[name]:
        raise ValueError(f"an entry of {name} has {', '.join(sorted(told.keys() ^ _FIELDS[name]))}")
    return convert(told, ENTRIES[name])


def _look_at(name: str, entries: list[Any]) -> None:
    for one in entries:
        if one.keys() != _FIELDS[name]:
            raise ValueError(f"an entry of {name} has {', '.join(sorted(one.keys() ^ _FIELDS[name]))}")


def others(before: tuple[Any, ...], now: tuple[Any, ...]) -> Sequence[Any]:
    """The entries of *now* that do not stand in *before*, as the same object: what was said of those still holds."""
    if before is now:
        return ()
    if len(before) == len(now):
        return [one for one, was in zip(now, before, strict=True) if one is not was]
    known = {id(one) for one in before}
    return [one for one in now if id(one) not in known]
