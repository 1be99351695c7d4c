"""The audit records of transitions: began before the first effect, then exactly one of moved or failed."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol

from lifecycle.audit import notes
from lifecycle.audit.changes import RecordedFacts
from lifecycle.audit.told import Sure
from lifecycle.config import LifecycleConfig
from lifecycle.errors import AuditError
from lifecycle.ledger import Held
from lifecycle.outcome import Moved
from lifecycle.tally import Tally
from states import Facts, NoChange, Read, Refusal, Step, TrainerEvent, Verdict

ERRORS_KEPT: Final = 256
"""How many errors of the log and of subscribers are kept for whoever asks; the oldest are forgotten."""

CHECKPOINT_EVERY: Final = 100
"""A full list of versions stands in every so many ``moved`` records, so that a log can be read from its middle.

Of more groups than that it stands in as many records as there are groups: the lists stay a small part of the log.
"""


class Audit(Protocol):
    """Where records go."""

    def write(self, name: str, keys: Mapping[str, object]) -> None:
        """Append one record, flushed to the operating system.

        Raises:
            AuditError: it could not be written.
        """


@dataclass(frozen=True, slots=True)
class LogStanding:
    """Where a log stands.

    Attributes:
        transition: the number of the last transition.
        told: the versions as they were told last.
        since_checkpoint: records since all of them were told.
    """

    transition: int
    told: Mapping[str, int]
    since_checkpoint: int


class Recorder:
    """Writes the records of one trainer and decides nothing.

    Args:
        audit: the log.
        config: says whether a log that cannot be written stops the training.

    Attributes:
        failures: what could not be written, the last ones.
        tally: how many records of each kind there were, written or not.
    """

    def __init__(self, audit: Audit, config: LifecycleConfig) -> None:
        self._audit = audit
        self._stops = config.audit_failure == "stop"
        self._transition = 0
        self._told: dict[str, int] = {}
        self._since_checkpoint = sys.maxsize
        self.failures: deque[AuditError] = deque(maxlen=ERRORS_KEPT)
        self.tally = Tally()

    def stands_at(self) -> LogStanding:
        """Where the log stands, for one that is to go on from there."""
        return LogStanding(self._transition, dict(self._told), self._since_checkpoint)

    def go_on(self, standing: LogStanding) -> None:
        """Number transitions and tell versions as the log of another rank that stands there."""
        self._transition, self._told = standing.transition, dict(standing.told)
        self._since_checkpoint = standing.since_checkpoint

    def began(self, step: Step, facts: Facts) -> None:
        """Before the first effect. The native layer may end the process: this line is then the evidence.

        What is held is what the record before says.

        Raises:
            AuditError: it could not be written and the configuration says stop. Nothing was done.
        """
        self._transition += 1
        self._write("lifecycle.began", self._decided(step, facts))

    def moved(self, outcome: Moved, versions: Mapping[str, int], held: Held) -> None:
        """After the commit.

        Raises:
            AuditError: it could not be written and the configuration says stop. The outcome stands,
                and the error carries it.
        """
        self.tally.moved[str(outcome.event), outcome.edge] += 1
        keys = {
            "trigger": outcome.event,
            "edge": outcome.edge,
            "source": outcome.source,
            "target": outcome.target,
            **self._versions(versions),
            **_bytes(held, dict(outcome.moved)),
            "duration_s": round(outcome.duration_s, 6),
            "details": dict(outcome.details),
        }
        self._write("lifecycle.moved", keys, outcome)
        self._told = dict(versions)
        self._since_checkpoint = 0 if "checkpoint" in keys else self._since_checkpoint + 1

    def failed(
        self,
        step: Step,
        target: str,
        effect: str,
        error: BaseException,
        held: Held,
        moved: Mapping[str, int],
        engines: Mapping[str, object] | None = None,
    ) -> None:
        """An effect failed. Never raises: the error of the transition is the one to report.

        Of a push it says what became of each engine: what was sent to one is not undone because another failed.
        """
        self.tally.failed[str(step.event), str(effect)] += 1
        keys = {
            "trigger": step.event,
            "edge": step.edge,
            "source": step.state,
            "target": target,
            "effect": effect,
            "error": f"{type(error).__name__}: {error}",
            **_bytes(held, moved),
        }
        if engines:
            keys["engines"] = dict(engines)
        self._write_quietly("lifecycle.failed", keys)

    def refused(self, refusal: Refusal, facts: Facts) -> None:
        """A guard does not hold. Never raises: the refusal is the one to report."""
        self._transition += 1
        self.tally.refused.update((str(refusal.event), guard.name) for guard in refusal.failed)
        keys = {
            "trigger": refusal.event,
            "edge": refusal.edge,
            "source": refusal.state,
            "target": refusal.state,
            "verdicts": _verdicts(refusal.verdicts, by_facts=isinstance(refusal.event, TrainerEvent)),
            "remedy": refusal.remedy,
            "facts": RecordedFacts(facts),
        }
        self._write_quietly("lifecycle.refused", keys)

    def unchanged(self, no_change: NoChange, facts: Facts) -> None:
        """What was asked for already held."""
        self._transition += 1
        self.tally.unchanged[str(no_change.event)] += 1
        keys = {
            "trigger": no_change.event,
            "edge": "already",
            "source": no_change.state,
            "target": no_change.state,
            "verdicts": _verdicts(no_change.verdicts),
            "facts": RecordedFacts(facts),
        }
        self._write("lifecycle.unchanged", keys)

    def noted(self, what: str, **keys: object) -> None:
        """Something worth reading that is no transition."""
        self._write_quietly("lifecycle.noted", {"note": what, **keys})

    def aborted(self, versions: Mapping[str, int]) -> None:
        """A step was aborted: tells the versions that are others than the last ``moved`` record has left."""
        self.noted(notes.ABORTED, versions=changed_versions(self._told, versions))

    def stepped_outside(self, versions: Mapping[str, int]) -> None:
        """An optimizer stepped while no step was open: tells the versions as :meth:`aborted` does."""
        self.noted(notes.OUTSIDE, versions=changed_versions(self._told, versions))

    def _versions(self, versions: Mapping[str, int]) -> dict[str, object]:
        """What changed since the last record, None for a group that is gone; now and then everything."""
        changed = changed_versions(self._told, versions)
        if self._since_checkpoint < max(CHECKPOINT_EVERY, len(versions)):
            return {"versions": changed}
        return {"versions": changed, "checkpoint": dict(versions)}

    def _decided(self, step: Step, facts: Facts) -> dict[str, object]:
        return {
            "trigger": step.event,
            "edge": step.edge,
            "source": step.state,
            "target": step.target,
            "verdicts": _verdicts(step.verdicts),
            "decision": _sources(step.reads),
            "facts": RecordedFacts(facts),
        }

    def _write_quietly(self, name: str, keys: Mapping[str, object]) -> None:
        try:
            self._audit.write(name, {"transition": self._transition, **keys})
        except AuditError as error:
            self.failures.append(error)

    def _write(self, name: str, keys: Mapping[str, object], outcome: Moved | None = None) -> None:
        try:
            self._audit.write(name, {"transition": self._transition, **keys})
        except AuditError as error:
            self.failures.append(error)
            if self._stops:
                error.outcome = outcome
                raise


def changed_versions(before: Mapping[str, int | None], now: Mapping[str, int | None]) -> dict[str, int | None]:
    """The versions of the groups that have another one now, None for a group that is gone or incomplete."""
    changed: dict[str, int | None] = {group: version for group, version in now.items() if before.get(group) != version}
    return changed | dict.fromkeys(before.keys() - now.keys())


def _verdicts(verdicts: Iterable[Verdict], *, by_facts: bool = True) -> list[object]:
    """Verdicts as a record tells them: whole where they fail; why one holds follows from the facts.

    Args:
        verdicts: in the order in which they were asked.
        by_facts: they are guards over the facts alone. Others are told whole.
    """
    return [_holding(one.name) if by_facts and one.holds else one for one in verdicts]


@cache
def _holding(name: str) -> Sure:
    return Sure(name=name, holds=True)


def _sources(reads: Iterable[Read]) -> Sure:
    """How many content groups would be read from each source; which of them, and why, follows from the facts."""
    counted = Counter([one.source for one in reads])
    return Sure({"none" if source is None else source: count for source, count in counted.items()})


def _bytes(held: Held, moved: Mapping[str, int]) -> dict[str, object]:
    """Bytes held in all, the same by place and tag, and bytes moved by kind."""
    totals = Sure(held.totals(), moved=sum(moved.values()))
    by_place = {place: Sure(tags) for place, tags in held.by_place().items()}
    return {"bytes": totals, "held": Sure(by_place), "moved": Sure(moved)}
