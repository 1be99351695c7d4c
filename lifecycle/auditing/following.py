"""The facts of a log's records as guards look at them, followed change by change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, get_type_hints

from msgspec import UNSET, ValidationError, convert, defstruct
from msgspec.json import encode

from lifecycle.audit.facts import ENTRIES
from lifecycle.audit.values import DAMAGE, Values
from states import Facts

SCOPES: Final = {"shared": Facts().shared().keys(), "local": Facts().local().keys()}
_HINTS: Final = get_type_hints(Facts)
_CHANGES: Final = frozenset({*SCOPES, "since"})
_FIELDS: Final = {name: frozenset(one.name for one in fields(kind)) for name, kind in ENTRIES.items()}
_PLAIN: Final = defstruct("Plain", [(name, _HINTS[name], UNSET) for name in _HINTS if name not in ENTRIES])
"""Any of the facts that are no lists of entries."""


class FactsReader:
    """Facts of the records of one log. What is as it was before is the same object.

    Names are compared, types checked and values made by ``msgspec``, of the facts that are others than before.

    Attributes:
        changed: those of them that :meth:`of` was given last, as they were told, by name.
        told: all of them, as they were told, by name; None where that is not known.
    """

    def __init__(self) -> None:
        self.changed: Mapping[str, Any] = {}
        self.told: dict[str, Any] | None = None
        self._sequence: object = None
        self._values = Values()
        self._facts: Facts | None = None
        self._entries: dict[str, tuple[list[Any], tuple[Any, ...]]] = {}

    def of(self, record: Mapping[str, Any]) -> Facts | None:
        """The facts of a record; None where they are changes of a record that was not read before it.

        Args:
            record: with facts as they are written.

        Raises:
            One of :data:`~lifecycle.audit.values.DAMAGE`: they are not those of this version.
        """
        facts, self._facts = self._facts, None
        before, self.told = self.told, None
        last, self._sequence = self._sequence, record["sequence"]
        told = record["facts"]
        if "since" not in told:
            changed = self._in_full(told, before if facts is not None else None)
        elif before is not None and told["since"] == last:
            changed = self._changes(told, before)
        if self.told is None:
            return None
        if facts is None:  # nothing is known, or what was told before could not be read
            changed, facts, self._entries = {**self.told}, Facts(), {name: ([], ()) for name in ENTRIES}
        self.changed = changed
        if changed:
            try:
                facts = facts.changed(self._made(changed))
            except ValidationError as error:
                raise ValueError(str(error)) from error
        self._facts = facts
        return facts

    @property
    def entries(self) -> int:
        """How many content groups the facts have that were read last."""
        return 0 if self._facts is None else len(self._facts.contents)

    def in_full(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record that was given last with all facts, instead of what is written. It itself where it tells none."""
        if self.told is None or "facts" not in record:
            return record
        scopes = {scope: {name: self.told[name] for name in names} for scope, names in SCOPES.items()}
        return {**record, "facts": scopes}

    def _changes(self, told: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        """Facts that are told as changes. None are known any more where somebody has damaged these."""
        changed: dict[str, Any] = {}
        try:
            for scope, names in SCOPES.items():
                for name, one in told[scope].items():
                    if name not in names:
                        return changed
                    is_value = type(one) is not dict and type(one) is not list
                    changed[name] = one if is_value else self._values.of(name, before[name], one)
        except DAMAGE:
            return changed
        self.told = before
        before.update(changed)
        if told.keys() != _CHANGES:
            raise ValueError(f"they hold {', '.join(sorted(told.keys() ^ _CHANGES))}")
        return changed

    def _in_full(self, told: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
        """Of facts that are told in full, those that are others than before."""
        self._values.begin()
        for scope, names in SCOPES.items():
            if told[scope].keys() != names:
                raise ValueError(f"the {scope} ones are not all there, or others are")
        self.told = both = {**told["shared"], **told["local"]}
        if told.keys() != SCOPES.keys():
            raise ValueError(f"they hold {', '.join(sorted(told.keys() ^ SCOPES.keys()))}")
        if before is None:
            return both
        unlike = {
            name: one for name, one in both.items() if one is not before[name] and not _is_same(one, before[name])
        }
        for name in ENTRIES:
            if name in unlike:
                self._keep_same(name, both[name])
            else:
                self._entries[name] = both[name], self._entries[name][1]
        return unlike

    def _keep_same(self, name: str, told: list[Any]) -> None:
        """Of entries that are told in full, those that are as they were stay the same objects."""
        was, made = self._entries[name]
        if type(told) is list and len(was) == len(told):
            same = [one if _is_same(one, old) else old for one, old in zip(told, was, strict=True)]
            self._entries[name] = same, made

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
        if type(told) is not list:
            raise ValueError(f"{name} is no list")
        was, made = self._entries[name]
        if len(was) == len(told):  # nearly always none has come or gone
            now = list(made)
            for at, (one, old) in enumerate(zip(told, was, strict=True)):
                if one is not old:
                    now[at] = _entry(name, one)
        else:
            held = {id(old): done for old, done in zip(was, made, strict=True)}
            now = [held.get(id(one)) or _entry(name, one) for one in told]
        self._entries[name] = told, tuple(now)
        return self._entries[name][1]


def _is_same(one: Any, was: Any) -> bool:
    """Whether two values of JSON are the same: ``true``, ``1`` and ``1.0`` are equal, and they are not."""
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
