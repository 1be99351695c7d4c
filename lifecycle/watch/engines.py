"""Versions and engines of one log: what the trainer has, what each engine holds, and how far it is behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lifecycle.audit.chain import ENDS
from lifecycle.audit.expand import Expander, Record, is_whole
from lifecycle.lag import LagBook
from lifecycle.outcome import EngineOutcome
from lifecycle.report import fields
from lifecycle.report.model import TEXT_MAX
from lifecycle.standing import Serves, Standing
from lifecycle.watch.picture import AdapterSeen, EngineSeen, Serving
from states import ADAPTER_PREFIX, StalenessError, TrainerEvent, staleness

KNOWN_MOST: Final = 64
"""Versions of one content group that are remembered; who is further behind is behind by as many."""


class Versions:
    """The versions of each content group, as far as was read."""

    def __init__(self) -> None:
        self.wanted: dict[str, int] = {}
        self._known: dict[str, deque[int]] = {}
        self._changed_s: dict[str, float] = {}

    def take(self, told: Mapping[str, int | None], time_s: float | None) -> None:
        """Versions that are others now, None for a group that is gone.

        Args:
            told: by content group.
            time_s: when they changed; None where they are only known now.
        """
        for group, version in told.items():
            if version is None:
                for held in (self.wanted, self._known, self._changed_s):
                    held.pop(group, None)
            elif self.wanted.get(group) != version:
                self.wanted[group] = version
                self._known.setdefault(group, deque(maxlen=KNOWN_MOST)).append(version)
                if time_s is not None:
                    self._changed_s.pop(group, None)
                    self._changed_s[group] = time_s

    def all_are(self, told: Mapping[str, int]) -> None:
        """Every version there is."""
        self.take({**{group: None for group in self.wanted if group not in told}, **told}, None)

    def staleness(self, held: Mapping[str, int]) -> int:
        """By how many versions something is behind. Raises StalenessError where that cannot be told."""
        return staleness(held, {group: tuple(self._known.get(group, ())) for group in held})

    def adapters(self, most: int) -> Iterator[tuple[str, int, int, float | None]]:
        """Name, version, changes and time of the last one, the last one first."""
        newest = [group for group in reversed(self._changed_s) if group.startswith(ADAPTER_PREFIX)]
        others = (group for group in self.wanted if group.startswith(ADAPTER_PREFIX) and group not in self._changed_s)
        for group in (*newest, *others)[:most]:
            changes = max(0, len(self._known[group]) - 1)
            yield group.removeprefix(ADAPTER_PREFIX), self.wanted[group], changes, self._changed_s.get(group)


class EngineWatch:
    """Reads what records say of versions and engines. What a record should not say is left out."""

    def __init__(self) -> None:
        self.versions = Versions()
        self._lags = LagBook()
        self._because: dict[str, str] = {}
        self._pushed_s: dict[str, float] = {}
        self._expander = Expander(frozenset({"engines"}))

    def see(self, record: Record, time_s: float) -> None:
        """One record, whose fields are of the kinds that they are to be.

        Raises:
            NotOfARecordError: they are not.
        """
        self._expander.expand(record)
        facts = record.get("facts")
        if isinstance(facts, dict) and is_whole(facts):
            self._facts(facts)
        if "checkpoint" in record:
            self.versions.all_are(fields.counts(record["checkpoint"]))
        self.versions.take(fields.versions(record.get("versions", {})), time_s)
        if record.get("event") in ENDS and record.get("trigger") == TrainerEvent.UPDATE_WEIGHTS:
            details = fields.mapping(record.get("details", {}))
            self._push(fields.mapping(details.get("engines", record.get("engines", {}))), time_s)

    def _facts(self, facts: Mapping[str, Any]) -> None:
        shared = fields.mapping(facts.get("shared"))
        if type(facts) is dict:  # all of them stand in this record
            entries = [fields.mapping(one) for one in fields.items(shared.get("contents", []))]
            self.versions.all_are({_name(one, "group"): fields.count(one.get("version")) for one in entries})
        for told in fields.items(shared.get("engines", [])):
            self._asked(fields.mapping(told))
        self._forget()

    def _asked(self, told: Mapping[str, object]) -> None:
        """What an engine said when it was asked, before a push."""
        name, stale = _name(told, "name"), fields.texts(told.get("stale", []))
        unknown, fenced = (fields.text(told.get(key, ""), TEXT_MAX) for key in ("unknown", "fenced"))
        before = {} if unknown else self._lags.held().get(name, {})
        held = {group: version for group, version in self.versions.wanted.items() if group not in stale}
        held |= {group: before[group] for group in stale if group in before}
        serves = Serves.UNKNOWN if unknown else Serves.FENCED if fenced else Serves.BEHIND if stale else Serves.CURRENT
        self._lags.saw({name: Standing(name, serves, versions=held)})
        self._because[name] = unknown or fenced

    def _push(self, told: Mapping[str, object], time_s: float) -> None:
        outcomes = {name: _outcome(name, fields.mapping(one)) for name, one in told.items()}
        self._lags.pushed(outcomes, self.versions.wanted)
        for name, one in outcomes.items():
            self._because[name] = "" if one.committed else one.error or self._because.get(name, "")
            self._pushed_s[name] = time_s
        self._forget()

    def _forget(self) -> None:
        """Engines that the book of lags has forgotten: names come and go in a run that is watched for weeks."""
        for told in (self._because, self._pushed_s):
            for name in told.keys() - self._lags.held().keys():
                del told[name]

    def engines(self) -> tuple[EngineSeen, ...]:
        """Every engine that was heard of."""
        lags = self._lags.lags(self.versions.wanted, self.versions.staleness)
        found = []
        for name, lag in sorted(lags.items()):
            behind = Serving.BEHIND if lag.pending_pushes else Serving.CURRENT
            serving = Serving.IN_DOUBT if lag.is_in_doubt else behind
            because = self._because.get(name, "") if lag.is_in_doubt else ""
            pushed_s = self._pushed_s.get(name)
            versions = None if lag.is_in_doubt else lag.versions_behind
            found.append(EngineSeen(name, serving, versions, lag.pending_pushes, because, pushed_s))
        return tuple(found)

    def adapters(self, most: int) -> tuple[tuple[AdapterSeen, ...], int]:
        """Those that changed last, and how many there are."""
        held = self._lags.held()
        found = [
            AdapterSeen(name, version, changes, changed_s, {one: self._behind(held[one], name) for one in held})
            for name, version, changes, changed_s in self.versions.adapters(most)
        ]
        return tuple(found), sum(group.startswith(ADAPTER_PREFIX) for group in self.versions.wanted)

    def _behind(self, held: Mapping[str, int], adapter: str) -> int | None:
        group = ADAPTER_PREFIX + adapter
        try:
            return self.versions.staleness({group: held[group]}) if group in held else None
        except StalenessError:
            return None


def _name(told: Mapping[str, object], key: str) -> str:
    return fields.text(told.get(key), TEXT_MAX)


def _outcome(name: str, told: Mapping[str, object]) -> EngineOutcome:
    return EngineOutcome(
        engine=name,
        committed=told.get("committed") is True,
        sent=fields.texts(told.get("sent", [])),
        unloaded=fields.texts(told.get("unloaded", [])),
        error=fields.text(told.get("error", ""), TEXT_MAX),
    )
