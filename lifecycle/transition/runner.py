"""Decide, act, commit; undo in reverse. The one place where effects run and the state moves."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lifecycle.errors import DigestMismatch, EventRefused, TrainerFaulted, TransitionFailed
from lifecycle.ledger import held_now
from lifecycle.outcome import Moved, Outcome, Unchanged
from lifecycle.transition.effects import EFFECTS
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Parts, Request, Undo, UndoFailed, Work
from lifecycle.transition.records import ERRORS_KEPT, Recorder
from lifecycle.transition.turn import Turn
from states import (
    Decision,
    Effect,
    Facts,
    NoChange,
    Refusal,
    Step,
    TrainerEvent,
    TrainerMachine,
    TrainerState,
    as_one,
    decide,
    decide_reconcile,
)

_RECONCILING = TrainerState.ADAPTER_RECONCILING
_ENTER = "enter"
_COMMIT = "commit"


@dataclass
class _Done:
    effect: str
    undo: Undo


class Runner:
    """Takes events through decision, effects and commit.

    Args:
        parts: what effects touch.
        machine: what carries the state.
        recorder: the records.

    Attributes:
        moved: bytes that were moved in this run, by (event or call, kind).
    """

    def __init__(self, parts: Parts, machine: TrainerMachine, recorder: Recorder) -> None:
        self._parts = parts
        self.machine = machine
        self.recorder = recorder
        self.turn = Turn(parts.config.event_timeout_s)
        self.effects = dict(EFFECTS)
        self.moved: Counter[tuple[str, str]] = Counter()
        self.subscribers: list[Callable[[Moved], None]] = []
        self.callback_errors: deque[Exception] = deque(maxlen=ERRORS_KEPT)

    def send(self, event: TrainerEvent, request: Request) -> Outcome:
        """One event, to completion.

        Raises:
            EventRefused: a guard does not hold; nothing changed.
            TransitionFailed: an effect failed; everything was undone.
            TrainerFaulted: an undo failed.
            AuditError: the log could not be written and the configuration says stop.
        """
        with self.turn.of(event):
            facts = gather(self._parts, request, event)
            decision = decide_event(self.machine.state, event, facts)
            if isinstance(decision, Refusal):
                self.recorder.refused(decision, facts)
                raise EventRefused(decision)
            if isinstance(decision, NoChange):
                self.recorder.unchanged(decision)
                return Unchanged(event, decision.state)
            if isinstance(decision, Step):
                return self._act(Work(decision, facts, request), decision, None)
            entering, leaving = decision
            self._parts.runtime.origin = entering.state
            try:
                return self._act(Work(as_one(entering, leaving), facts, request), leaving, entering)
            finally:
                self._parts.runtime.origin = None

    def _act(self, work: Work, leaving: Step, entering: Step | None) -> Outcome:
        """Act and commit: *entering* is the first move of a reconcile, *leaving* the one that commits."""
        started, source = time.perf_counter(), work.step.state
        self.recorder.began(work.step, work.facts)
        try:
            self._perform(work, source, entering, leaving)
        finally:
            self.count(work.step.event, work.moved)
        for commit in work.on_commit:
            commit()
        outcome = Moved(
            event=work.step.event,
            edge=work.step.edge,
            source=source,
            target=work.step.target,
            reads=work.step.reads,
            moved_bytes=work.moved_bytes,
            moved=tuple(sorted(work.moved.items())),
            duration_s=time.perf_counter() - started,
            details=tuple(work.details.items()),
        )
        try:
            self.recorder.moved(outcome, self._parts.versions.wanted, held_now(self._parts))
        finally:
            for what, keys in work.remarks:
                self.recorder.noted(what, **keys)
            self._tell(outcome)
        return outcome

    def count(self, event: str, moved: Mapping[str, int]) -> None:
        """Add bytes to what the run has moved.

        Args:
            event: the event, or the call, that moved them; also one that failed.
            moved: bytes by kind.
        """
        for kind, count_bytes in moved.items():
            if count_bytes:
                self.moved[str(event), kind] += count_bytes

    def _perform(self, work: Work, source: TrainerState, entering: Step | None, leaving: Step) -> None:
        """Run the effects and commit; whatever goes wrong before the state has moved is undone."""
        done: list[_Done] = []
        moves = {_COMMIT: leaving} if entering is None else {_ENTER: entering, _COMMIT: leaving}
        first = () if entering is None else (_ENTER,)
        for effect in (*first, *work.step.effects, _COMMIT):
            try:
                if effect in moves:
                    self.machine.take(moves[effect])
                else:
                    done.append(_Done(effect, self.effects[Effect(effect)](self._parts, work)))
            except DigestMismatch as error:
                raise self._fault(work, effect, error, None) from error
            except UndoFailed as both:
                raise self._fault(work, effect, both.cause, both.undo_error) from both
            except BaseException as error:
                self._undo(work, source, effect, done, error)
                if not isinstance(error, Exception):
                    raise
                raise TransitionFailed(work.step.event, source, effect, error, work.engines) from error

    def _undo(self, work: Work, source: TrainerState, effect: str, done: list[_Done], error: BaseException) -> None:
        for one in reversed(done):
            try:
                one.undo()
            except BaseException as undo_error:  # noqa: BLE001 - also an interrupt: the trainer is faulted
                raise self._fault(work, one.effect, error, undo_error) from error
        self._abandon()
        self.recorder.failed(work.step, source, effect, error, held_now(self._parts), work.moved, work.engines)

    def _abandon(self) -> None:
        """Leave the middle of a reconcile for where it came from; does nothing elsewhere."""
        if self.machine.state is not _RECONCILING:
            return
        abandon = decide(_RECONCILING, TrainerEvent.RECONCILE_ABANDONED, Facts(origin=self._parts.runtime.origin))
        assert isinstance(abandon, Step)  # its one selector is the origin
        self.machine.take(abandon)

    def _fault(self, work: Work, effect: str, error: BaseException, undo_error: BaseException | None) -> TrainerFaulted:
        faulting = decide(self.machine.state, TrainerEvent.FAIL, Facts())
        if isinstance(faulting, Step):
            self.machine.take(faulting)
        cause = undo_error if undo_error is not None else error
        self.recorder.failed(work.step, TrainerState.FAULTED, effect, cause, held_now(self._parts), work.moved)
        return TrainerFaulted(work.step.event, effect, error, undo_error)

    def _tell(self, outcome: Moved) -> None:
        for callback in self.subscribers:
            try:
                callback(outcome)
            except Exception as error:  # noqa: BLE001 - a subscriber must not change a transition's outcome
                self.callback_errors.append(error)
                self.recorder.noted("a subscriber raised", error=f"{type(error).__name__}: {error}")


def decide_event(state: TrainerState, event: TrainerEvent, facts: Facts) -> Decision | tuple[Step, Step]:
    """The decision on an event; for a reconcile that may begin, both of its moves."""
    if event is TrainerEvent.RECONCILE_ADAPTERS:
        return decide_reconcile(state, facts)
    return decide(state, event, facts)
