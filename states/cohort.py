"""The turn of a cohort as a plan: which member gives its memory back and which one takes it, in which order.

What is held after some moves depends on which were made and not on their order, so the search over orders is small
and complete: a turn is refused only if no order at all fits the budgets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from states.cohort_steps import CohortLevels, CohortStep, Member, Move, moves_to, step_of
from states.handover_needs import TrainerBytes
from states.names import OFFLOADED, RESTING, TrainerState
from states.verdict import NotABool, Verdict

__all__ = [
    "CohortLevels",
    "CohortPlan",
    "CohortRefusal",
    "CohortStep",
    "Member",
    "joint_bytes",
    "plan_return",
    "plan_turn",
]

_DRIVABLE = "every-member-can-be-driven"
_FITS = "the-turn-fits"


@dataclass(frozen=True, slots=True)
class CohortPlan(NotABool):
    """A turn that fits.

    Attributes:
        goals: member to the state that it shall be in, in the declared order.
        steps: in order; none when every member is where it shall be.
        levels: what was held and what may be held.
    """

    goals: Mapping[str, TrainerState]
    steps: tuple[CohortStep, ...]
    levels: CohortLevels

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    @property
    def host_peak_bytes(self) -> int:
        """The most that is held on the host at any moment of it."""
        return max((self.levels.host_held_bytes, *(step.host_peak_bytes for step in self.steps)))

    @property
    def device_peak_bytes(self) -> int:
        """The most that is held on the device at any moment of it."""
        return max((self.levels.device_held_bytes, *(step.device_peak_bytes for step in self.steps)))

    def told(self) -> dict[str, object]:
        """As it stands in the log."""
        budgets = {"host": self.levels.host_budget_bytes, "device": self.levels.device_budget_bytes}
        return {"goals": dict(self.goals), "steps": [step.told() for step in self.steps], "budget_bytes": budgets}


@dataclass(frozen=True, slots=True)
class CohortRefusal(NotABool):
    """No order fits, or a member cannot be driven. Nothing was done.

    Attributes:
        goals: member to the state that it should have been in.
        tried: the steps in the order that is preferred, with the bytes of each; none where a member cannot be driven.
        failed: the verdict that does not hold.
        levels: what was held and what may be held.
    """

    goals: Mapping[str, TrainerState]
    tried: tuple[CohortStep, ...]
    failed: Verdict
    levels: CohortLevels

    @property
    def because(self) -> str:
        """Why, with members, steps and bytes."""
        return self.failed.because

    @property
    def remedy(self) -> str:
        """What to do."""
        return self.failed.remedy


def plan_turn(
    members: Sequence[Member], wanted: Collection[str], levels: CohortLevels, *, offloads: bool = True
) -> CohortPlan | CohortRefusal:
    """Plan how exactly the wanted members come to be awake, and all others to have given their memory back.

    Releases go before wakes, each in the order of *members*, unless only another order fits the budgets.

    Args:
        members: all members, in the declared order.
        wanted: names of those that shall be awake.
        levels: what is held now and what may be held.
        offloads: the others offload, where they have a target; else they sleep, and who has offloaded stays so.

    Raises:
        ValueError: a wanted name is no member.
    """
    unknown = sorted(set(wanted) - {one.name for one in members})
    if unknown:
        raise ValueError(f"no such member: {', '.join(unknown)}")
    goals = {one.name: _goal(one, wanted, offloads=offloads) for one in members}
    stuck = [one for one in members if one.state not in RESTING]
    if stuck:
        return CohortRefusal(goals, (), _cannot_be_driven(stuck), levels)
    ways = tuple(moves_to(one, goals[one.name]) for one in members)
    steps = _first_that_fits(ways, levels)
    if steps is not None:
        return CohortPlan(goals, steps, levels)
    tried = _preferred(ways, levels)
    return CohortRefusal(goals, tried, _does_not_fit(tried), levels)


def plan_return(
    members: Sequence[Member], before: Mapping[str, TrainerState], levels: CohortLevels
) -> tuple[CohortStep, ...]:
    """The way back to the states of before, after a step failed; the members' own guards decide whether it can be gone.

    Args:
        members: those that a step has touched, the last one first. Who cannot be driven is left where it is.
        before: the state that each is to be in again.
        levels: what is held now and what may be held.

    Returns:
        The first order that fits the budgets, or else the one that undoes what was done in reverse.
    """
    ways = tuple(moves_to(one, before[one.name]) for one in members if one.state in RESTING)
    steps = _first_that_fits(ways, levels)
    return _preferred(ways, levels) if steps is None else steps


def joint_bytes(members: Sequence[Member], waking: Collection[str]) -> TrainerBytes:
    """What a cohort gives and takes at a hand-over, as one trainer: all members go, some come back.

    Args:
        members: all members.
        waking: those that wake again on the way back.
    """
    back = [one for one in members if one.name in waking]
    targets = [one.held.target for one in members if one.held.target is not None]
    return TrainerBytes(
        target=targets[0] if targets else None,
        weights_bytes=sum(_given(one) for one in members),
        scratch_bytes=sum(one.held.scratch_bytes for one in members),
        awake_bytes=sum(one.held.awake_bytes - (one.held.weights_bytes - _given(one)) for one in back),
        kept_bytes=sum(one.held.kept_bytes for one in members),
        replaced_bytes=sum(one.held.replaced_bytes for one in members),
        backup_bytes=sum(one.held.backup_bytes for one in members if one.held.target is not None),
        returned_bytes=sum(one.held.returned_bytes for one in back),
    )


def _given(member: Member) -> int:
    """Device bytes that its offload gives back."""
    return member.held.weights_bytes if member.held.target is not None else 0


def _goal(member: Member, wanted: Collection[str], *, offloads: bool) -> TrainerState:
    if member.name in wanted:
        return TrainerState.AWAKE
    if offloads or member.state in OFFLOADED:
        return member.away
    return TrainerState.SLEEPING


def _first_that_fits(ways: tuple[tuple[Move, ...], ...], levels: CohortLevels) -> tuple[CohortStep, ...] | None:
    """The first order in which no step exceeds a budget, None when there is none. The moves of a member keep theirs."""
    seen: set[tuple[int, ...]] = set()

    def onward(done: tuple[int, ...], host_bytes: int, device_bytes: int) -> tuple[CohortStep, ...] | None:
        seen.add(done)
        pending = _pending(ways, done)
        for index, move in pending:
            after = (*done[:index], done[index] + 1, *done[index + 1 :])
            step = step_of(move, host_bytes, device_bytes, levels)
            if after in seen or step.excess:  # from what was seen no way leads to the end
                continue
            rest = onward(after, step.host_bytes, step.device_bytes)
            if rest is not None:
                return (step, *rest)
        return None if pending else ()

    return onward((0,) * len(ways), levels.host_held_bytes, levels.device_held_bytes)


def _pending(ways: tuple[tuple[Move, ...], ...], done: tuple[int, ...]) -> list[tuple[int, Move]]:
    """The moves that may be next: those that give before those that take, each in the declared order."""
    found = [(index, way[count]) for index, (way, count) in enumerate(zip(ways, done, strict=True)) if count < len(way)]
    return sorted(found, key=lambda one: one[1].is_a_wake)


def _preferred(ways: tuple[tuple[Move, ...], ...], levels: CohortLevels) -> tuple[CohortStep, ...]:
    """The order that is taken where nothing is limited, with what it would exceed."""
    free = _first_that_fits(ways, levels.without_budgets())
    assert free is not None  # nothing limits it
    moves = {(one.member, one.event): one for way in ways for one in way}
    found: list[CohortStep] = []
    host_bytes, device_bytes = levels.host_held_bytes, levels.device_held_bytes
    for one in free:
        step = step_of(moves[one.member, one.event], host_bytes, device_bytes, levels)
        host_bytes, device_bytes = step.host_bytes, step.device_bytes
        found.append(step)
    return tuple(found)


def _cannot_be_driven(stuck: Sequence[Member]) -> Verdict:
    because = "; ".join(f"{one.name} is {one.state}" for one in stuck)
    faulted = [f"{one.name}.recover()" for one in stuck if one.state is TrainerState.FAULTED]
    remedy = f"call {', '.join(faulted)} first" if faulted else "wait until the event under way has ended"
    return Verdict(_DRIVABLE, holds=False, because=because, remedy=remedy)


def _does_not_fit(tried: Sequence[CohortStep]) -> Verdict:
    over = "; ".join(f"{step} needs {step.excess}" for step in tried if step.excess)
    return Verdict(
        _FITS,
        holds=False,
        because=f"no order fits; with all releases first {over}",
        remedy="want fewer members awake at once, let a tenant outside of the cohort give memory back, back frozen "
        'bases by a file (frozen_base="file"), or raise a budget to one of these figures',
    )
