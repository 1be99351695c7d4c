"""The controller that a training loop embeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import get_ident
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.audit import notes
from lifecycle.audit.log import MemoryAudit
from lifecycle.config import LifecycleConfig
from lifecycle.engines.protocol import RolloutEngine, checked
from lifecycle.errors import ConfigError
from lifecycle.joining import Joining
from lifecycle.memory.schedules import Scheduler
from lifecycle.memory.slot_state import SlotDeclarations
from lifecycle.outcome import Moved, Outcome
from lifecycle.probes import GreedyProbe
from lifecycle.process_groups import ProcessGroups
from lifecycle.saver import MemorySaver
from lifecycle.transition import attach, steps
from lifecycle.transition.building import store_freed, together
from lifecycle.transition.gather import gather
from lifecycle.transition.outside import watch_optimizers
from lifecycle.transition.parts import Request
from lifecycle.transition.ranks import ALONE, Ranks
from lifecycle.transition.records import Audit, Recorder
from lifecycle.transition.runner import Runner
from lifecycle.transition.steps import TrainingStep
from lifecycle.weights.models import keep_model
from lifecycle.weights.snapshots import SnapshotStore
from states import ACTOR, TrainerEvent, TrainerMachine, TrainerState


class TrainerLifecycle(Joining):
    """Drives one trainer's memory through its states, embedded in the training loop.

    Building it lays memory out once: base, slots, moments and gradients move into regions of the
    saver (``tensor.data`` is repointed, the objects stay), so that addresses never change again.

    Args:
        config: what kind of run this is.
        saver: the memory saver; one a process, shared by its trainers and engines.
        model: the module that trains (with adapters: the PEFT model that they sit on).
        optimizer: one optimizer, one a slot by slot number, several, or None.
        adapters: the adapter slots; None in a full-parameter run.
        main_copies: parameter, or its name, to the fp32 tensor that the optimizer steps in its place.
        schedulers: slot to its learning rate scheduler, in the state in which each new tenant starts; None for a
            slot whose schedule goes on from tenant to tenant.
        snapshots: named host copies; a new store when None.
        audit: where records go; memory when None.
        groups: the process groups that sleep may tear down.
        probe: greedy tokens of each version are recorded while awake, and engines that cannot hash their bytes are
            asked for the same tokens after a push; None for none.
        ranks: what makes this trainer one of many (:class:`lifecycle.distributed.RankAgreement`): every rank then takes
            the same events in the same order, and all of them act or none. Left out, there are no other ranks.
        joins: this process takes a lost rank's place, and the others call :meth:`admit`. It is built awake with its
            slots empty, takes over what they hold, and goes to the state that they are in.
        initial_state: where the trainer's bytes are now. Declared, never defaulted.

    Raises:
        ConfigError: the parts do not fit together, or *initial_state* is not what the saver says.
        RanksFailed: it could not be built on another rank; it is built on none then.
        JoinRefused: it joins, and is not like the others.
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
        main_copies: Mapping[str, Tensor] | Mapping[Tensor, Tensor] | None = None,
        schedulers: Mapping[int, Scheduler | None] | None = None,
        snapshots: SnapshotStore | None = None,
        audit: Audit | None = None,
        groups: ProcessGroups | None = None,
        probe: GreedyProbe | None = None,
        ranks: Ranks = ALONE,
        joins: bool = False,
        initial_state: TrainerState,
    ) -> None:
        self.config = config
        self.snapshots = snapshots if snapshots is not None else SnapshotStore()
        self._ranks = ranks
        with store_freed(self.snapshots), together(ranks) as block:
            slots = SlotDeclarations(main_copies, schedulers)
            self._parts = attach.build_parts(config, saver, model, optimizer, adapters, self.snapshots, groups, slots)
            met = self._meet(block, joins=joins)
            attach.lay_out(self._parts, TrainerState(initial_state))
            recorder = Recorder(audit if audit is not None else MemoryAudit(), config)
            self._runner = Runner(self._parts, TrainerMachine(TrainerState(initial_state)), recorder, ranks)
            self._start(model, probe, met)
            watch_optimizers(self._runner, self._parts)
        if met is not None:
            self._note_joined(met)

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
        with self._runner.turn.of("prepare_optimizer"):
            if self.state is not TrainerState.AWAKE:
                facts = gather(self._parts, Request())
                because = f"moments and gradients are placed awake, the trainer is {self.state}"
                raise self._refusal("needs-live-weights", because, "wake_up() first", facts, "prepare_optimizer")
            attach.place_training_state(self._parts)
            self._runner.recorder.noted(notes.PLACED)

    # Adapters and weights

    def reconcile_adapters(self, *, partial: str | None = None) -> Outcome:
        """Bring the slots to what the registry says: awake, asleep or offloaded, all or nothing.

        Args:
            partial: ``"keep"`` keeps what succeeds; ``Moved.failed`` says which adapters did not and why. They stay
                pending, and the next call tries again.

        Raises:
            ConfigError: *partial* is something else.
            TransitionFailed: an adapter failed and everything is as before; ``error.adapter`` says which one.
        """
        if partial not in (None, "keep"):
            raise ConfigError(f"partial is {partial!r}; use 'keep', or None for all or nothing")
        return self._send(TrainerEvent.RECONCILE_ADAPTERS, keeps_partial=partial == "keep")

    def update_weights(self, engines: Iterable[RolloutEngine]) -> Outcome:
        """Send every engine what it lacks, from the decided source.

        Raises:
            ConfigError: one of them is no engine, or two have the same name.
        """
        return self._send(TrainerEvent.UPDATE_WEIGHTS, engines=checked(engines))

    # Training

    @contextmanager
    def step(self, adapters: Iterable[str] = ()) -> Iterator[TrainingStep]:
        """A training step of these adapters is in flight inside the block.

        On exit ``trained`` is committed (or the accumulation is noted); on an exception the step is
        aborted: what it may have changed takes new version ids.
        """
        step = TrainingStep(steps.adapter_names(adapters))
        with self._open(step.adapters):
            yield step
            if step.kind == "accumulated":
                self.accumulated()
            else:
                self.trained(step.adapters)

    @contextmanager
    def loading_checkpoint(self) -> Iterator[None]:
        """A checkpoint is loaded into the model, in place, inside the block: everything may change there.

        It is a step that touches every content group. On exit the frozen base is compared with what it was:
        where its bytes are the same nothing is copied, sent or written again. Kept models that share the old
        base get bytes of their own before.
        """
        with self._open(loads=True):
            yield
            self._send(TrainerEvent.TRAINED)

    @contextmanager
    def _open(self, adapters: tuple[str, ...] = (), *, loads: bool = False) -> Iterator[None]:
        """Open a step, and abort it if anything in the block fails.

        Also when the commit itself is refused: the bytes have changed, and a step must not stay open. A commit
        that is only missing on the log has closed it; a step of somebody else stays.
        """
        runtime = self._parts.runtime
        number, before = None, runtime.opened
        try:
            self._send(TrainerEvent.BEGIN_STEP, adapters=adapters, loads=loads)
            number = runtime.opened
            yield
        except BaseException:
            # An interrupt may come after the step was opened and before its number was noted.
            late = number is None and runtime.opened > before and runtime.opener == get_ident()
            if runtime.step is not None and (late or number == runtime.opened):
                self.abort_step()
            raise

    def begin_step(self, adapters: Iterable[str] = ()) -> Outcome:
        """Low level: a step of these adapters is in flight from now on."""
        return self._send(TrainerEvent.BEGIN_STEP, adapters=steps.adapter_names(adapters))

    def trained(self, adapters: Iterable[str] | None = None) -> Outcome:
        """Low level: the open step has changed its adapters (and the trainable base, if there is one).

        Args:
            adapters: those that the step was opened with; None means them.
        """
        named = self._parts.runtime.step or () if adapters is None else steps.adapter_names(adapters)
        with self._runner.turn.looking():
            self._refuse_while_loading("trained")
        return self._send(TrainerEvent.TRAINED, adapters=tuple(named))

    def accumulated(self) -> None:
        """Low level: the open step only added to gradients. They survive a sleep from now on."""
        with self._runner.turn.of("accumulated"):
            self._require_a_step("accumulated", "open one with step(adapters) around the work")
            self._refuse_while_loading("accumulated")
            steps.close_accumulation(self._parts)
            self._runner.recorder.noted(notes.ACCUMULATED, groups=sorted(self._parts.runtime.accumulated))

    def abort_step(self) -> None:
        """Low level: the open step failed; its bytes are of unknown content and take new version ids."""
        with self._runner.turn.of("abort_step"):
            self._require_a_step("abort_step", "go on: there is nothing to abort")
            steps.abort_step(self._parts)
            self._runner.recorder.aborted(self._parts.versions.wanted)

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

        Raises:
            ConfigError: the tag is ``actor``, or the tensors do not cover whole content groups.
            EventRefused: see :data:`states.guards_snapshots.SNAPSHOT_TABLE`. The tag is as before.
        """
        return keep_model(self._parts, self._gate, tag, tensors)

    def subscribe(self, callback: Callable[[Moved], None]) -> None:
        """Call *callback* with the outcome after each commit. What it raises is recorded, not raised.

        Raises:
            ConfigError: it cannot be called.
        """
        if not callable(callback):
            raise ConfigError(f"{callback!r} cannot be called; give a function of one outcome")
        self._runner.subscribers.append(callback)

    def handoff(
        self, engines: Iterable[RolloutEngine], *, memory_peak: str | None = None
    ) -> AbstractContextManager[None]:
        """The whole turn to the engines and back, in an order that fits the budgets; see docs/handover.md.

        Args:
            engines: who serves.
            memory_peak: ``"host"`` or ``"device"``; None takes that of the configuration, or what fits.

        Raises:
            EventRefused: on entering, when no order fits (or not the one that is asked for). No step was taken.
            EngineUnconfirmed: on entering, when an engine answers the probe otherwise; everything was put back.
        """
        found = checked(engines)
        return self._verified(self._turn_to(self, found, memory_peak), found)

    def _send(self, event: TrainerEvent, **asked: Any) -> Outcome:
        return self._runner.send(event, Request(**asked))
