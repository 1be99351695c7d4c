"""The way in for calls of the user's on snapshots: gathers, asks, records. It decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from lifecycle.errors import EventRefused
from lifecycle.transition.copies import host_room_bytes
from lifecycle.transition.gather import gather
from lifecycle.transition.lending import lend_again
from lifecycle.transition.parts import Parts, Request
from lifecycle.transition.records import changed_versions
from lifecycle.transition.runner import Runner
from lifecycle.weights.stored import Plan
from states import Facts, Refusal, TrainerEvent
from states.guards_snapshots import SnapshotAsk, SnapshotCall, decide_snapshot_call


class SnapshotGate:
    """Takes a call through decision, deed and record, like an event that moves no state.

    Effects do not come here: they work on :class:`lifecycle.weights.tags.Tags` inside their own event. A call from
    inside an event of the same thread is refused like any other event; only looking is allowed there.

    Args:
        parts: the trainer.
        runner: whose turn it is.
    """

    def __init__(self, parts: Parts, runner: Runner) -> None:
        self._parts = parts
        self._runner = runner

    def perform(self, call: SnapshotCall, tag: str, plan: Callable[[], Plan], do: Callable[[], int]) -> int:
        """Decide, do, count and record.

        Raises:
            EventRefused: it may not be done now. Nothing changed.
            ReentrantEvent: this thread is inside an event.
            BusyError: another thread's event did not end in time.
        """
        with self._runner.turn.of(call):
            self._ask(call, tag, Plan())  # first whether bytes may be looked at at all: a plan may compare them
            self._ask(call, tag, plan())
            store = self._parts.snapshots
            before = dict(store.versions(tag)) if store.has(tag) else {}
            moved = do()
            self._runner.count(call, {"snapshot": moved})
            lend_again(self._parts)
            held = dict(store.versions(tag)) if store.has(tag) else {}
            self._runner.recorder.noted(call, tag=tag, bytes=moved, versions=changed_versions(before, held))
            return moved

    @contextmanager
    def looking(self, tag: str) -> Iterator[None]:
        """Hold the turn for a look, so that no transition takes away what is about to be handed out.

        Raises:
            EventRefused: the trainer is faulted.
            BusyError: another thread's event did not end in time.
        """
        with self._runner.turn.looking():
            self._ask(SnapshotCall.GET, tag, Plan())
            yield

    def _ask(self, call: SnapshotCall, tag: str, plan: Plan) -> None:
        asked = SnapshotAsk(self._runner.machine.state, call, tag, plan.puts, plan.whole, plan.copies, plan.memory)
        facts = self._facts(plan.need_bytes)
        decision = decide_snapshot_call(asked, facts)
        if isinstance(decision, Refusal):
            self._runner.recorder.refused(decision, facts)
            raise EventRefused(decision)

    def _facts(self, need_bytes: int) -> Facts:
        facts = gather(self._parts, Request(), TrainerEvent.UPDATE_WEIGHTS)
        if not need_bytes:
            return facts
        return replace(facts, copy_need_bytes=need_bytes, host_free_bytes=host_room_bytes(self._parts))
