"""Several trainers on one device that take turns: actor, critic, teacher, reward model."""

from __future__ import annotations

from lifecycle.cohort.cohort import Cohort
from lifecycle.cohort.errors import CohortFailed, CohortRefused, MemberMoved
from lifecycle.cohort.outcome import CohortMoved, CohortOutcome, CohortUnchanged, CohortUsage

__all__ = [
    "Cohort",
    "CohortFailed",
    "CohortMoved",
    "CohortOutcome",
    "CohortRefused",
    "CohortUnchanged",
    "CohortUsage",
    "MemberMoved",
]
