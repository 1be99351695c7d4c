"""Takes the steps of a turn through the members' own events; what fails is undone in reverse."""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.cohort.errors import CohortFailed, MemberMoved
from lifecycle.cohort.members import Members
from lifecycle.distributed.errors import RankFenced, RanksMissing, StoreLost
from lifecycle.outcome import Outcome
from states import TrainerState
from states.cohort import CohortPlan, CohortStep, plan_return

_OTHERS_ARE_GONE = (RanksMissing, RankFenced, StoreLost)
"""Whoever goes back then waits for ranks that do not come, once a step."""


class Drive:
    """One turn under way.

    Args:
        members: the members.
        call: what was asked, for errors.
        plan: the steps.
        before: the state that each member was in when it was planned.

    Attributes:
        seen: for the log: each step that was done, with what was predicted and what is held after it.
    """

    def __init__(self, members: Members, call: str, plan: CohortPlan, before: Mapping[str, TrainerState]) -> None:
        self._members = members
        self._call = call
        self._plan = plan
        self._before = before
        self._touched: list[str] = []
        self.seen: list[dict[str, object]] = []

    def go(self) -> tuple[Outcome, ...]:
        """Every step, in order.

        Returns:
            What each step came to.

        Raises:
            CohortFailed: a step was refused or failed, or somebody else moved a member meanwhile.
        """
        outcomes: list[Outcome] = []
        step: CohortStep | None = None
        try:
            for step in self._plan.steps:
                self._touched = [step.member, *(name for name in self._touched if name != step.member)]
                outcomes.append(self._members.by_name[step.member].send(step.event))
                self._see(step)
            step = None
            self._compare()
        except BaseException as error:
            found = self._failed(step, error)
            if found is error:
                raise
            raise found from error
        return tuple(outcomes)

    def _compare(self) -> None:
        """Every member is where it shall be, whoever drove it.

        Raises:
            MemberMoved: one is not.
        """
        states = self._members.states()
        moved = {name: states[name] for name, goal in self._plan.goals.items() if states[name] is not goal}
        if moved:
            raise MemberMoved(moved)

    def _see(self, step: CohortStep) -> None:
        now = self._members.held()
        held = {"held_host_bytes": now.host_held_bytes, "held_device_bytes": now.device_held_bytes}
        self.seen.append({**step.told(), **held})

    def _failed(self, step: CohortStep | None, error: BaseException) -> BaseException:
        """Go back, and what to raise then: an interrupt stays one."""
        raised = {} if _others_are_gone(error) else self._go_back()
        states = self._members.states()
        left = {name: raised.get(name, error) for name in states if states[name] is not self._before[name]}
        found = CohortFailed(self._call, step, error, states, left)
        for one in (error, *raised.values()):
            if not isinstance(one, Exception):
                one.add_note(str(found))
                return one
        return found

    def _go_back(self) -> dict[str, BaseException]:
        """Undo what was done, of each member as far as it goes.

        Returns:
            Member to why it could not go back.
        """
        raised: dict[str, BaseException] = {}
        try:
            there = [self._members.by_name[name].look() for name in self._touched]
            steps = plan_return(there, self._before, self._members.levels())
        except Exception as error:  # noqa: BLE001 - whatever it is, the error of the turn is the one to raise
            return dict.fromkeys(self._touched, error)
        for step in steps:
            if step.member in raised:
                continue
            try:
                self._members.by_name[step.member].send(step.event)
            except BaseException as error:  # noqa: BLE001 - the others still have to go back
                raised[step.member] = error
        return raised


def _others_are_gone(error: BaseException) -> bool:
    """Also where they went in the middle of a transition, or of its undo."""
    found = (error, getattr(error, "cause", None), getattr(error, "undo_error", None))
    return any(isinstance(one, _OTHERS_ARE_GONE) for one in found)
