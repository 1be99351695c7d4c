"""``decide``: the pure question that is asked before anything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from states.effects import Effect
from states.errors import TableError
from states.facts import Facts
from states.names import TrainerEvent, TrainerState
from states.row import Row, RowKind
from states.sources import Read, decide_reads
from states.table import TABLE
from states.verdict import Guard, NotABool, Verdict


@dataclass(frozen=True, init=False)
class Step(NotABool):
    """The event may happen, on this edge.

    Attributes:
        state: the state it leaves.
        event: the event.
        edge: name of the row.
        target: the state it reaches.
        effects: what is done, in order.
        verdicts: every selector and guard that was asked; all hold.
        reads: where each content group would be read now.
    """

    state: TrainerState
    event: TrainerEvent
    edge: str
    target: TrainerState
    effects: tuple[Effect, ...]
    verdicts: tuple[Verdict, ...]
    reads: tuple[Read, ...]

    def __init__(
        self,
        state: TrainerState,
        event: TrainerEvent,
        edge: str,
        target: TrainerState,
        effects: tuple[Effect, ...],
        verdicts: tuple[Verdict, ...],
        reads: tuple[Read, ...],
    ) -> None:
        held = self.__dict__  # as in Read: twice as fast as what is made for a frozen class
        held["state"] = state
        held["event"] = event
        held["edge"] = edge
        held["target"] = target
        held["effects"] = effects
        held["verdicts"] = verdicts
        held["reads"] = reads


@dataclass(frozen=True, slots=True)
class Refusal(NotABool):
    """The event may not happen. Nothing changes.

    Attributes:
        state: the state the trainer is and stays in.
        event: the event, or the name of another call that was refused.
        edge: the row that came nearest, empty when none fits.
        verdicts: every selector and guard that was asked.
    """

    state: TrainerState
    event: str
    edge: str
    verdicts: tuple[Verdict, ...]

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The verdicts that do not hold, in the order of the row."""
        return tuple(verdict for verdict in self.verdicts if not verdict.holds)

    @property
    def remedy(self) -> str:
        """What to do, of each failed verdict in turn."""
        return "; ".join(dict.fromkeys(verdict.remedy for verdict in self.failed if verdict.remedy))


@dataclass(frozen=True, slots=True)
class NoChange(NotABool):
    """What the event asks for already holds. A recorded no-op with zero effects."""

    state: TrainerState
    event: TrainerEvent
    verdicts: tuple[Verdict, ...]


Decision = Step | Refusal | NoChange


def _grouped(table: tuple[Row, ...]) -> dict[tuple[TrainerState, TrainerEvent], list[Row]]:
    found: dict[tuple[TrainerState, TrainerEvent], list[Row]] = {}
    for row in table:
        found.setdefault((row.source, row.event), []).append(row)
    return found


_ROWS: Final = _grouped(TABLE)
_HOLDS: Final = attrgetter("holds")
_SETTLED: Final = RowKind.SETTLED  # a member is looked up ten times slower than a name
_REFUSING: Final = RowKind.REFUSING


def decide(state: TrainerState, event: TrainerEvent, facts: Facts, *, table: tuple[Row, ...] = TABLE) -> Decision:
    """Decide what *event* does in *state*, given the facts. Pure: equal arguments, equal answer.

    Args:
        state: the state the trainer is in.
        event: what is asked.
        facts: the record of this moment.
        table: the rows; another one than the library's only in tests.

    Returns:
        A :class:`Step` with the chosen edge and its effects, a :class:`Refusal` with every failed
        guard, or a :class:`NoChange`.

    Raises:
        TableError: two rows hold at once. The library's own table is enumerated against this.
    """
    rows = _ROWS.get((state, event), ()) if table is TABLE else _grouped(table).get((state, event), ())
    row, selected = _choose(rows, facts)
    if row is None:
        return _no_row(state, event, [selector.ask(facts) for one in rows for selector in one.when], table)
    if row.kind is _SETTLED:
        return NoChange(state, event, selected)
    if row.kind is _REFUSING:
        verdict = Verdict(f"not-{state}", holds=False, because=f"the trainer is {state}", remedy=row.remedy)
        return Refusal(state, event, row.edge, (verdict,))
    verdicts = (*selected, *[guard.ask(facts) for guard in row.guards])
    if not all(map(_HOLDS, verdicts)):
        return Refusal(state, event, row.edge, verdicts)
    return Step(state, event, row.edge, row.target, row.effects, verdicts, decide_reads(facts))


def _choose(rows: Sequence[Row], facts: Facts) -> tuple[Row | None, tuple[Verdict, ...]]:
    """The row whose selectors all hold, and their verdicts.

    Those after one that does not hold are not asked, and none is asked twice: rows share them.
    """
    asked: dict[Guard, Verdict] = {}
    chosen = None
    for row in rows:
        for selector in row.when:
            verdict = asked.get(selector)
            if verdict is None:
                verdict = asked[selector] = selector.ask(facts)
            if not verdict.holds:
                break
        else:
            if chosen is not None:
                raise TableError(row.name, f"holds together with {chosen.name}")
            chosen = row
    return chosen, () if chosen is None else tuple([asked[selector] for selector in chosen.when])


def _no_row(state: TrainerState, event: TrainerEvent, asked: list[Verdict], table: tuple[Row, ...]) -> Refusal:
    if asked:
        unique = {verdict.name: verdict for verdict in asked if not verdict.holds}
        return Refusal(state, event, "", tuple(unique.values()))
    leaves = sorted({row.source for row in table if row.event is event and row.kind is RowKind.MOVE})
    verdict = Verdict(
        "the-event-leaves-this-state",
        holds=False,
        because=f"{event} leaves from {', '.join(leaves)}, not from {state}",
        remedy=_way_to(leaves),
    )
    return Refusal(state, event, "", (verdict,))


_WAYS = {
    TrainerState.AWAKE: "wake_up() first",
    TrainerState.SLEEPING: "sleep() first",
    TrainerState.ADAPTER_RECONCILING: "reconcile_adapters() sends this event itself",
    TrainerState.FAULTED: "there is nothing to recover",
}


def _way_to(leaves: list[TrainerState]) -> str:
    return next((_WAYS[state] for state in leaves if state in _WAYS), "")
