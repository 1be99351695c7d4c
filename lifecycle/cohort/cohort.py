"""``Cohort``: several trainers on one device that take turns under one order, with one set of books."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from lifecycle.cohort.driving import Drive
from lifecycle.cohort.errors import CohortRefused
from lifecycle.cohort.handover import CohortHandover
from lifecycle.cohort.members import Members
from lifecycle.cohort.outcome import CohortMoved, CohortOutcome, CohortUnchanged, CohortUsage
from lifecycle.controller import TrainerLifecycle
from lifecycle.engines.protocol import RolloutEngine, checked
from lifecycle.transition.turn import Turn
from states import TrainerState
from states.cohort import CohortPlan, CohortRefusal, plan_turn


class Cohort:
    """Trainers that share one saver and take turns on its device.

    A turn is planned before its first step, from where every member is at that moment; nothing is remembered from turn
    to turn. Its steps are the members' own events: their guards decide, their logs record. The members own their
    memory; the cohort owns none.

    Args:
        members: name to life cycle. All were built with one saver object and differ in ``LifecycleConfig(model=...)``.
            The order of the arguments is the order in which they give memory back, and take it.

    Raises:
        ConfigError: they cannot be one cohort: no members, two savers, one model name or one tag twice, or some that
            act with other ranks and some that do not.
    """

    def __init__(self, /, **members: TrainerLifecycle) -> None:
        self._members = Members(members)
        self._turn = Turn(max(one.config.event_timeout_s for one in members.values()))
        self._turns = 0

    @property
    def members(self) -> Mapping[str, TrainerLifecycle]:
        """The life cycles by name, in the declared order."""
        return MappingProxyType({name: one.trainer for name, one in self._members.by_name.items()})

    @property
    def states(self) -> Mapping[str, TrainerState]:
        """The state of every member, asked now."""
        return self._members.states()

    def usage(self) -> CohortUsage:
        """What every member holds in the saver; the sum with that of other tenants is ``saver.usage()``."""
        return self._members.usage()

    def plan(self, *wanted: str) -> CohortPlan | CohortRefusal:
        """How ``awake(*wanted)`` would go now: its steps, with the predicted bytes of each. Changes nothing.

        Raises:
            ConfigError: a name is no member's.
            BusyError: another thread's turn or event did not end in time.
        """
        names = self._members.named(wanted)
        with self._turn.looking():
            return plan_turn(self._members.look(), names, self._members.levels())

    def awake(self, *wanted: str) -> CohortOutcome:
        """Exactly these members are awake afterwards; the others have given their memory back.

        Returns:
            :class:`CohortMoved`, or :class:`CohortUnchanged` when it was so already.

        Raises:
            ConfigError: a name is no member's.
            ReentrantEvent: this thread is inside a turn, or inside an event of a member.
            BusyError: another thread's turn did not end in time.
            CohortRefused: no order fits the budgets, or a member is faulted. Nothing was done.
            CohortFailed: a member's event was refused or failed. What was done before was undone.
        """
        names = self._members.named(wanted)
        return self._take(f"awake({', '.join(names)})", names)

    def sleep(self) -> CohortOutcome:
        """Nobody is awake afterwards; weights stay on the device. Raises as :meth:`awake` does."""
        return self._take("sleep()", (), offloads=False)

    def offload(self) -> CohortOutcome:
        """Everybody has given the device memory back, as far as an offload target says so; raises as :meth:`awake`."""
        return self._take("offload()", ())

    @contextmanager
    def turn(self, *wanted: str) -> Iterator[CohortOutcome]:
        """Inside the block exactly these members are awake, and no other thread takes a turn.

        At its end they stay where they are: the next turn moves only who has to be elsewhere. A member that was driven
        by itself meanwhile is named in the log.

        Raises:
            LifecycleError: on entering, as :meth:`awake`.
        """
        names = self._members.named(wanted)
        call = f"turn({', '.join(names)})"
        with self._mine(call):
            outcome = self._drive(call, names)
            expected = self._members.states()
            try:
                yield outcome
            finally:
                self._tell_moved(call, expected)

    @contextmanager
    def handoff(
        self, engines: Iterable[RolloutEngine], *, sender: str | None = None, memory_peak: str | None = None
    ) -> Iterator[None]:
        """The whole turn to the engines and back: inside the block all members have given their memory back.

        The members are one trainer to the engines: their bytes are added, and the order is that of docs/handover.md.
        After the block, or if anything fails, the engines release and the members that were awake before wake.

        Args:
            engines: who serves.
            sender: the member that they are sent; None is the first.
            memory_peak: ``"host"`` or ``"device"``; None takes that of the sender's configuration, or what fits.

        Raises:
            ConfigError: no such member, no such memory, or these are no engines.
            CohortRefused: on entering, when no order fits, or a member is faulted. No step was taken.
            LifecycleError: as :meth:`awake` and :meth:`TrainerLifecycle.handoff`. Everything was put back.
        """
        found, names = checked(engines), self._members.named(self._members.by_name if sender is None else (sender,))
        call = f"handoff({', '.join(one.name for one in found)})"
        with self._mine(call):
            turn = CohortHandover(self._members, names[0], found, self._within(call))
            with turn.of(call, memory_peak):
                yield

    def _within(self, call: str) -> Callable[[tuple[str, ...], bool], CohortOutcome]:
        return lambda names, offloads: self._drive(call, names, offloads=offloads)

    def _take(self, call: str, names: tuple[str, ...], *, offloads: bool = True) -> CohortOutcome:
        with self._mine(call):
            return self._drive(call, names, offloads=offloads)

    @contextmanager
    def _mine(self, call: str) -> Iterator[None]:
        """Hold the turn.

        Raises:
            ReentrantEvent: this thread is inside a turn, or inside an event of a member.
            BusyError: another thread's turn did not end in time.
        """
        for one in self._members.by_name.values():
            one.refuse_inside_an_event(call)
        with self._turn.of(call):
            yield

    def _drive(self, call: str, names: tuple[str, ...], *, offloads: bool = True) -> CohortOutcome:
        """Plan from what is, and take the steps.

        Raises:
            CohortRefused: it cannot be planned.
            CohortFailed: a step was refused or failed.
        """
        there = self._members.look()
        plan = plan_turn(there, names, self._members.levels(), offloads=offloads)
        self._turns += 1
        if isinstance(plan, CohortRefusal):
            self._note("a turn of the cohort was refused", call, because=plan.because, remedy=plan.remedy)
            raise CohortRefused(call, plan)
        if plan.is_empty:
            self._note("a turn of the cohort changed nothing", call)
            return CohortUnchanged(call, self._members.states())
        self._note("a turn of the cohort was planned", call, **plan.told())
        drive = Drive(self._members, call, plan, {one.name: one.state for one in there})
        try:
            outcomes = drive.go()
        except BaseException as error:
            self._note("a turn of the cohort failed", call, steps=drive.seen, error=f"{type(error).__name__}: {error}")
            raise
        self._note("a turn of the cohort has gone", call, steps=drive.seen)
        return CohortMoved(call, plan, outcomes)

    def _tell_moved(self, call: str, expected: Mapping[str, TrainerState]) -> None:
        states = self._members.states()
        moved = {name: str(state) for name, state in states.items() if state is not expected[name]}
        if moved:
            self._note("members were driven by themselves while a turn of the cohort was open", call, moved=moved)

    def _note(self, what: str, call: str, **keys: object) -> None:
        """The same remark in the log of every member, under the number of the turn."""
        for one in self._members.by_name.values():
            one.note(what, {"turn": self._turns, "call": call, "states": self._members.states(), **keys})
