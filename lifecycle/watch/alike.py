"""What was done alike, by several ranks or several times in a row, put together: pure."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle.report.model import Outcome, Transition
from lifecycle.watch.picture import Picture, RankSeen
from states import TrainerEvent

_STEP_BEGINS = TrainerEvent.BEGIN_STEP
_STEP_ENDS = TrainerEvent.TRAINED


@dataclass(frozen=True, slots=True)
class Alike:
    """Transitions of one kind that stand beside each other.

    Attributes:
        kind: what they have in common.
        times: how often in a row.
        done: each, and whose it was.
    """

    kind: tuple[object, ...]
    times: int
    done: tuple[tuple[RankSeen, Transition], ...]

    @property
    def ended_s(self) -> float:
        """When the last of them ended."""
        return max(one.ended_s for _, one in self.done)

    def ranks(self) -> list[RankSeen]:
        """Those that did it, each once."""
        return list({id(rank): rank for rank, _ in self.done}.values())


def in_a_row(picture: Picture) -> list[Alike]:
    """The last transitions of all ranks, oldest first."""
    together: dict[object, list[tuple[RankSeen, Transition]]] = {}
    for rank in picture.ranks:
        for one in rank.recent:
            together.setdefault((one.number, _kind(rank, one)), []).append((rank, one))
    ordered = sorted(together.values(), key=lambda them: max(one.ended_s for _, one in them))
    found: list[Alike] = []
    for them in ordered:
        kind = _kind(*them[0])
        if found and _is_step(found[-1], kind):
            found.pop()
        if found and found[-1].kind == kind:
            before = found.pop()
            found.append(Alike(kind, before.times + 1, (*before.done, *them)))
        else:
            found.append(Alike(kind, 1, tuple(them)))
    return found


def _kind(rank: RankSeen, one: Transition) -> tuple[object, ...]:
    guards = tuple(verdict.guard for verdict in one.failed)
    return rank.whose.model, one.trigger, one.edge, one.outcome, one.source, one.target, guards


def _is_step(before: Alike, kind: tuple[object, ...]) -> bool:
    """Whether a step of that model was begun and is committed now."""
    model, trigger, _, outcome, *_ = before.kind
    return (
        trigger == _STEP_BEGINS
        and outcome is Outcome.MOVED
        and kind[:2] == (model, _STEP_ENDS)
        and kind[3] is Outcome.MOVED
    )
