"""The whole turn: trainer to engines and back, planned before its first step, whatever happens inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lifecycle.engines.protocol import WEIGHTS, RolloutEngine, calling
from states import TrainerState
from states.handover import HandoverPlan, HandoverStep, MemoryPeak

_UP = (TrainerState.AWAKE, TrainerState.FAULTED)


class Trainer(Protocol):
    """What a turn needs of the controller."""

    @property
    def state(self) -> TrainerState:
        """The state the trainer is in."""

    def sleep(self) -> object:
        """Quiesce."""

    def offload(self) -> object:
        """Give the device memory back."""

    def wake_up(self) -> object:
        """Take it again."""

    def update_weights(self, engines: Sequence[RolloutEngine]) -> object:
        """Send what the engines lack."""


@contextmanager
def handoff(
    trainer: Trainer,
    engines: Sequence[RolloutEngine],
    plan: Callable[[], HandoverPlan],
    after: Callable[[HandoverStep], None] = lambda _: None,
) -> Iterator[None]:
    """Give the device to the engines for the length of the block.

    The trainer sleeps and, if a target is set, offloads; the engines take their weights memory, get
    what changed, take the rest of their memory. After the block, or if anything fails, the engines release
    and the trainer wakes; the error of the block is the one that is raised.

    Where trainer and engines do not share the device, the engines keep their memory.

    Args:
        trainer: the controller.
        engines: who serves.
        plan: asked once, before the first step: the order of the steps, there and back. If it raises, nothing is done.
        after: told each step that was done, right after it.
    """
    turn = _Turn(trainer, engines, plan(), after)
    try:
        turn.go()
        yield
    except BaseException as error:
        failures = turn.come_back()
        for second in failures:
            error.add_note(f"on the way back: {type(second).__name__}: {second}")
        if isinstance(error, Exception) and failures and not isinstance(failures[0], Exception):
            raise failures[0] from error
        raise
    failures = turn.come_back()
    if failures:
        for second in failures[1:]:
            failures[0].add_note(f"and then: {type(second).__name__}: {second}")
        raise failures[0]


class _Turn:
    """One hand-over under way, and what it has asked the engines to take."""

    def __init__(
        self,
        trainer: Trainer,
        engines: Sequence[RolloutEngine],
        plan: HandoverPlan,
        after: Callable[[HandoverStep], None],
    ) -> None:
        self._trainer, self._engines, self._plan, self._after = trainer, engines, plan, after
        self._by_name = {one.name: one for one in engines}
        self._asked: dict[str, set[str]] = {}
        self._arrived = False

    def go(self) -> None:
        """Every step of the way there."""
        for step in self._plan.there.steps:
            if step.engine:
                self._asked.setdefault(step.engine, set()).update(step.tags)  # from now on it may have them
                with calling(step.engine, f"resume({', '.join(step.tags)}) failed"):
                    self._by_name[step.engine].resume(step.tags)
            elif step.does == "update_weights":
                self._trainer.update_weights(self._engines)
            elif step.does == "offload":
                self._trainer.offload()
            else:
                self._trainer.sleep()
            self._after(step)
        self._arrived = True

    def come_back(self) -> list[BaseException]:
        """The engines release and the trainer wakes; each is tried whatever the others do, and if one is interrupted.

        Before the engines were served they put back what they took for it, but for weights that were to stay on the
        device, and nothing that they had before.

        Returns:
            What they raised, interrupts first.
        """
        failures: list[BaseException] = []
        asleep: list[BaseException] = []
        for step in self._plan.back.steps:
            if step.engine:
                self._release(step, failures)
            elif self._trainer.state not in _UP:
                self._try(self._trainer.wake_up, asleep, step)
        has_no_room = asleep and isinstance(asleep[0], Exception) and self._trainer.state not in _UP
        if has_no_room and self._makes_room(failures):
            asleep.clear()
            self._try(self._trainer.wake_up, asleep)
        return sorted(failures + asleep, key=lambda one: isinstance(one, Exception))

    def _release(self, step: HandoverStep, failures: list[BaseException]) -> None:
        tags = tuple(tag for tag in step.tags if self._arrived or tag in self._asked.get(step.engine, ()))
        if not tags:
            return
        self._try(self._releasing(step.engine, tags, discards=step.discards), failures, step)

    def _releasing(self, engine: str, tags: tuple[str, ...], *, discards: bool) -> Callable[[], None]:
        """Only an engine that said that it discards is told to."""
        how = {"discard": True} if discards else {}

        def release() -> None:
            with calling(engine, f"release({', '.join(tags)}) failed"):
                self._by_name[engine].release(tags, **how)

        return release

    def _makes_room(self, failures: list[BaseException]) -> bool:
        """Whether engines have room to give that the trainer did not find: the weights that they were to keep."""
        back = self._plan.back
        if not back.keeps_weights:
            return back.memory_peak is MemoryPeak.DEVICE  # by now they have given everything
        for one in self._plan.sizes.engines:
            if one.may_keep_weights:
                self._try(self._releasing(one.name, (WEIGHTS,), discards=one.discards), failures)
        return True

    def _try(self, call: Callable[[], object], failures: list[BaseException], step: HandoverStep | None = None) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the others and the trainer still have to be seen to
            failures.append(error)
        else:
            if step is not None and self._arrived:
                self._after(step)
