"""The controller that a training loop embeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, nn
from torch.optim import Optimizer

from lifecycle import attach
from lifecycle.adapters.protocol import AdapterHost
from lifecycle.audit import MemoryAudit
from lifecycle.config import LifecycleConfig
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import AuditError, EventRefused
from lifecycle.gather import gather
from lifecycle.handoff import handoff
from lifecycle.leases import WeightLease
from lifecycle.models import keep_model
from lifecycle.outcome import Explanation, Moved, Outcome
from lifecycle.parts import Request
from lifecycle.process_groups import ProcessGroups
from lifecycle.records import Audit, Recorder
from lifecycle.runner import Runner, decide_event, held_bytes
from lifecycle.saver import MemorySaver
from lifecycle.snapshots import SnapshotStore
from lifecycle.steps import TrainingStep
from lifecycle.sync import open_lease
from states import (
    ACTOR,
    Facts,
    Read,
    Refusal,
    Source,
    TrainerEvent,
    TrainerMachine,
    TrainerState,
    Verdict,
    as_one,
    decide_reads,
)


class TrainerLifecycle:
    """Drives one trainer's memory through its states, embedded in the training loop.

    Building it lays memory out once: base, slots, moments and gradients move into regions of the
    saver (``tensor.data`` is repointed, the objects stay), so that addresses never change again.

    Args:
        config: what kind of run this is.
        saver: the memory saver; one a process, shared by its trainers and engines.
        model: the module that trains (with adapters: the PEFT model that they sit on).
        optimizer: one optimizer, one a slot by slot number, several, or None.
        adapters: the adapter slots; None in a full-parameter run.
        snapshots: named host copies; a new store when None.
        audit: where records go; memory when None.
        groups: the process groups that sleep may tear down.
        initial_state: where the trainer's bytes are now. Declared, never defaulted.

    Raises:
        ConfigError: the parts do not fit together, or *initial_state* is not what the saver says.
        SaverError: there is no room to lay the memory out.
    """

    def __init__(
        self,
        config: LifecycleConfig,
        *,
        saver: MemorySaver,
        model: nn.Module,
        optimizer: Optimizer | Mapping[int, Optimizer] | Sequence[Optimizer] | None,
        adapters: AdapterHost | None,
        snapshots: SnapshotStore | None = None,
        audit: Audit | None = None,
        groups: ProcessGroups | None = None,
        initial_state: TrainerState,
    ) -> None:
        self.config = config
        self.snapshots = snapshots if snapshots is not None else SnapshotStore()
        self._parts = attach.build_parts(config, saver, model, optimizer, adapters, self.snapshots, groups)
        attach.lay_out(self._parts, TrainerState(initial_state))
        recorder = Recorder(audit if audit is not None else MemoryAudit(), config)
        self._runner = Runner(self._parts, TrainerMachine(TrainerState(initial_state)), recorder)

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

    # Memory

    def sleep(self, *, offload: bool = False) -> Outcome:
        """Quiesce: tear down process groups, clear caches, give scratch regions back.

        Args:
            offload: if a target is configured, send ``offload`` right afterwards.
        """
        outcome = self._send(TrainerEvent.SLEEP)
        if offload and self.config.offload_target is not None:
            return self.offload()
        return outcome

    def offload(self) -> Outcome:
        """Give the device memory back to where the configuration says."""
        return self._send(TrainerEvent.OFFLOAD)

    def wake_up(self) -> Outcome:
        """Take the device memory again; every byte is as it was."""
        return self._send(TrainerEvent.WAKE_UP)

    def recover(self) -> Outcome:
        """Leave ``faulted``: drive the tags to the nearest state and verify the bytes against their digests."""
        return self._send(TrainerEvent.RECOVER)

    def prepare_optimizer(self) -> None:
        """Materialise gradients and moments in their regions again, after a new optimizer's first step.

        Building the controller does this already. Call it awake.
        """
        attach.place_training_state(self._parts)

    # Adapters and weights

    def reconcile_adapters(self) -> Outcome:
        """Bring the slots to what the registry says: awake, asleep or offloaded, all or nothing."""
        return self._send(TrainerEvent.RECONCILE_ADAPTERS)

    def update_weights(self, engines: Iterable[RolloutEngine]) -> Outcome:
        """Send every engine what it lacks, from the decided source."""
        return self._send(TrainerEvent.UPDATE_WEIGHTS, engines=tuple(engines))

    def weights(self, holder: str = "weights()", *, groups: Iterable[str] | None = None) -> WeightLease:
        """Lease the actor's newest weights from wherever they are.

        Args:
            holder: who reads; a transition that the lease stops names it.
            groups: content groups, such as ``frozen-base`` or ``adapter/NAME``; all when None.

        Returns:
            A lazy mapping of tensor name to tensor, pinned until it is closed.

        Raises:
            EventRefused: a group has no fresh readable source, or another model is active and no
                copy of the actor is fresh.
        """
        wanted = None if groups is None else tuple(groups)
        with self._runner.turn.of("weights"):
            facts = gather(self._parts, Request(), TrainerEvent.UPDATE_WEIGHTS)
            reads = tuple(read for read in decide_reads(facts) if wanted is None or read.group in wanted)
            self._refuse_unreadable(reads, facts)
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
                                    "wake_up() first", facts)  # fmt: skip
            reads = tuple(Read(one.group, Source.LIVE, one.version) for one in facts.contents)
            return open_lease(self._parts, holder, reads)

    def _refuse_unreadable(self, reads: Sequence[Read], facts: Facts) -> None:
        missing = [read for read in reads if read.source is None]
        if missing:
            because = "; ".join(f"{read.group}: {read.because}" for read in missing)
            raise self._refusal("sources-are-fresh", because, "wake_up(), or backup the actor while it is awake", facts)

    def _refusal(self, name: str, because: str, remedy: str, facts: Facts) -> EventRefused:
        refusal = Refusal(self.state, TrainerEvent.UPDATE_WEIGHTS, "", (Verdict(name, False, because, remedy),))
        self._runner.recorder.refused(refusal, facts)
        return EventRefused(refusal)

    # Training

    @contextmanager
    def step(self, adapters: Iterable[str] = ()) -> Iterator[TrainingStep]:
        """A training step of these adapters is in flight inside the block.

        On exit ``trained`` is committed (or the accumulation is noted); on an exception the step is
        aborted: what it may have changed takes new version ids.
        """
        step = TrainingStep(tuple(sorted(set(adapters))))
        self.begin_step(step.adapters)
        try:
            yield step
        except BaseException:
            self.abort_step()
            raise
        if step.kind == "accumulated":
            self.accumulated()
        else:
            self.trained(step.adapters)

    def begin_step(self, adapters: Iterable[str] = ()) -> Outcome:
        """Low level: a step of these adapters is in flight from now on."""
        return self._send(TrainerEvent.BEGIN_STEP, adapters=tuple(sorted(set(adapters))))

    def trained(self, adapters: Iterable[str] = ()) -> Outcome:
        """Low level: the open step has changed these adapters (and the trainable base, if there is one)."""
        return self._send(TrainerEvent.TRAINED, adapters=tuple(sorted(set(adapters))))

    def accumulated(self) -> None:
        """Low level: the open step only added to gradients. They survive a sleep from now on."""
        with self._runner.turn.of("accumulated"):
            attach.close_accumulation(self._parts)

    def abort_step(self) -> None:
        """Low level: the open step failed; its bytes are of unknown content and take new version ids."""
        with self._runner.turn.of("abort_step"):
            attach.abort_step(self._parts)
            self._runner.recorder.noted("a step was aborted", versions=dict(self._parts.versions.wanted))

    def switch_model(self, target: str = ACTOR) -> Outcome:
        """Put another kept model into live memory, or the actor back."""
        return self._send(TrainerEvent.SWITCH_MODEL, target=target)

    def keep_model(self, tag: str, tensors: Mapping[str, Tensor] | None = None) -> int:
        """Keep a host copy of a model under *tag*, so that ``switch_model(tag)`` can reach it.

        Args:
            tag: ``ref``, ``teacher``, ``old_actor`` or a name of your own, not ``actor``.
            tensors: base tensors by name (all of a content group, or none of it); the live bytes when None.

        Returns:
            The bytes copied.
        """
        with self._runner.turn.of("keep_model"):
            return keep_model(self._parts, tag, tensors)

    # Questions

    def facts(self) -> Facts:
        """The record that guards would look at now."""
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
        asked = TrainerEvent(event)
        request = Request(tuple(sorted(set(adapters))), target, tuple(engines))
        facts = gather(self._parts, request, asked)
        decision = decide_event(self.state, asked, facts)
        told = as_one(*decision) if isinstance(decision, tuple) else decision
        return Explanation(asked, self.state, told, facts)

    def held_bytes(self) -> dict[str, int]:
        """Bytes held now, by place."""
        return held_bytes(self._parts)

    def subscribe(self, callback: Callable[[Moved], None]) -> None:
        """Call *callback* with the outcome after each commit. What it raises is recorded, not raised."""
        self._runner.subscribers.append(callback)

    def handoff(self, engines: Iterable[RolloutEngine]) -> AbstractContextManager[None]:
        """The whole turn to the engines and back; see :func:`lifecycle.handoff.handoff`."""
        return handoff(self, tuple(engines))

    def _send(
        self,
        event: TrainerEvent,
        *,
        adapters: tuple[str, ...] = (),
        target: str = ACTOR,
        engines: tuple[RolloutEngine, ...] = (),
    ) -> Outcome:
        return self._runner.send(event, Request(adapters, target, engines))
