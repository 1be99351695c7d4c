"""The form of a record where its schema leaves it open: a time that is none, facts and totals that are not whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any, Final

import msgspec

from lifecycle.audit.expand import ExpandedFacts
from lifecycle.places import PLACES
from states import ContentFacts, EngineFacts, Facts, LeaseFacts

_KINDS: Final = {"contents": ContentFacts, "engines": EngineFacts, "leases": LeaseFacts}
_SCOPES: Final = {"shared": frozenset(Facts().shared()), "local": frozenset(Facts().local())}
_UTC: Final = timedelta(0)
_TOLD: Final = frozenset({*_SCOPES, "since"})


_SCOPE_OF: Final = {name: scope for scope, names in _SCOPES.items() for name in sorted(names & _KINDS.keys())}
_FIELDS: Final = {name: frozenset(one.name for one in fields(kind)) for name, kind in _KINDS.items()}
_PLACES: Final = frozenset({*PLACES, "moved"})


class Form:
    """Looks at each record for itself. Entries of facts that records share are looked at once.

    Whether values are of their types is seen where facts are made of them.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[Any]] = {}
        self._before: Mapping[str, Any] | None = None

    def problem(self, record: Mapping[str, Any], facts: Mapping[str, Any] | None) -> str:
        """Why it is no record, empty where it is one.

        Args:
            record: as it was read.
            facts: its facts, whole; None where it has none.
        """
        if not _is_time(record.get("time")):
            return f"its time is {record.get('time')!r}, which is no time in UTC"
        totals = record.get("bytes")
        if isinstance(totals, dict) and record["event"] != "lifecycle.noted":
            if totals.keys() != _PLACES:
                return f"its bytes are of {', '.join(sorted(totals))}, places are {', '.join(sorted(_PLACES))}"
            if min(totals.values()) < 0:
                return "its bytes are less than none"
        try:
            return "" if facts is None else self._of_facts(facts)
        except (msgspec.ValidationError, AttributeError) as error:
            return f"its facts are none: {error}"

    def _of_facts(self, facts: Mapping[str, Any]) -> str:
        before, self._before = self._before, None
        if before is None or not isinstance(facts, ExpandedFacts) or facts.before is not before:
            strange = {*facts, *getattr(facts, "written", ())} - _TOLD
            for scope, names in _SCOPES.items():
                if not strange and facts.get(scope, {}).keys() != names:
                    return f"its {scope} facts are not all there, or others are"
            changed: Mapping[str, Any] = facts
        else:  # What it does not change was looked at before, and no name that was not there can have been changed.
            changed = facts.written
            strange = changed.keys() - _TOLD
        if strange:
            return f"its facts hold {', '.join(sorted(strange))}"
        for name, scope in _SCOPE_OF.items():
            if name in changed[scope]:
                self._look(name, facts[scope][name])
        self._before = facts
        return ""

    def _look(self, name: str, entries: list[Any]) -> None:
        """Entries that did not stand there before.

        Raises:
            msgspec.ValidationError: one of them has other fields.
        """
        before = self._seen.get(name, [])
        if entries is before:
            return
        names = _FIELDS[name]
        for one, held in zip(entries, chain(before, repeat(None)), strict=False):
            if one is not held and one.keys() != names:
                raise msgspec.ValidationError(f"an entry of {name} has {', '.join(sorted(one.keys() ^ names))}")
        self._seen[name] = entries


def _is_time(told: object) -> bool:
    try:
        return isinstance(told, str) and datetime.fromisoformat(told).utcoffset() == _UTC
    except ValueError:
        return False
