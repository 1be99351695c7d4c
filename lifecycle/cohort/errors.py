"""What a cohort raises besides what its members raise.

LifecycleError
├── CohortRefused   the caller: no order fits, or a member cannot be driven; nothing was done
├── CohortFailed    a member's event was refused or failed on the way; what was done was undone as far as it could be
└── MemberMoved     the caller: a member was driven by itself during a turn; always the cause of a CohortFailed
"""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.errors import LifecycleError
from states import TrainerEvent, TrainerState
from states.cohort import CohortRefusal, CohortStep
from states.handover import HandoverRefusal


class CohortRefused(LifecycleError):
    """The turn may not happen now. No member was asked for anything.

    Attributes:
        call: what was asked, such as ``turn(critic)``.
        refusal: the decision, with the predicted bytes of each step.
        because: why.
        remedy: what to do.
    """

    def __init__(self, call: str, refusal: CohortRefusal | HandoverRefusal) -> None:
        self.call = call
        self.refusal = refusal
        self.because = refusal.because
        self.remedy = refusal.remedy
        super().__init__(f"{call} is refused, nothing was done: {self.because}. What to do: {self.remedy}")


class CohortFailed(LifecycleError):
    """A step of a turn was refused or failed. The steps before it were undone, unless :attr:`left` names members.

    Attributes:
        call: what was asked, such as ``turn(critic)``.
        member: whose step it was; empty when all steps were done and somebody else had moved a member meanwhile.
        event: the event that was sent; None in that case.
        cause: what it raised (also ``__cause__``): ``EventRefused`` by a guard of the member, ``TransitionFailed``, ...
        states: the state of every member now.
        left: members that are not where they were before the turn, with why; empty when everything was undone.
    """

    def __init__(
        self,
        call: str,
        step: CohortStep | None,
        cause: BaseException,
        states: Mapping[str, TrainerState],
        left: Mapping[str, BaseException],
    ) -> None:
        self.call = call
        self.member = "" if step is None else step.member
        self.event: TrainerEvent | None = None if step is None else step.event
        self.cause = cause
        self.states: Mapping[str, TrainerState] = dict(states)
        self.left: Mapping[str, BaseException] = dict(left)
        what = "at its end" if step is None else f"at {step}"
        now = ", ".join(f"{name} is {state}" for name, state in states.items())
        super().__init__(f"{call} failed {what}: {cause}. {self._told()}; {now}. What to do: {self._remedy()}")

    @property
    def undone(self) -> bool:
        """Whether every member is where it was before the turn."""
        return not self.left

    def _told(self) -> str:
        if self.undone:
            return "What was done before was undone"
        return "Not undone: " + "; ".join(f"{name} ({why})" for name, why in self.left.items())

    def _remedy(self) -> str:
        faulted = [f"{name}.recover()" for name, state in self.states.items() if state is TrainerState.FAULTED]
        return f"{', '.join(faulted)}, then call it again" if faulted else "mend the cause and call it again"


class MemberMoved(LifecycleError):
    """A member was driven by somebody else while a turn was under way.

    Attributes:
        moved: member to the state that it is in and should not be.
    """

    def __init__(self, moved: Mapping[str, TrainerState]) -> None:
        self.moved: Mapping[str, TrainerState] = dict(moved)
        told = ", ".join(f"{name} is {state}" for name, state in moved.items())
        super().__init__(f"somebody drove members while the turn was under way: {told}; drive them through the cohort")
