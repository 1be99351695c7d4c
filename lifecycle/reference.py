"""The reference model of a KL run: the base with its adapters off, or a kept copy that is switched to and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from lifecycle.config import Reference
from lifecycle.errors import ConfigError, EventRefused
from lifecycle.planning import Planning
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Request
from states import ADAPTER_PREFIX, Refusal, TrainerEvent, TrainerState, Verdict
from states.guards import active_model_is_the_actor, live_weights_are_the_newest

REF: Final = "ref"
"""The tag under which the reference model is kept with ``ref="snapshot"``."""

HOLDER: Final = "reference()"
"""Who reads inside the block, as refusals name it."""


class Referring(Planning):
    """The part of the controller that lends the reference model."""

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Forward passes inside are the reference model's; afterwards everything is as before, also after an error.

        With ``ref="adapter_off"`` it is the base that the adapters sit on: nothing is copied, and adapters cannot be
        used inside. With ``ref="snapshot"`` it is the model kept as ``ref``, which is switched to and back: it needs
        ``keep_model("ref")`` before, and no open step. Adapters are off then too, but for those that ``ref`` keeps,
        which ``use(name)`` applies as they were kept.

        A lease over the live weights is open inside: what would free or change them is refused, and names it.

        Raises:
            ConfigError: this run has no reference.
            EventRefused: the trainer is not awake, live memory does not hold the actor's newest bytes (or, for a
                snapshot, the switch is refused), or a checkpoint is being loaded.
        """
        kind = self.config.reference
        if kind is None:
            raise ConfigError('this run has no reference; set ref="adapter_off" or ref="snapshot" in LifecycleConfig')
        self._refuse_reference(kind)
        block = self._adapters_off(()) if kind is Reference.ADAPTER_OFF else self._snapshot_live()
        runtime = self._parts.runtime
        runtime.references += 1
        try:
            with block, self.live(HOLDER):
                yield
        finally:
            runtime.references -= 1

    @contextmanager
    def _snapshot_live(self) -> Iterator[None]:
        """The kept model is in live memory inside, then the one that was there before."""
        before = self._parts.runtime.active_model
        self._switch(REF)
        try:
            kept = self._parts.snapshots.versions(REF)
            names = tuple(one.removeprefix(ADAPTER_PREFIX) for one in kept if one.startswith(ADAPTER_PREFIX))
            with self._adapters_off(names):
                yield
        finally:
            self._switch(before)

    def _switch(self, model: str) -> None:
        self._runner.send(TrainerEvent.SWITCH_MODEL, Request(target=model))

    def _adapters_off(self, allowed: tuple[str, ...]) -> AbstractContextManager[None]:
        host = self._parts.chooser
        return nullcontext() if host is None else host.without_adapters(HOLDER, allowed)

    def _refuse_reference(self, kind: Reference) -> None:
        with self._runner.turn.of("reference"):
            self._refuse_while_loading("reference")
            facts = gather(self._parts, Request(), TrainerEvent.UPDATE_WEIGHTS)
            if self.state is not TrainerState.AWAKE:
                because = f"{HOLDER} needs live weights, the trainer is {self.state}"
                raise self._refusal("needs-live-weights", because, "wake_up() first", facts, "reference")
            if kind is Reference.SNAPSHOT:
                return  # the switch has guards of its own
            verdicts: tuple[Verdict, ...] = (active_model_is_the_actor(facts), live_weights_are_the_newest(facts))
            if not all(verdicts):
                refusal = Refusal(self.state, "reference", "", verdicts)
                self._runner.recorder.refused(refusal, facts)
                raise EventRefused(refusal)
