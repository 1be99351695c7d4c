"""``decide_engine``: what may be asked of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from states.engine_memory import EngineAsk, EngineEvent, EngineMemory, EngineState, TagState
from states.engine_table import ENGINE_TABLE, REMEDIES, TAG_TABLE, EngineRow, TagRow
from states.errors import TableError
from states.handover_needs import KV_CACHE
from states.verdict import NotABool, Verdict


@dataclass(frozen=True, slots=True)
class EngineStep(NotABool):
    """It may be asked.

    Attributes:
        ask: what is asked.
        target: the state that is reached once it is acknowledged.
        moves: the tags that change, in the order of the engine's own, each with the state that it reaches.
        settled: it holds already: nothing is sent to the engine.
        verdicts: every guard that was asked; all hold.
    """

    ask: EngineAsk
    target: EngineState
    moves: tuple[tuple[str, TagState], ...] = ()
    settled: bool = False
    verdicts: tuple[Verdict, ...] = ()

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that change; empty where all of them are so already."""
        return tuple(tag for tag, _ in self.moves)


@dataclass(frozen=True, slots=True)
class EngineRefusal(NotABool):
    """It may not be asked. Nothing is sent.

    Attributes:
        ask: what was asked.
        state: the state the engine is and stays in.
        failed: each verdict that does not hold.
    """

    ask: EngineAsk
    state: EngineState
    failed: tuple[Verdict, ...]

    def __str__(self) -> str:
        reasons = "; ".join(f"{one.because} ({one.name})" for one in self.failed)
        remedies = "; ".join(dict.fromkeys(one.remedy for one in self.failed))
        return f"cannot {self.ask.event} while it is {self.state}: {reasons}; {remedies}"


def _grouped(table: tuple[EngineRow, ...]) -> dict[tuple[EngineState, EngineEvent], list[EngineRow]]:
    found: dict[tuple[EngineState, EngineEvent], list[EngineRow]] = {}
    for row in table:
        found.setdefault((row.source, row.event), []).append(row)
    return found


_ROWS: Final = _grouped(ENGINE_TABLE)
_TAG_MOVES: Final = (EngineEvent.RELEASE, EngineEvent.DISCARD, EngineEvent.RESUME)


def decide_engine(
    memory: EngineMemory,
    ask: EngineAsk,
    *,
    table: tuple[EngineRow, ...] = ENGINE_TABLE,
    tag_table: tuple[TagRow, ...] = TAG_TABLE,
) -> EngineStep | EngineRefusal:
    """Decide whether something may be asked of an engine. Pure: equal arguments, equal answer.

    Args:
        memory: what is known of the engine.
        ask: what is asked.
        table: the rows of the engine; others than the library's only in tests.
        tag_table: the rows of a tag; the same.

    Raises:
        TableError: two rows hold at once. The library's own table is enumerated against this.
    """
    index = _ROWS if table is ENGINE_TABLE else _grouped(table)
    rows = index.get((memory.state, ask.event), ())
    asked = [(row, tuple(selector(memory, ask) for selector in row.when)) for row in rows]
    chosen = [row for row, selected in asked if all(selected)]
    if len(chosen) > 1:
        raise TableError(chosen[1].name, f"holds together with {chosen[0].name}")
    if not chosen:
        missed = tuple(verdict for _, selected in asked for verdict in selected if not verdict.holds)
        return EngineRefusal(ask, memory.state, missed or (_no_row(memory, ask, table),))
    row = chosen[0]
    verdicts = tuple(guard(memory, ask) for guard in row.guards)
    if not all(verdicts):
        return EngineRefusal(ask, memory.state, tuple(one for one in verdicts if not one.holds))
    moves = tuple(_moves(memory, ask, tag_table)) if row.event in _TAG_MOVES else ()
    return EngineStep(ask, row.target, moves, _is_settled(memory, row, moves), verdicts)


def _no_row(memory: EngineMemory, ask: EngineAsk, table: tuple[EngineRow, ...]) -> Verdict:
    leaves = ", ".join(dict.fromkeys(row.source for row in table if row.event is ask.event))
    lost = f"what it holds is unknown: {memory.because}; " if memory.state is EngineState.LOST else ""
    because = f"{lost}{ask.event} is asked while it is {leaves}"
    return Verdict("the-event-leaves-this-state", holds=False, because=because, remedy=REMEDIES[memory.state])


def _moves(memory: EngineMemory, ask: EngineAsk, tag_table: tuple[TagRow, ...]) -> Iterator[tuple[str, TagState]]:
    for tag, state in memory.tags:
        for row in tag_table:
            matches = row.source is state and row.event is ask.event and row.mirrored in (None, tag in memory.mirrored)
            if tag in ask.tags and matches:
                yield tag, row.target


def _is_settled(memory: EngineMemory, row: EngineRow, moves: tuple[tuple[str, TagState], ...]) -> bool:
    if row.event in _TAG_MOVES:
        return not moves
    if row.event is EngineEvent.FLUSH:
        return memory.tag(KV_CACHE) in (TagState.RELEASED, TagState.DISCARDED)  # what was cached went with the memory
    return row.settled
