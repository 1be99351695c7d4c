"""A cohort's hand-over: to the engines all members are one trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lifecycle.cohort.errors import CohortRefused
from lifecycle.cohort.members import Members
from lifecycle.config import checked_peak
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.handoff import handoff
from lifecycle.transition.building import heard
from lifecycle.transition.sizes import Levels, config_of, sizes_of
from states import TrainerState
from states.cohort import joint_bytes
from states.handover import HandoverPlan, HandoverRefusal, HandoverStep, plan_handoff
from states.handover_needs import MemoryPeak


class CohortHandover:
    """One turn to the engines. It is a :class:`lifecycle.handoff.Trainer` that sleeps, offloads and wakes them all.

    Args:
        members: the members.
        sender: whose weights the engines are sent.
        engines: who serves.
        drive: drives the members to a set that is awake; the others offload, or only sleep.
    """

    def __init__(
        self,
        members: Members,
        sender: str,
        engines: tuple[RolloutEngine, ...],
        drive: Callable[[tuple[str, ...], bool], object],
    ) -> None:
        self._members = members
        self._sender = members.by_name[sender]
        self._engines = engines
        self._drive = drive
        self._waking = tuple(name for name, state in members.states().items() if state is TrainerState.AWAKE)

    @contextmanager
    def of(self, call: str, memory_peak: str | None) -> Iterator[None]:
        """The block in which the engines serve.

        Args:
            call: what was asked, for the log.
            memory_peak: the only order that may be taken; None takes that of the sender's configuration, or what fits.

        Raises:
            ConfigError: there is no such memory.
            CohortRefused: no order fits. No step was taken.
        """
        plan = self._plan_or_refuse(call, checked_peak(memory_peak))
        levels, seen = Levels(self._sender.parts, self._engines), list[dict[str, object]]()

        def after(step: HandoverStep) -> None:
            host_bytes, device_bytes = levels.after(step.engine)
            held = {"held_host_bytes": host_bytes + self._others_copies(), "held_device_bytes": device_bytes}
            seen.append({"step": str(step), "host_bytes": step.host_bytes, "device_bytes": step.device_bytes, **held})

        try:
            with self._sender.verified(handoff(self, self._engines, lambda: plan, after), self._engines):
                yield
        finally:
            self._note("a hand-over of the cohort has gone", call, steps=seen)

    @property
    def state(self) -> TrainerState:
        """``awake`` when all are awake that are to be, ``faulted`` when one is, else ``sleeping``."""
        states = self._members.states()
        if TrainerState.FAULTED in states.values():
            return TrainerState.FAULTED
        up = all(states[name] is TrainerState.AWAKE for name in self._waking)
        return TrainerState.AWAKE if up else TrainerState.SLEEPING

    def sleep(self) -> object:
        """Nobody is awake."""
        return self._drive((), False)

    def offload(self) -> object:
        """Everybody has given the device memory back."""
        return self._drive((), True)

    def wake_up(self) -> object:
        """Those that were awake before are awake."""
        return self._drive(self._waking, True)

    def update_weights(self, engines: Sequence[RolloutEngine]) -> object:
        """Send what the engines lack of the sender."""
        return self._sender.trainer.update_weights(engines)

    def _plan_or_refuse(self, call: str, memory_peak: MemoryPeak | None) -> HandoverPlan:
        """The order, on the record of every member. It is made of local bytes: ranks agree on it before a step.

        Raises:
            CohortRefused: none fits.
            RanksFailed, RanksDisagree: none fits those of another rank, or another one does.
        """
        with heard(self._sender.ranks) as found:
            plan = self._plan(memory_peak)
            if isinstance(plan, HandoverRefusal):
                self._note("a hand-over of the cohort was refused", call, because=plan.because, remedy=plan.remedy)
                raise CohortRefused(call, plan)
            found.result = plan.order
        self._note("a hand-over of the cohort was planned", call, sender=self._sender.name, **plan.told())
        return plan

    def _plan(self, memory_peak: MemoryPeak | None) -> HandoverPlan | HandoverRefusal:
        own = sizes_of(self._sender.parts, self._engines)
        joint = replace(joint_bytes(self._members.look(), self._waking), base_bytes=own.trainer.base_bytes)
        sizes = replace(own, trainer=joint, host_held_bytes=own.host_held_bytes + self._others_copies())
        asked = config_of(self._sender.parts, sizes, memory_peak)
        config = replace(
            asked,
            host_budget_bytes=self._members.host_budget(asked.host_budget_bytes),
            device_budget_bytes=self._members.device_budget(asked.device_budget_bytes),
        )
        return plan_handoff(config, sizes)

    def _others_copies(self) -> int:
        """Host memory of copies that the sender's own account does not know."""
        return self._members.copies_bytes() - self._sender.copies_bytes()

    def _note(self, what: str, call: str, **keys: object) -> None:
        for one in self._members.by_name.values():
            one.note(what, {"call": call, **keys})
