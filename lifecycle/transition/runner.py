"""Decide, act, commit; undo in reverse. The one place where effects run and the state moves."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lifecycle.errors import DigestMismatch, EventRefused, LifecycleError, RanksError, TrainerFaulted, TransitionFailed
from lifecycle.ledger import held_now
from lifecycle.outcome import Moved, Outcome, Unchanged
from lifecycle.transition.effects import EFFECTS
from lifecycle.transition.gather import gather
from lifecycle.transition.outside import settle
from lifecycle.transition.parts import Parts, Request, Undo, UndoFailed, Work
from lifecycle.transition.ranks import Ranks
from lifecycle.transition.records import ERRORS_KEPT, Recorder
from lifecycle.transition.turn import Turn
from lifecycle.transition.watching import Watchers
from lifecycle.uninterrupted import Held, uninterrupted
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
_AGREE = "agree"
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
        ranks: the other ranks, or :class:`~lifecycle.transition.ranks.Alone`.

    Attributes:
        moved: bytes that were moved in this run, by (event or call, kind).
    """

    def __init__(self, parts: Parts, machine: TrainerMachine, recorder: Recorder, ranks: Ranks) -> None:
        self._parts = parts
        self.machine = machine
        self.recorder = recorder
        self._ranks = ranks
        self.turn = Turn(parts.config.event_timeout_s)
        self.effects = dict(EFFECTS)
        self.moved: Counter[tuple[str, str]] = Counter()
        self.subscribers: list[Callable[[Moved], None]] = []
        self.callback_errors: deque[Exception] = deque(maxlen=ERRORS_KEPT)
        self.watchers = Watchers(self._subscriber_raised)

    def send(self, event: TrainerEvent, request: Request) -> Outcome:
        """One event, to completion.

        Raises:
            EventRefused: a guard does not hold; nothing changed.
            TransitionFailed: an effect failed; everything was undone.
            TrainerFaulted: an undo failed, or bytes are wrong.
            AuditError: the log could not be written and the configuration says stop.
            ReentrantEvent: it is sent from inside an event of the same thread; nothing changed.
            BusyError: another thread's event did not end in time; nothing changed.
            RanksError: ranks disagree, or one failed or was lost; the kind says what became of the event.
        """
        with self.turn.of(event):
            return self.watchers.watched(event, self.machine.state, lambda: self._run(event, request))

    def _run(self, event: TrainerEvent, request: Request) -> Outcome:
        facts, decision = self._decide(event, request)
        if isinstance(decision, Refusal):
            self.recorder.refused(decision, facts)
            raise EventRefused(decision)
        if isinstance(decision, NoChange):
            self.recorder.unchanged(decision, facts)
            return Unchanged(event, decision.state)
        if isinstance(decision, Step):
            return self._act(Work(decision, facts, request), decision, None)
        entering, leaving = decision
        self._parts.runtime.origin = entering.state
        try:
            return self._act(Work(as_one(entering, leaving), facts, request), leaving, entering)
        finally:
            self._parts.runtime.origin = None

    def _decide(self, event: TrainerEvent, request: Request) -> tuple[Facts, Decision | tuple[Step, Step]]:
        """The facts, and the decision of all ranks. One that cannot decide does not leave the others waiting."""
        decision = None
        while decision is None:
            try:
                self._ranks.begins(self._parts.adapters)
                settle(self._parts, self.recorder, self.machine.state)
                facts = self._ranks.facts(event, gather(self._parts, request, event))
            except BaseException as error:
                self._ranks.undecided(error)
                raise
            state = self.machine.state
            try:
                decision = self._ranks.decided(event, state, facts, decide_event(state, event, facts))
            except RanksError as error:
                if error.has_begun:  # those ranks go on above the ids of this event, so this one has to
                    self._parts.versions.pass_over(self._parts.versions.newest)
                raise
        return facts, decision

    def _act(self, work: Work, leaving: Step, entering: Step | None) -> Outcome:
        """Act and commit: *entering* is the first move of a reconcile, *leaving* the one that commits.

        Signals come while an effect runs, and nowhere else: one in the midst of an undo, or between the state and
        what is committed with it, would leave a trainer that is nowhere.
        """
        with uninterrupted() as signals:
            return self._acted(work, leaving, entering, signals)

    def _acted(self, work: Work, leaving: Step, entering: Step | None, signals: Held) -> Outcome:
        started, source, newest = time.perf_counter(), work.step.state, self._parts.versions.newest
        moves = {_COMMIT: leaving} if entering is None else {_ENTER: entering, _COMMIT: leaving}
        try:
            self._begin(work)
            self._perform(work, source, moves, signals)
        except BaseException:
            self._parts.versions.pass_over(newest)
            raise
        finally:
            self.count(work.step.event, work.moved)
        if _left_out(work):
            self._parts.versions.pass_over(newest)
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
            with signals.let_through():
                self._tell(outcome)
        return outcome

    def _begin(self, work: Work) -> None:
        try:
            self.recorder.began(work.step, work.facts)
        except BaseException as error:
            self._told(error)
            with suppress(LifecycleError):
                self._ranks.undone()
            raise

    def count(self, event: str, moved: Mapping[str, int]) -> None:
        """Add bytes to what the run has moved.

        Args:
            event: the event, or the call, that moved them; also one that failed.
            moved: bytes by kind.
        """
        for kind, count_bytes in moved.items():
            if count_bytes:
                self.moved[str(event), kind] += count_bytes

    def _perform(self, work: Work, source: TrainerState, moves: Mapping[str, Step], signals: Held) -> None:
        """Run the effects and commit; whatever goes wrong before the state has moved is undone."""
        done: list[_Done] = []
        first = (_ENTER,) if _ENTER in moves else ()
        for effect in (*first, *work.step.effects, _AGREE, _COMMIT):
            try:
                if effect in moves:
                    self.machine.take(moves[effect])
                elif effect == _AGREE:
                    self._ranks.acted(result=_left_out(work))
                else:
                    with signals.let_through():
                        undo = self.effects[Effect(effect)](self._parts, work)
                    done.append(_Done(effect, undo))
            except (DigestMismatch, UndoFailed) as error:
                raise self._stuck(work, effect, error) from error
            except BaseException as error:
                cause = error if effect == _AGREE else self._told(error)
                self._undo(work, source, effect, done, cause)
                if not isinstance(error, Exception):
                    raise
                raise TransitionFailed(work.step.event, source, effect, cause, work.engines) from error

    def _undo(self, work: Work, source: TrainerState, effect: str, done: list[_Done], error: BaseException) -> None:
        failed: BaseException | None = None
        where = effect
        for one in reversed(done):
            try:
                one.undo()
            except BaseException as undo_error:  # noqa: BLE001 - also an interrupt: the trainer is faulted
                failed, where = undo_error, one.effect
                break
        try:
            self._ranks.undone(failed)
        except LifecycleError as others:
            failed = others if failed is None else failed
        if failed is not None:
            raise self._fault(work, where, error, failed) from error
        self._abandon()
        self.recorder.failed(work.step, source, effect, error, held_now(self._parts), work.moved, work.engines)

    def _told(self, error: BaseException) -> BaseException:
        """Tell the other ranks what failed here. Returns what all of them raise; without any, the error itself."""
        try:
            self._ranks.acted(error)
        except LifecycleError as joint:
            joint.__cause__ = error
            return joint
        return error

    def _stuck(self, work: Work, effect: str, error: DigestMismatch | UndoFailed) -> TrainerFaulted:
        """Nothing can be undone here: bytes are wrong, or an effect could not take back what it had done."""
        self._told(error)
        with suppress(LifecycleError):
            self._ranks.undone(error)
        if isinstance(error, UndoFailed):
            return self._fault(work, effect, error.cause, error.undo_error)
        return self._fault(work, effect, error, None)

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
                self._subscriber_raised(error)

    def _subscriber_raised(self, error: Exception) -> None:
        self.callback_errors.append(error)
        self.recorder.noted("a subscriber raised", error=f"{type(error).__name__}: {error}")


def _left_out(work: Work) -> str:
    """The adapters that a partial reconcile left out: every rank must have left out the same."""
    failed = work.details.get("failed", ())
    return ", ".join(one.name for one in failed) if isinstance(failed, tuple) else ""


def decide_event(state: TrainerState, event: TrainerEvent, facts: Facts) -> Decision | tuple[Step, Step]:
    """The decision on an event; for a reconcile that may begin, both of its moves."""
    if event is TrainerEvent.RECONCILE_ADAPTERS:
        return decide_reconcile(state, facts)
    return decide(state, event, facts)
