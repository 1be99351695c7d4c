"""What somebody on call should look at, in sentences: the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lifecycle.audit.spans import spans_of
from lifecycle.report.human import lasted_text
from lifecycle.report.model import Outcome, Transition
from lifecycle.watch.picture import Picture, RankSeen, Serving
from states import TrainerState

LATE_S: Final = 5.0
"""Ranks act together: one that is behind for longer than this is late."""
SLOW_S: Final = 10.0
SLOW_TIMES: Final = 3.0
"""A transition that runs for longer than both, this many times the longest before, is slow."""
SILENT_S: Final = 60.0
SILENT_TIMES: Final = 2.0
"""The same of a log in which nothing is written, and its longest silence before."""


class Level(StrEnum):
    """How bad it is. Errors make ``--once`` end with 1."""

    ERROR = "error"
    WARNING = "warning"


class Concern(StrEnum):
    """What it is about: one word, the same in every line."""

    FAULTED = "faulted"
    FAILED = "failed"
    APART = "apart"
    OLD = "old"
    DIED = "died"
    LATE = "late"
    SLOW = "slow"
    REFUSED = "refused"
    DOUBT = "doubt"
    SILENT = "silent"
    TORN = "torn"
    GONE = "gone"
    WAITING = "waiting"


LEVELS: Final = {
    Concern.FAULTED: Level.ERROR,
    Concern.FAILED: Level.ERROR,
    Concern.APART: Level.ERROR,
    Concern.OLD: Level.ERROR,
}
"""The others are warnings."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to look at.

    Attributes:
        concern: what it is about.
        who: the ranks, or the file.
        says: what happened, why, and what to do; as it stands in the log.
    """

    concern: Concern
    who: str
    says: str

    @property
    def level(self) -> Level:
        """How bad it is."""
        return LEVELS.get(self.concern, Level.WARNING)


def notices(picture: Picture, max_age_s: float | None = None) -> tuple[Notice, ...]:
    """Everything to look at, in the order of :class:`Concern`; what several ranks have in common is said once.

    Args:
        picture: the run.
        max_age_s: logs without a record for longer than this are an error; never when None.
    """
    found: dict[tuple[Concern, str], list[RankSeen]] = {}
    for rank in picture.ranks:
        for concern, says in _of_a_rank(rank, picture.now_s, max_age_s):
            found.setdefault((concern, says), []).append(rank)
    told = [Notice(concern, who(picture, ranks), says) for (concern, says), ranks in found.items()]
    told += _of_ranks(picture)
    told += [Notice(Concern.GONE, file, "the file is not there any more; what it said last is shown")
             for file in picture.gone]  # fmt: skip
    told += [Notice(Concern.WAITING, one.file, one.why) for one in picture.unseen]
    order = list(Concern)
    return tuple(sorted(told, key=lambda one: order.index(one.concern)))


def who(picture: Picture, ranks: Sequence[RankSeen]) -> str:
    """Such as ``rank 2`` or ``ranks 0-3``; with the model where there are several, and of one log nothing at all."""
    if len(picture.ranks) == 1:
        return ""
    several = len({one.whose.model for one in picture.ranks}) > 1
    told = []
    for model in dict.fromkeys(one.whose.model for one in ranks):
        numbers = sorted({one.whose.rank for one in ranks if one.whose.model == model})
        name = f"{model} " if several else ""
        told.append(f"{name}rank{'s' if len(numbers) > 1 else ''} {spans_of(numbers)}")
    return ", ".join(told)


def is_well(found: Iterable[Notice]) -> bool:
    """Whether none of them is an error."""
    return all(one.level is not Level.ERROR for one in found)


def refusal_text(one: Transition) -> str:
    """The guards that did not hold, why, and what to do."""
    guards = [
        f"{verdict.guard}: {verdict.because}" + (f"; to do: {verdict.remedy}" if verdict.remedy else "")
        for verdict in one.failed
    ]
    return "; ".join(guards) or "no guard is named"


def _of_a_rank(rank: RankSeen, now_s: float, max_age_s: float | None) -> Iterator[tuple[Concern, str]]:
    age_s = max(0.0, now_s - (rank.seen_s if rank.seen_s is not None else now_s))
    yield from _broken(rank)
    if max_age_s is not None and age_s > max_age_s:
        yield Concern.OLD, f"nothing written for longer than {lasted_text(max_age_s)}"
    yield from _slow(rank, now_s, age_s)
    for refused in rank.refused:
        if not refused.is_settled:
            times = f" ({refused.times} times)" if refused.times > 1 else ""
            one = refused.transition
            yield Concern.REFUSED, f"{one.trigger} in {one.source}{times}: {refusal_text(one)}"
    for engine in rank.engines:
        if engine.serving is Serving.IN_DOUBT:
            because = f": {engine.because}" if engine.because else ""
            yield Concern.DOUBT, f"{engine.name} must not serve, nobody knows what it holds{because}"
    yield from _torn(rank)


def _broken(rank: RankSeen) -> Iterator[tuple[Concern, str]]:
    last = rank.last
    if rank.state is TrainerState.FAULTED:
        why = f": {last.trigger}: {last.problem}" if last is not None and last.outcome is Outcome.FAILED else ""
        yield Concern.FAULTED, f"every event is refused until recover(){why}"
    elif last is not None and last.outcome is Outcome.FAILED:
        yield Concern.FAILED, f"{last.trigger} failed and was undone, the state is {last.target}: {last.problem}"
    if rank.died_in is not None:
        yield Concern.DIED, f"the session before ended in {rank.died_in.trigger}: its process died there"


def _torn(rank: RankSeen) -> Iterator[tuple[Concern, str]]:
    if rank.unreadable:
        yield Concern.TORN, f"lines that are torn or no records: {rank.unreadable}"
    if rank.unfinished_bytes:
        yield Concern.TORN, f"the last line has no end ({rank.unfinished_bytes} bytes)"


def _slow(rank: RankSeen, now_s: float, age_s: float) -> Iterator[tuple[Concern, str]]:
    if rank.running is not None:
        runs_s, usual_s = now_s - rank.running.began_s, rank.usual_s
        if runs_s > max(SLOW_S, SLOW_TIMES * (usual_s or 0.0)):
            before = "" if usual_s is None else f"; the longest before took {lasted_text(usual_s)}"
            yield Concern.SLOW, f"{rank.running.trigger} has no end yet{before}"
    elif age_s > max(SILENT_S, SILENT_TIMES * rank.longest_silence_s):
        longest = lasted_text(rank.longest_silence_s)
        yield Concern.SILENT, f"nothing is written any more; the longest silence before lasted {longest}"


def _of_ranks(picture: Picture) -> Iterator[Notice]:
    """Ranks of one model against each other."""
    for model in dict.fromkeys(one.whose.model for one in picture.ranks):
        ranks = [one for one in picture.ranks if one.whose.model == model and one.state is not None]
        if len(ranks) > 1:
            yield from _apart(picture, ranks)
            yield from _late(picture, ranks)


def _apart(picture: Picture, ranks: Sequence[RankSeen]) -> Iterator[Notice]:
    """Ranks that have decided as often and are at rest are in one state. Of a faulted one more is said elsewhere."""
    by_number: dict[int, dict[TrainerState, list[RankSeen]]] = {}
    for one in ranks:
        if one.running is None and one.state is not None and one.state is not TrainerState.FAULTED:
            by_number.setdefault(one.number, {}).setdefault(one.state, []).append(one)
    for number, states in by_number.items():
        if len(states) > 1:
            told = ", ".join(f"{who(picture, them)} {state}" for state, them in states.items())
            yield Notice(Concern.APART, "", f"after transition {number} ranks are in different states: {told}")


def _late(picture: Picture, ranks: Sequence[RankSeen]) -> Iterator[Notice]:
    first = max(one.number for one in ranks)
    leaders = [one for one in ranks if one.number == first]
    reached_s = min((one.running.began_s if one.running else one.seen_s or picture.now_s) for one in leaders)
    by_lag: dict[int, list[RankSeen]] = {}
    for one in ranks:
        if one.number < first:
            by_lag.setdefault(first - one.number, []).append(one)
    if picture.now_s - reached_s > LATE_S:
        for lag, them in sorted(by_lag.items()):
            yield Notice(
                Concern.LATE,
                who(picture, them),
                f"{lag} transition{'s' if lag > 1 else ''} behind {who(picture, leaders)}, at {first}",
            )
