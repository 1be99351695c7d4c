"""One member of a cohort: a trainer's life cycle, and what the cohort looks at of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from lifecycle.controller import TrainerLifecycle
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import ReentrantEvent
from lifecycle.outcome import Outcome
from lifecycle.saver import MemorySaver, TagInfo, Usage
from lifecycle.transition.ranks import Alone
from lifecycle.transition.sizes import sizes_of
from states import TrainerEvent, TrainerState
from states.cohort import Member


class CohortMember:
    """A trainer under the name that the cohort gave it.

    Args:
        name: of the member.
        trainer: its life cycle.

    Attributes:
        parts: what the trainer's effects touch. The cohort only looks at them.
        ranks: the other ranks.
        is_one_of_many: whether there are any.
    """

    def __init__(self, name: str, trainer: TrainerLifecycle) -> None:
        self.name = name
        self.trainer = trainer
        self.parts = trainer._parts  # noqa: SLF001 - the cohort looks where the controller's own halves look
        self._runner = trainer._runner  # noqa: SLF001 - the same
        self.ranks = trainer._ranks  # noqa: SLF001 - the same
        self.is_one_of_many = not isinstance(self.ranks, Alone)

    @property
    def state(self) -> TrainerState:
        """The state that it is in. Asked each time, never remembered."""
        return self.trainer.state

    @property
    def saver(self) -> MemorySaver:
        """Whose regions its memory lies in."""
        return self.parts.saver

    def tags(self) -> frozenset[str]:
        """The saver's tags that are its own."""
        split = self.parts.layout.tags()
        return frozenset(info.tag for info in (*split.weights, *split.scratch))

    def refuse_inside_an_event(self, call: str) -> None:
        """A turn is not taken from inside a member's own event, such as by its subscriber.

        Raises:
            ReentrantEvent: this thread is inside one.
        """
        if self._runner.turn.is_mine():
            raise ReentrantEvent(f"{call} was called from inside an event of {self.name}; call it after that has ended")

    def look(self) -> Member:
        """Where it is and what its events give and take from there.

        Raises:
            BusyError: another thread's event did not end in time.
        """
        with self._runner.turn.looking():
            held = sizes_of(self.parts, ()).trainer
            if self.state is TrainerState.SLEEPING:  # its weights are not paused: there are no backups to give back
                held = replace(held, returned_bytes=self.parts.gradients.kept_bytes())
            return Member(name=self.name, state=self.state, held=held)

    def copies_bytes(self) -> int:
        """Host memory of its named copies and kept gradients."""
        return self.parts.snapshots.host_bytes() + self.parts.gradients.kept_bytes()

    def usage(self, tags: Mapping[str, TagInfo]) -> Usage:
        """What it holds in the saver.

        Args:
            tags: the saver's books, of whomever.
        """
        own = {tag: tags[tag] for tag in self.tags() & tags.keys()}
        on_disk = self.trainer.ledger.held.saver_disk
        return Usage(
            sum(info.size_bytes for info in own.values() if not info.paused),
            sum(info.backup_bytes for info in own.values()),
            sum(on_disk.get(tag, 0) for tag in own),
        )

    def send(self, event: TrainerEvent) -> Outcome:
        """Send one of its own events: its guards decide, its log records.

        Raises:
            LifecycleError: whatever the event raises.
        """
        calls = {
            TrainerEvent.SLEEP: self.trainer.sleep,
            TrainerEvent.OFFLOAD: self.trainer.offload,
            TrainerEvent.WAKE_UP: self.trainer.wake_up,
        }
        return calls[event]()

    def note(self, what: str, keys: Mapping[str, object]) -> None:
        """Put a remark into its log."""
        self._runner.recorder.noted(what, **keys)

    def verified(
        self, turn: AbstractContextManager[None], engines: tuple[RolloutEngine, ...]
    ) -> AbstractContextManager[None]:
        """The turn to the engines; those that could not be asked at the push for its probes are asked once they can."""
        return self.trainer._verified(turn, engines)  # noqa: SLF001 - the controller's own hand-over does the same
