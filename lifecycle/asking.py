"""Questions to the trainer and readings of its weights. Nothing here moves the state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lifecycle.adapters.given import as_names
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import AuditError, ConfigError, EventRefused
from lifecycle.ledger import Ledger, held_now
from lifecycle.memory.residue import Residue
from lifecycle.outcome import Explanation
from lifecycle.tally import Tally
from lifecycle.transition.gather import gather
from lifecycle.transition.leasing import open_lease
from lifecycle.transition.parts import Parts, Request
from lifecycle.transition.runner import Runner, decide_event
from lifecycle.transition.watching import Watcher
from lifecycle.weights.leases import WeightLease
from states import (
    ACTOR,
    Facts,
    Read,
    Refusal,
    Source,
    TrainerEvent,
    TrainerState,
    Verdict,
    as_one,
    decide_reads,
)


class Asking:
    """The half of the controller that changes nothing: facts, questions, leases."""

    _parts: Parts
    _runner: Runner

    @property
    def state(self) -> TrainerState:
        """The state the trainer is in."""
        return self._runner.machine.state

    @property
    def active_model(self) -> str:
        """Whose bytes are in live memory: ``actor`` or the tag of another model."""
        return self._parts.runtime.active_model

    @property
    def audit_failures(self) -> tuple[AuditError, ...]:
        """Records that could not be written."""
        return tuple(self._runner.recorder.failures)

    @property
    def callback_errors(self) -> tuple[Exception, ...]:
        """What subscribers raised."""
        return tuple(self._runner.callback_errors)

    def held_bytes(self) -> dict[str, int]:
        """Bytes held now, by place; :attr:`ledger` has them by tag too."""
        return held_now(self._parts).totals()

    @property
    def ledger(self) -> Ledger:
        """Bytes held now by place and tag, and bytes moved in this run by event and kind. A snapshot of now."""
        return Ledger(held_now(self._parts), dict(self._runner.moved))

    @property
    def tally(self) -> Tally:
        """How the events of this run ended, counted by their edges, guards and effects. A snapshot of now."""
        return self._runner.recorder.tally.copy()

    def watch(self, watcher: Watcher) -> None:
        """Tell *watcher* of every event when it begins, and whom it answers with how it ended, refused or failed too.

        Both are called in the event's thread, while it has the turn. What they raise is recorded, not raised.

        Args:
            watcher: called with event and state; answers with a function of the outcome, or of the error.

        Raises:
            ConfigError: it cannot be called.
        """
        if not callable(watcher):
            raise ConfigError(f"{watcher!r} cannot be called; give a function of an event and a state")
        self._runner.watchers.add(watcher)

    @property
    def residue(self) -> Residue:
        """What stayed in use on the device after the last offloads, beyond what the books know."""
        return self._parts.residue.report()

    def facts(self) -> Facts:
        """The record that guards would look at now."""
        with self._runner.turn.looking():
            return gather(self._parts, Request())

    def may(
        self,
        event: TrainerEvent | str,
        *,
        adapters: Iterable[str] = (),
        target: str = ACTOR,
        engines: Iterable[RolloutEngine] = (),
    ) -> Verdict:
        """Whether the event may be sent now. Never raises, changes nothing."""
        try:
            return self.explain(event, adapters=adapters, target=target, engines=engines).may
        except Exception as error:  # noqa: BLE001 - a question never raises
            return Verdict(str(event), False, f"{type(error).__name__}: {error}", "see the cause")

    def explain(
        self,
        event: TrainerEvent | str,
        *,
        adapters: Iterable[str] = (),
        target: str = ACTOR,
        engines: Iterable[RolloutEngine] = (),
    ) -> Explanation:
        """What the event would do now, and why. Changes nothing."""
        if event not in tuple(TrainerEvent):
            raise ConfigError(f"{event!r} is no event; the events are: {', '.join(TrainerEvent)}")
        asked = TrainerEvent(event)
        request = Request(as_names("adapters", adapters), target=target, engines=tuple(engines))
        with self._runner.turn.looking():
            facts = gather(self._parts, request, asked)
            decision = decide_event(self.state, asked, facts)
            told = as_one(*decision) if isinstance(decision, tuple) else decision
            return Explanation(asked, self.state, told, facts)

    def weights(self, holder: str = "weights()", *, groups: Iterable[str] | None = None) -> WeightLease:
        """Lease the actor's newest weights from wherever they are.

        Args:
            holder: who reads; a transition that the lease stops names it.
            groups: content groups, such as ``frozen-base`` or ``adapter/NAME``; all when None.

        Returns:
            A lazy mapping of tensor name to tensor, pinned until it is closed.

        Raises:
            EventRefused: a group does not exist or has no fresh readable source, or a step that is open
                may be writing it.
        """
        wanted = None if groups is None else as_names("content groups", groups)
        with self._runner.turn.of("weights"):
            facts = gather(self._parts, Request(), TrainerEvent.UPDATE_WEIGHTS)
            if self.state is TrainerState.FAULTED:
                because = "the trainer is faulted and its bytes are not verified"
                raise self._refusal("not-faulted", because, "call recover() first", facts)
            reads = tuple(read for read in decide_reads(facts) if wanted is None or read.group in wanted)
            self._refuse_unknown(wanted, facts)
            self._refuse_unreadable(reads, facts)
            self._refuse_half_written(reads, facts)
            return open_lease(self._parts, holder, reads)

    def live(self, holder: str) -> WeightLease:
        """Lease the live weights for an operation that runs on the device, such as a forward pass.

        Raises:
            EventRefused: the trainer is not awake.
        """
        with self._runner.turn.of("live"):
            facts = gather(self._parts, Request(), TrainerEvent.BEGIN_STEP)
            if self.state is not TrainerState.AWAKE:
                raise self._refusal("needs-live-weights", f"{holder} needs live weights, the trainer is {self.state}",
                                    "wake_up() first", facts, "live")  # fmt: skip
            reads = tuple(Read(one.group, Source.LIVE, one.live or one.version) for one in facts.contents)
            return open_lease(self._parts, holder, reads)

    def _refuse_unreadable(self, reads: Sequence[Read], facts: Facts) -> None:
        missing = [read for read in reads if read.source is None]
        if missing:
            because = "; ".join(f"{read.group}: {read.because}" for read in missing)
            raise self._refusal("sources-are-fresh", because, "wake_up(), or backup the actor while it is awake", facts)

    def _refuse_unknown(self, wanted: tuple[str, ...] | None, facts: Facts) -> None:
        groups = [one.group for one in facts.contents]
        unknown = [group for group in wanted or () if group not in groups]
        if unknown:
            because = f"no such content group: {', '.join(unknown)}; there are: {', '.join(groups)}"
            raise self._refusal("groups-exist", because, "name groups that exist", facts)

    def _refuse_half_written(self, reads: Sequence[Read], facts: Facts) -> None:
        """Live bytes that an open step writes are of no version yet."""
        open_groups = facts.touched if facts.step_open else ()
        torn = [read.group for read in reads if read.source is Source.LIVE and read.group in open_groups]
        if torn:
            because = f"a step that is open writes: {', '.join(torn)}"
            raise self._refusal("no-step-in-flight", because, "leave the step() block first", facts)

    def _require_a_step(self, call: str, remedy: str) -> None:
        if self._parts.runtime.step is None:
            facts = gather(self._parts, Request(), TrainerEvent.TRAINED)
            because = f"{call}() ends an open step, and none is open"
            raise self._refusal("a-step-is-open", because, remedy, facts, "trained")

    def _refuse_while_loading(self, call: str) -> None:
        if self._parts.runtime.loads:
            facts = gather(self._parts, Request(), TrainerEvent.TRAINED)
            because, remedy = "the open step loads a checkpoint", "leave the loading_checkpoint() block, it commits"
            raise self._refusal("no-checkpoint-is-loaded", because, remedy, facts, call)

    def _refusal(self, name: str, because: str, remedy: str, facts: Facts, event: str = "weights") -> EventRefused:
        refusal = Refusal(self.state, event, "", (Verdict(name, False, because, remedy),))
        self._runner.recorder.refused(refusal, facts)
        return EventRefused(refusal)
