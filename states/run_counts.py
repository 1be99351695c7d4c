"""How often each edge was taken in a run, and what was refused: what a picture of a run is drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from states.names import TrainerEvent, TrainerState
from states.replay import EDGES
from states.row import RowKind
from states.table import TABLE

Told = tuple[str, str, str, str]
"""(source, event, edge, target) as a record tells them: of a reconcile both moves as one, back at the origin."""
Move = tuple[str, str, str, str]
"""The same of one row of the table."""
Tried = tuple[str, str, str]
"""(source, event, edge) of what did not get to its target."""
Asked = tuple[str, str]
"""(state, event): what was asked where. Other calls that are refused stand under their names."""

_RECONCILE: Final = TrainerEvent.RECONCILE_ADAPTERS
_BETWEEN: Final = TrainerState.ADAPTER_RECONCILING
_MOVES: Final[frozenset[Move]] = frozenset(
    (row.source, row.event, row.edge, row.target) for row in TABLE if row.kind is RowKind.MOVE
)
_TRIED: Final[frozenset[Tried]] = frozenset((source, event, edge) for source, event, edge, _ in EDGES)


class Trouble(NamedTuple):
    """How often something did not get to its target.

    Attributes:
        undone: it failed, and the state is as before.
        faulted: it failed, and the trainer is faulted.
        unfinished: it has no end.
    """

    undone: int = 0
    faulted: int = 0
    unfinished: int = 0

    def plus(self, other: Trouble) -> Trouble:
        """Both together."""
        return Trouble(*(one + more for one, more in zip(self, other, strict=True)))

    def words(self) -> str:
        """In words; empty where there was none."""
        return ", ".join(f"{count:,} {name}" for name, count in self._asdict().items() if count)


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What the records of a run say, counted. Names may be any text: a log is not trusted.

    Attributes:
        taken: transitions that ended with ``moved``.
        undone: those that failed, after which the state was as before.
        faulted: those that failed and left the trainer faulted.
        unfinished: those that began and have no end: the process died, or is in it now.
        refused: what was refused.
        guards: of what was refused, how often each guard did not hold.
        unchanged: what held already.
    """

    taken: Mapping[Told, int] = field(default_factory=dict)
    undone: Mapping[Tried, int] = field(default_factory=dict)
    faulted: Mapping[Tried, int] = field(default_factory=dict)
    unfinished: Mapping[Tried, int] = field(default_factory=dict)
    refused: Mapping[Asked, int] = field(default_factory=dict)
    guards: Mapping[Asked, Mapping[str, int]] = field(default_factory=dict)
    unchanged: Mapping[Asked, int] = field(default_factory=dict)

    def moves(self) -> Counter[Move]:
        """How often each row of the table was taken. What stands in no row is left out."""
        found: Counter[Move] = Counter()
        for told, count in self.taken.items():
            found.update(dict.fromkeys(_rows_of(told), count))
        for (source, event, _), count in self.undone.items():
            if event == _RECONCILE:  # the machine went to and fro
                found[source, event, "enters", _BETWEEN] += count
                found[_BETWEEN, TrainerEvent.RECONCILE_ABANDONED, "abandons", source] += count
        for (source, event, _), count in self.faulted.items():
            if event == _RECONCILE:
                found[source, event, "enters", _BETWEEN] += count
            left = _BETWEEN if event == _RECONCILE else source
            found[left, TrainerEvent.FAIL, "faults", TrainerState.FAULTED] += count
        return Counter({move: count for move, count in found.items() if move in _MOVES})

    def trouble(self) -> dict[Tried, Trouble]:
        """What did not get to its target, as the records tell it."""
        every = dict.fromkeys((*self.undone, *self.faulted, *self.unfinished))
        return {
            one: Trouble(self.undone.get(one, 0), self.faulted.get(one, 0), self.unfinished.get(one, 0))
            for one in every
        }

    def strange(self) -> Counter[Tried]:
        """What the records tell of edges that the table does not have."""
        found = Counter({told[:3]: count for told, count in self.taken.items() if told not in EDGES})
        for one in (self.undone, self.faulted, self.unfinished):
            found.update({tried: count for tried, count in one.items() if tried not in _TRIED})
        return found


def row_of(tried: Tried) -> Tried:
    """(source, event, edge) of the row that has the effects: of a reconcile the one that leaves."""
    _, event, edge = tried
    return (_BETWEEN, TrainerEvent.RECONCILED, edge) if event == _RECONCILE else tried


def _rows_of(told: Told) -> tuple[Move, ...]:
    """The rows of the table that a transition takes: two of a reconcile, else one."""
    source, event, edge, target = told
    if event != _RECONCILE:
        return (told,)
    return (source, event, "enters", _BETWEEN), (_BETWEEN, TrainerEvent.RECONCILED, edge, target)
