"""What a cohort's methods return: a turn that was taken, one that was not needed, and who holds what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lifecycle.outcome import NothingMoved, Outcome
from lifecycle.saver import Usage
from states import TrainerState
from states.cohort import CohortPlan
from states.verdict import NotABool


@dataclass(frozen=True, slots=True)
class CohortMoved(NotABool):
    """A turn was taken: every member is where it shall be.

    Attributes:
        call: what was asked.
        plan: the steps that were done, with the predicted bytes of each.
        outcomes: what each step came to, in the same order.
    """

    call: str
    plan: CohortPlan
    outcomes: tuple[Outcome, ...]

    @property
    def moved_bytes(self) -> int:
        """Bytes that were copied by its steps."""
        return sum(one.moved_bytes for one in self.outcomes)

    def __str__(self) -> str:
        return f"{self.call}: {', '.join(map(str, self.plan.steps))}; {self.moved_bytes:,} bytes moved"


@dataclass(frozen=True, slots=True)
class CohortUnchanged(NothingMoved):
    """Every member was where it shall be. No event was sent.

    Attributes:
        call: what was asked.
        states: the state of every member.
    """

    call: str
    states: Mapping[str, TrainerState]

    def __str__(self) -> str:
        return f"{self.call}: nothing to do"


CohortOutcome = CohortMoved | CohortUnchanged


@dataclass(frozen=True, slots=True)
class CohortUsage:
    """Who holds what in the one saver, and beside it. A snapshot of now.

    Attributes:
        members: member to what it holds in the saver: device, host backups, disk backups.
        others: what other tenants hold there, such as engines in the same process.
        copies: member to host bytes of its named copies and kept gradients, which are no memory of the saver's.
    """

    members: Mapping[str, Usage]
    others: Usage
    copies: Mapping[str, int]

    @property
    def total(self) -> Usage:
        """The sum of members and others: what ``saver.usage()`` says."""
        every = (*self.members.values(), self.others)
        return Usage(
            sum(one.device_bytes for one in every),
            sum(one.host_bytes for one in every),
            sum(one.disk_bytes for one in every),
        )
