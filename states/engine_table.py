"""The table of an engine: what may be asked of it in which state, and what a tag does. Pure data, checked on import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from states import engine_guards as g
from states.engine_guards import EngineGuard
from states.engine_memory import EngineEvent, EngineState, TagState
from states.errors import TableError


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One legal move of an engine as a whole.

    Attributes:
        event: what is asked.
        source: the state it leaves.
        target: the state it reaches.
        when: selectors. Of the rows that share (source, event), at most one has all of them hold.
        guards: what it needs.
        settled: it holds already; nothing reaches the engine.
    """

    event: EngineEvent
    source: EngineState
    target: EngineState
    guards: tuple[EngineGuard, ...] = ()
    settled: bool = False
    when: tuple[EngineGuard, ...] = ()

    @property
    def name(self) -> str:
        """``source --event--> target``, as errors about the table name it."""
        return f"{self.source} --{self.event}--> {self.target}"


@dataclass(frozen=True, slots=True)
class TagRow:
    """What one tag does at an event. A pair that stands nowhere leaves the tag as it is, and the engine is not asked.

    Attributes:
        mirrored: only of a tag whose release keeps a mirror (True), or keeps none (False); None: of either.
    """

    source: TagState
    event: EngineEvent
    target: TagState
    mirrored: bool | None = None

    @property
    def name(self) -> str:
        """``source --event--> target``, as errors about the table name it."""
        return f"{self.source} --{self.event}--> {self.target}"


_S, _E, _T = EngineState, EngineEvent, TagState
_WRITES = (g.the_update_is_not_broken, g.the_weights_are_resident)


def _stays(event: EngineEvent, *states: EngineState, settled: bool = False) -> tuple[EngineRow, ...]:
    return tuple(EngineRow(event, state, state, settled=settled) for state in states)


ENGINE_TABLE: Final[tuple[EngineRow, ...]] = (
    EngineRow(_E.PAUSE, _S.OPEN, _S.PAUSED),
    *_stays(_E.PAUSE, _S.PAUSED, _S.UPDATING, settled=True),
    EngineRow(_E.UNPAUSE, _S.PAUSED, _S.OPEN, (g.every_tag_is_resident, g.the_base_is_whole, g.the_caches_are_flushed)),
    *_stays(_E.UNPAUSE, _S.OPEN, settled=True),
    EngineRow(_E.RELEASE, _S.PAUSED, _S.PAUSED, (g.the_tags_are_known,)),
    EngineRow(_E.DISCARD, _S.PAUSED, _S.PAUSED, (g.the_tags_are_known,)),
    EngineRow(_E.RESUME, _S.PAUSED, _S.PAUSED, (g.the_tags_are_known,)),
    EngineRow(_E.RESUME, _S.OPEN, _S.OPEN, (g.the_tags_are_known,)),
    EngineRow(_E.BEGIN_UPDATE, _S.PAUSED, _S.UPDATING, (g.the_weights_are_resident,)),
    EngineRow(
        _E.SEND_BASE, _S.UPDATING, _S.UPDATING,
        (*_WRITES, g.a_base_group_is_named, g.a_version_is_given, g.no_adapter_was_sent_before_the_base),
    ),
    EngineRow(
        _E.LOAD_ADAPTER, _S.UPDATING, _S.UPDATING,
        (*_WRITES, g.an_adapter_group_is_named, g.a_version_is_given, g.the_base_comes_first),
    ),
    EngineRow(_E.UNLOAD_ADAPTER, _S.UPDATING, _S.UPDATING, (*_WRITES, g.an_adapter_group_is_named)),
    *_stays(_E.FLUSH, _S.PAUSED, _S.UPDATING),
    EngineRow(_E.COMMIT_UPDATE, _S.UPDATING, _S.PAUSED, (*_WRITES, g.the_caches_are_flushed)),
    EngineRow(_E.ABORT_UPDATE, _S.UPDATING, _S.PAUSED),
    *_stays(_E.ABORT_UPDATE, _S.OPEN, _S.PAUSED, _S.LOST, settled=True),
    EngineRow(
        _E.GENERATE, _S.OPEN, _S.OPEN,
        (g.an_adapter_is_named, g.every_tag_is_resident, g.the_base_is_whole, g.the_adapter_has_a_version,
         g.the_versions_are_the_expected, g.the_caches_are_flushed),
    ),
    *(EngineRow(event, state, _S.LOST) for event in (_E.LOSE, _E.RESTART) for state in EngineState),
    *(
        EngineRow(_E.PROBE, state, _S.OPEN, (g.the_known_instance_answers,), when=(g.it_admits_requests,))
        for state in EngineState
    ),
    *(
        EngineRow(_E.PROBE, state, target, (g.the_known_instance_answers,), when=(g.it_admits_none,))
        for state, target in (*((one, _S.PAUSED) for one in (_S.OPEN, _S.PAUSED, _S.LOST)), (_S.UPDATING, _S.UPDATING))
    ),
)  # fmt: skip
"""Every legal move of an engine."""

