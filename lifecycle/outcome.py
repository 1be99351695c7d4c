"""What a method of the controller returns. An outcome says what happened; a refusal is an error instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from states import Decision, Facts, NoChange, Read, Refusal, TrainerEvent, TrainerState, Verdict
from states.verdict import NotABool


@dataclass(frozen=True, slots=True)
class FailedAdapter:
    """An adapter that a partial reconcile left as it was. It stays pending: the next reconcile tries again.

    Attributes:
        name: the adapter.
        change: ``load``, ``replace`` or ``retire``.
        why: what failed.
    """

    name: str
    change: str
    why: str


@dataclass(frozen=True, slots=True)
class EngineOutcome:
    """What an ``update_weights`` came to for one engine.

    Attributes:
        engine: its name.
        committed: it has acknowledged everything it was sent, and was confirmed to hold it.
        sent: content groups that were sent, in order; of a push that failed, those that it had begun with.
        unloaded: adapters that were unloaded.
        moved_bytes: bytes that were sent.
        instance_id: the instance that took part, empty when it was not reached.
        verified: content group to how its content was compared with the trainer's: ``checksum``, ``probe``, or
            ``unverified: `` and why.
        error: why it failed, empty when it did not. It is fenced then, unless it was sent nothing.
    """

    engine: str
    committed: bool = False
    sent: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    moved_bytes: int = 0
    instance_id: str = ""
    verified: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    def __str__(self) -> str:
        return f"{self.engine}: {self.error or 'up to date'}"


@dataclass(frozen=True, slots=True)
class Moved(NotABool):
    """The event took an edge and is committed.

    Attributes:
        event: the event.
        edge: the edge of the table.
        source: the state before.
        target: the state after.
        reads: where each content group was read.
        moved_bytes: bytes that were copied by it.
        moved: the same by kind.
        duration_s: seconds from the decision to the commit.
        details: what it did in words of its kind (adapters loaded, engines updated), for the log.
    """

    event: TrainerEvent
    edge: str
    source: TrainerState
    target: TrainerState
    reads: tuple[Read, ...] = ()
    moved_bytes: int = 0
    moved: tuple[tuple[str, int], ...] = ()
    duration_s: float = 0.0
    details: tuple[tuple[str, object], ...] = ()

    @property
    def failed(self) -> tuple[FailedAdapter, ...]:
        """The adapters that ``reconcile_adapters(partial="keep")`` could not change, in the order of their names."""
        found = dict(self.details).get("failed", ())
        return found if isinstance(found, tuple) else ()

    @property
    def engines(self) -> Mapping[str, EngineOutcome]:
        """What an ``update_weights`` came to, by the names of the engines that were behind."""
        found = dict(self.details).get("engines", {})
        return found if isinstance(found, Mapping) else {}

    def __str__(self) -> str:
        took = f"{self.moved_bytes:,} bytes moved in {self.duration_s:.3f} s"
        return f"{self.event} ({self.edge}): {self.source} to {self.target}, {took}"


class NothingMoved(NotABool):
    """Base of outcomes of which nothing had to be done."""

    __slots__ = ()

    @property
    def moved_bytes(self) -> int:
        """0: nothing was copied."""
        return 0


@dataclass(frozen=True, slots=True)
class Unchanged(NothingMoved):
    """What was asked for already held. Zero effects.

    Attributes:
        event: the event.
        state: the state the trainer is and stays in.
    """

    event: TrainerEvent
    state: TrainerState

    @property
    def failed(self) -> tuple[FailedAdapter, ...]:
        """None: nothing was tried."""
        return ()

    @property
    def engines(self) -> Mapping[str, EngineOutcome]:
        """None: no engine was behind."""
        return {}

    def __str__(self) -> str:
        return f"{self.event}: nothing to do, the trainer is {self.state}"


Outcome = Moved | Unchanged


@dataclass(frozen=True, slots=True)
class Explanation:
    """What an event would do now, and why. Asking changes nothing.

    Attributes:
        event: the event.
        state: the present state.
        decision: Step, Refusal or NoChange.
        facts: the record it was decided on.
    """

    event: TrainerEvent
    state: TrainerState
    decision: Decision
    facts: Facts

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every guard that was asked."""
        return self.decision.verdicts

    @property
    def edge(self) -> str:
        """The edge it would take, empty when none."""
        return "" if isinstance(self.decision, NoChange) else self.decision.edge

    @property
    def may(self) -> Verdict:
        """One verdict for the whole event."""
        if isinstance(self.decision, Refusal):
            because = "; ".join(f"{one.name}: {one.because}" for one in self.decision.failed)
            return Verdict(self.event, holds=False, because=because, remedy=self.decision.remedy)
        return Verdict(self.event, holds=True, because=self.edge or "already holds")

    def __str__(self) -> str:
        """The answer, and a line for each guard: what it says, and of one that does not hold what to do."""
        answer = f"takes {self.edge}" if self.edge else "nothing to do"
        told = ["is refused" if isinstance(self.decision, Refusal) else answer, *map(_line, self.verdicts)]
        return f"{self.event} in state {self.state}: " + "\n  ".join(told)


def _line(verdict: Verdict) -> str:
    if verdict.holds:
        return f"ok  {verdict.name}: {verdict.because}"
    return f"NO  {verdict.name}: {verdict.because}. What to do: {verdict.remedy}"
