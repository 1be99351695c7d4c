"""A decision made again from what a record says, and how the record differs from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from states.agreement import LOCAL_GUARDS
from states.decision import Decision, NoChange, Refusal, Step, decide
from states.effects import Effect
from states.facts import Facts
from states.names import RESTING, Source, TrainerEvent, TrainerState
from states.reconcile import as_one, decide_reconcile
from states.row import RowKind
from states.table import TABLE
from states.verdict import Verdict

Edge = tuple[TrainerState, TrainerEvent, str, TrainerState]

_RECONCILE: Final = TrainerEvent.RECONCILE_ADAPTERS  # a member is looked up ten times slower than a name
_SOURCES: Final[Mapping[Source | None, str]] = {None: "none", **{one: str(one) for one in Source}}
_OF_A_RANK: Final = re.compile(r"(?:^|; )rank (\d+): ")
_MORE_REFUSE: Final = re.compile(r"; \d+ more rank\(s\) refuse$")


def _edges() -> dict[Edge, tuple[Effect, ...]]:
    """Every edge that a record may tell, and its effects. Both moves of a reconcile are told as one."""
    found: dict[Edge, tuple[Effect, ...]] = {}
    for row in TABLE:
        if row.kind is not RowKind.MOVE:
            continue
        if row.event is TrainerEvent.RECONCILED:
            found[row.target, TrainerEvent.RECONCILE_ADAPTERS, row.edge, row.target] = row.effects
        elif row.source in RESTING or row.event is TrainerEvent.RECOVER:
            found[row.source, row.event, row.edge, row.target] = row.effects
    return {edge: effects for edge, effects in found.items() if edge[2] != "enters"}


EDGES: Final = _edges()
"""(source, event, edge, target) of every transition, and its effects."""


class Said(Protocol):
    """A verdict as a record tells it.

    Attributes:
        name: of the guard.
        holds: whether it holds.
        because: why; false where the record leaves it out.
        remedy: the same.
    """

    name: str
    holds: bool
    because: Any
    remedy: Any


@dataclass(slots=True)  # one is made for every record of a log, and frozen ones take three times as long
class Told:
    """What a record says of its decision.

    Attributes:
        kind: ``began``, ``refused`` or ``unchanged``.
        edge: as the record has it.
        target: the same.
        verdicts: what the guards said.
        reads: how many groups are read from each source, ``none`` for those without; None in what is no ``began``.
        rank: who wrote it.
    """

    kind: str
    edge: str
    target: str
    verdicts: Sequence[Said]
    reads: Mapping[str, int] | None
    rank: int


def decide_again(state: TrainerState, event: TrainerEvent, facts: Facts) -> Decision:
    """The decision as a record tells it: both moves of a reconcile as one."""
    if event is not _RECONCILE:
        return decide(state, event, facts)
    found = decide_reconcile(state, facts)
    return as_one(*found) if isinstance(found, tuple) else found


def difference(decision: Decision, told: Told) -> str:
    """In what the record differs from the decision that its facts give, in words; empty where it does not."""
    if told.kind == "refused" and _is_joined(told):
        return _joined_difference(decision, told)
    kind, edge, target, reads = _answer(decision)
    if told.kind != kind:
        return f"the facts give {kind} ({edge or 'no edge'}), the record says {told.kind}"
    if edge != told.edge:
        return _other("edge", edge, told.edge)
    if target != told.target:
        return _other("target", target, told.target)
    if reads != told.reads:
        return _other("reads", reads, told.reads)
    return _verdict_difference(decision.verdicts, told.verdicts)


def _answer(decision: Decision) -> tuple[str, str, str, Mapping[str, int] | None]:
    if isinstance(decision, Step):
        reads: dict[str, int] = {}
        for one in decision.reads:
            source = _SOURCES[one.source]
            reads[source] = reads.get(source, 0) + 1
        return "began", decision.edge, decision.target, reads
    if isinstance(decision, NoChange):
        return "unchanged", "already", decision.state, None
    return "refused", decision.edge, decision.state, None


def _other(name: str, given: object, said: object) -> str:
    return f"the facts give the {name} {given or 'none'}, the record says {said or 'none'}"


def _verdict_difference(given: Sequence[Verdict], told: Sequence[Said]) -> str:
    asked, said = [one.name for one in given], [one.name for one in told]
    if asked != said:
        return f"the facts ask {', '.join(asked)}, the record says {', '.join(said)}"
    for one, other in zip(given, told, strict=True):
        if one.holds is not other.holds:
            return f"{one.name} {_holds(one.holds)} by the facts, the record says that it {_holds(other.holds)}"
        because, remedy = other.because or "", other.remedy or ""
        if not one.holds and (one.because, one.remedy) != (because, remedy):
            return f"{one.name} does not hold because {one.because!r}, the record says {because!r} ({remedy!r})"
    return ""


def _holds(holds: bool) -> str:  # noqa: FBT001 - as Verdict itself
    return "holds" if holds else "does not hold"


def _is_joined(told: Told) -> bool:
    """Whether the verdicts are those of several ranks: only those that fail, the local ones under a rank's number."""
    return all(not one.holds for one in told.verdicts) and any(
        _MORE_REFUSE.search(one.because or "") or (one.name in LOCAL_GUARDS and _OF_A_RANK.search(one.because or ""))
        for one in told.verdicts
    )


def _joined_difference(decision: Decision, told: Told) -> str:
    """What is equal on every rank must follow from these facts, and so must what this rank is said to have said."""
    own = {one.name: one for one in decision.failed} if isinstance(decision, Refusal) else {}
    for one in told.verdicts:
        said = _MORE_REFUSE.sub("", one.because or "")
        if one.name in LOCAL_GUARDS:
            said = _part_of(told.rank, said)
            if not said:
                continue
        if one.name not in own:
            return f"{one.name} holds by the facts of this rank, the record says that it does not"
        if own[one.name].because != said:
            return f"{one.name} does not hold because {own[one.name].because!r}, the record says {said!r}"
    return ""


def _part_of(rank: int, because: str) -> str:
    """What this rank said, of what several said; empty where it said nothing."""
    parts = _OF_A_RANK.split(because)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(str(rank), "")