TAG_TABLE: Final[tuple[TagRow, ...]] = (
    TagRow(_T.RESIDENT, _E.RELEASE, _T.RELEASED, mirrored=True),
    TagRow(_T.RESIDENT, _E.RELEASE, _T.DISCARDED, mirrored=False),
    TagRow(_T.RESIDENT, _E.DISCARD, _T.DISCARDED),
    TagRow(_T.RELEASED, _E.DISCARD, _T.DISCARDED),
    TagRow(_T.RELEASED, _E.RESUME, _T.RESIDENT),
    TagRow(_T.DISCARDED, _E.RESUME, _T.RESIDENT),
)
"""Every move of a tag: a tag is resumed only if it was released, and released only if it is resident."""

REMEDIES: Final[Mapping[EngineState, str]] = {
    _S.OPEN: "pause it first, then begin an update for what writes",
    _S.PAUSED: "begin an update for what writes, unpause it for what serves",
    _S.UPDATING: "commit or abort the open update first",
    _S.LOST: "ask it what it holds first: report() probes it",
}
"""What to do when an event does not leave from the state."""


def check_engine_tables(rows: tuple[EngineRow, ...], tags: tuple[TagRow, ...]) -> None:
    """Check that no two rows must hold together, that each state is reached and left, and that each event has a row.

    Raises:
        TableError: naming the row, the state or the event that breaks a rule.
    """
    asked: dict[tuple[EngineState, EngineEvent], list[tuple[EngineGuard, ...]]] = {}
    for row in rows:
        others = asked.setdefault((row.source, row.event), [])
        if row.when in others or (others and () in (row.when, *others)):
            raise TableError(row.name, "it holds whenever another row of the same state and event does")
        others.append(row.when)
        if row.settled and (row.guards or row.source is not row.target):
            raise TableError(row.name, "a settled row neither asks nor moves")
    for event in EngineEvent:
        if event not in {row.event for row in rows}:
            raise TableError(event, "no row takes the event")
    moves = [row for row in rows if row.source is not row.target]
    for state in EngineState:
        if state not in {row.target for row in moves} or state not in {row.source for row in moves}:
            raise TableError(state, "the state is not reached, or not left")
    _check_tags(tags)


def _check_tags(tags: tuple[TagRow, ...]) -> None:
    for place, one in enumerate(tags):
        for other in tags[:place]:
            meets = None in (one.mirrored, other.mirrored) or one.mirrored is other.mirrored
            if (one.source, one.event) == (other.source, other.event) and meets:
                raise TableError(one.name, "the same move of a tag stands twice")
        if one.source is one.target:
            raise TableError(one.name, "a tag that stays as it is needs no row")


check_engine_tables(ENGINE_TABLE, TAG_TABLE)
