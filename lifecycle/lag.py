"""How far engines are behind, from what pushes came to. No engine is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from lifecycle.outcome import EngineOutcome
from lifecycle.standing import Serves, Standing
from states import StalenessError

ENGINES_MAX: Final = 256
"""So many engines are kept; those that were heard of first are forgotten."""

_IN_DOUBT: Final = (Serves.FENCED, Serves.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one engine is behind.

    Attributes:
        versions_behind: in the content group where it is furthest behind, of those that it holds; None where one of
            its versions is none of the trainer's.
        pending_pushes: content groups that it lacks or has in an old version, or holds and should not.
        is_in_doubt: what it holds is not sure.
    """

    versions_behind: int | None
    pending_pushes: int
    is_in_doubt: bool


class LagBook:
    """What engines held when they were last heard of."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, int]] = {}
        self._in_doubt: set[str] = set()

    def pushed(self, engines: Mapping[str, EngineOutcome], wanted: Mapping[str, int]) -> None:
        """What a push came to; who is up to date holds exactly what is wanted."""
        wanted = dict(wanted)  # one for all of them: they are compared once
        for name, one in engines.items():
            if one.committed:
                self._note(name, wanted, in_doubt=False)
            else:
                held = self._held.get(name, {})
                kept = {group: version for group, version in held.items() if group not in one.sent}
                self._note(name, kept, in_doubt=bool(one.sent or one.unloaded) or name in self._in_doubt)

    def saw(self, standings: Mapping[str, Standing]) -> None:
        """What the engines said when they were asked."""
        for name, one in standings.items():
            self._note(name, dict(one.versions), in_doubt=one.serves in _IN_DOUBT)

    def held(self) -> Mapping[str, Mapping[str, int]]:
        """Engine to the content groups that it held when it was last heard of, and their versions. Do not change it."""
        return self._held

    def lags(self, wanted: Mapping[str, int], staleness: Callable[[Mapping[str, int]], int]) -> dict[str, Lag]:
        """How far each engine is behind.

        Args:
            wanted: content group to the trainer's newest version.
            staleness: by how many versions some are behind. Asked of those that differ.
        """
        compared: dict[int, Lag] = {}
        for held in self._held.values():
            if id(held) not in compared:
                compared[id(held)] = self._lag(held, wanted, staleness)
        return {
            name: replace(lag, is_in_doubt=lag.is_in_doubt or name in self._in_doubt)
            for name, held in self._held.items()
            for lag in (compared[id(held)],)
        }

    @staticmethod
    def _lag(held: Mapping[str, int], wanted: Mapping[str, int], staleness: Callable[[Mapping[str, int]], int]) -> Lag:
        differ = {group for group, _ in held.items() ^ wanted.items()}
        try:
            behind = staleness({group: held[group] for group in differ & held.keys() & wanted.keys()})
        except StalenessError:
            return Lag(None, len(differ), is_in_doubt=True)
        return Lag(behind, len(differ), is_in_doubt=False)

    def _note(self, name: str, held: dict[str, int], *, in_doubt: bool) -> None:
        self._held[name] = held
        (self._in_doubt.add if in_doubt else self._in_doubt.discard)(name)
        while len(self._held) > ENGINES_MAX:
            oldest = next(iter(self._held))
            del self._held[oldest]
            self._in_doubt.discard(oldest)
