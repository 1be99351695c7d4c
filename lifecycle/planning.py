"""What is decided before it is done: the order of a hand-over, and whether a clean-up may be done now."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle.cleanup import Cleaned, Deferred
from lifecycle.config import LifecycleConfig
from lifecycle.engines.protocol import RolloutEngine, checked
from lifecycle.handoff import checked_order
from lifecycle.outcome import Moved
from lifecycle.saving import Saving
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Request
from lifecycle.transition.sizes import needs_of
from states.handover import HandoverPlan, HandoverRefusal, plan_handover


class Planning(Saving):
    """The part of the controller that plans hand-overs and clean-ups."""

    config: LifecycleConfig

    def plan_handoff(
        self, engines: Iterable[RolloutEngine], *, order: str | None = None
    ) -> HandoverPlan | HandoverRefusal:
        """How ``handoff(engines)`` would go now, with the predicted peaks of host and device. Changes nothing.

        Ask right after building the controller and the engines, and a run whose hand-over cannot fit does not start.

        Args:
            engines: who would serve.
            order: ``host-peak`` or ``device-peak`` (:class:`states.handover.HandoverOrder`); None takes what fits.

        Raises:
            ConfigError: no such order, or these are no engines.
            EngineError: an engine reports sizes that are none.
        """
        found, wanted = checked(engines), checked_order(order)
        with self._runner.turn.looking():
            return plan_handover(needs_of(self._parts, found), wanted)

    def clean_up(self, reason: str) -> Cleaned | Deferred:
        """Collect garbage and clear the device's cache: now, or once after the commit that leaves nothing paused.

        Safe to call at any time, also from a subscriber. It waits only for a saver that ends the process when paused
        memory is freed.

        Args:
            reason: why, for the record.
        """
        with self._runner.turn.looking():
            answer = self._parts.cleanup.ask(reason)
            if isinstance(answer, Deferred):
                self._runner.recorder.noted("a clean-up was deferred", reason=reason, because=answer.because)
            else:
                self._runner.recorder.noted("a clean-up was done", reasons=list(answer.reasons))
            return answer

    def _start_planning(self) -> None:
        """Catch up on clean-ups after each commit, and say at once if no hand-over at all can fit the budgets."""
        self._runner.subscribers.append(self._catch_up)
        if self.config.host_budget_bytes is None and self.config.device_budget_bytes is None:
            return
        plan = self.plan_handoff(())
        if isinstance(plan, HandoverRefusal):
            self._runner.recorder.noted("no hand-over fits the budgets", because=plan.because, remedy=plan.remedy)

    def _catch_up(self, _: Moved) -> None:
        done = self._parts.cleanup.catch_up()
        if done is not None:
            self._runner.recorder.noted("a deferred clean-up was done", reasons=list(done.reasons))

    def _plan_or_refuse(self, engines: tuple[RolloutEngine, ...], order: str | None) -> HandoverPlan:
        """The plan that a hand-over follows, on the record.

        Raises:
            EventRefused: no order fits the budgets. No step was taken.
        """
        plan = self.plan_handoff(engines, order=order)
        if isinstance(plan, HandoverRefusal):
            facts = gather(self._parts, Request(engines=engines))
            raise self._refusal("the-hand-over-fits", plan.because, plan.remedy, facts, "handoff")
        self._runner.recorder.noted("a hand-over was planned", engines=[one.name for one in engines], **plan.told())
        return plan
