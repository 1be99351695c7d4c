"""What is decided before it is done: the order of a hand-over, and whether a clean-up may be done now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lifecycle.cleanup import Cleaned, Deferred
from lifecycle.config import LifecycleConfig, checked_peak
from lifecycle.engines.protocol import RolloutEngine, checked
from lifecycle.handoff import Trainer, handoff
from lifecycle.outcome import Moved
from lifecycle.saving import Saving
from lifecycle.transition.building import heard
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Request
from lifecycle.transition.ranks import Ranks
from lifecycle.transition.sizes import Levels, config_of, sizes_of
from states.handover import HandoverPlan, HandoverRefusal, HandoverStep, plan_handoff


class Planning(Saving):
    """The part of the controller that plans hand-overs and clean-ups."""

    config: LifecycleConfig
    _ranks: Ranks

    def plan_handoff(
        self, engines: Iterable[RolloutEngine], *, memory_peak: str | None = None
    ) -> HandoverPlan | HandoverRefusal:
        """How ``handoff(engines)`` would go now: its steps, with the predicted bytes of each. Changes nothing.

        Ask right after building the controller and the engines, and a run whose hand-over cannot fit does not start.

        Args:
            engines: who would serve.
            memory_peak: ``"host"`` or ``"device"``; None takes that of the configuration, or what fits.

        Raises:
            ConfigError: no such memory, or these are no engines.
            EngineError: an engine reports sizes that are none.
        """
        found, wanted = checked(engines), checked_peak(memory_peak)
        with self._runner.turn.looking():
            sizes = sizes_of(self._parts, found)
            return plan_handoff(config_of(self._parts, sizes, wanted), sizes)

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

    @contextmanager
    def _turn_to(self, trainer: Trainer, engines: tuple[RolloutEngine, ...], memory_peak: str | None) -> Iterator[None]:
        """A hand-over; afterwards what was held after each of its steps is recorded beside what was predicted.

        Raises:
            EventRefused: no order fits the budgets. No step was taken.
        """
        plan = self._plan_or_refuse(engines, memory_peak)
        levels, seen = Levels(self._parts, engines), list[dict[str, object]]()

        def after(step: HandoverStep) -> None:
            host_bytes, device_bytes = levels.after(step.engine)
            held = {"held_host_bytes": host_bytes, "held_device_bytes": device_bytes}
            seen.append({"step": str(step), "host_bytes": step.host_bytes, "device_bytes": step.device_bytes, **held})

        try:
            with handoff(trainer, engines, lambda: plan, after):
                yield
        finally:
            if seen:
                self._runner.recorder.noted("a hand-over has gone", steps=seen)

    def _plan_or_refuse(self, engines: tuple[RolloutEngine, ...], memory_peak: str | None) -> HandoverPlan:
        """The plan that a hand-over follows, on the record. It is made of local bytes: ranks agree on it before a step.

        Raises:
            EventRefused: no order fits the budgets. No step was taken.
            RanksFailed: none fits those of another rank.
            RanksDisagree: ranks would take other steps, as other orders fit them; ``memory_peak=`` names one for all.
        """
        with heard(self._ranks) as found:
            plan = self.plan_handoff(engines, memory_peak=memory_peak)
            if isinstance(plan, HandoverRefusal):
                facts = gather(self._parts, Request())  # engines may be asked by all ranks together only
                raise self._refusal("the-hand-over-fits", plan.because, plan.remedy, facts, "handoff")
            found.result = plan.order
        self._runner.recorder.noted("a hand-over was planned", engines=[one.name for one in engines], **plan.told())
        return plan
