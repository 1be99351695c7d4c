"""The numbers of one trainer, kept up to date by its events."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Final

from lifecycle.controller import TrainerLifecycle
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import AuditError, ConfigError, TransitionFailed
from lifecycle.lag import Lag, LagBook
from lifecycle.metrics.reading import Reading, parts_of
from lifecycle.metrics.seconds import Seconds
from lifecycle.outcome import EngineOutcome, Moved, Outcome
from lifecycle.standing import Standing
from lifecycle.watched import check_watched
from states import TrainerEvent, TrainerState

PREFIX: Final = "lifecycle/"
_NONE: Final[Mapping[str, EngineOutcome]] = {}


class Metrics:
    """Watches a trainer. Counts are those since it was attached; durations and engines, since this was built.

    What is held and how far engines are behind is read at the end of each event, in its thread: what another thread
    reads (:meth:`reading`) is of then, and waits for nobody. No engine is asked; an engine that restarted is seen by
    :meth:`look_at` alone.

    Args:
        trainer: whom to watch, as long as it lives: metrics do not keep it, or its memory, alive.
        rank: of this process.

    Attributes:
        model: the trainer's model.
        rank: of this process.

    Raises:
        ConfigError: the trainer is none, or the rank is no whole number from 0.
    """

    def __init__(self, trainer: TrainerLifecycle, *, rank: int = 0) -> None:
        check_watched(trainer, rank)
        self.model = trainer.config.model
        self.rank = rank
        self._watched = weakref.ref(trainer)
        self._lock = Lock()
        self._engines = LagBook()
        self._seconds: dict[str, Seconds] = {}
        self._held: dict[tuple[str, str], int] = {}
        self._moved: Mapping[tuple[str, str], int] = {}
        self._lags: Mapping[str, Lag] = {}
        self._read()
        trainer.watch(self._begins)

    def reading(self) -> Reading:
        """The numbers as of the last event. Safe in any thread, and never waits for an event.

        Raises:
            ConfigError: the trainer is gone.
        """
        return self._of(self._trainer)

    def newest(self) -> Reading | None:
        """The same, None where the trainer is gone."""
        trainer = self._watched()
        return None if trainer is None else self._of(trainer)

    @property
    def _trainer(self) -> TrainerLifecycle:
        trainer = self._watched()
        if trainer is None:
            raise ConfigError("the trainer of these metrics is gone; read them before, or keep it")
        return trainer

    def _of(self, trainer: TrainerLifecycle) -> Reading:
        with self._lock:
            return Reading(
                state=trainer.state,
                tally=trainer.tally,
                held=self._held,
                moved=self._moved,
                seconds=dict(self._seconds),
                lags=self._lags,
            )

    def as_dict(self, prefix: str = PREFIX) -> dict[str, float]:
        """The numbers of now, flat: for ``wandb.log`` or a TensorBoard writer. Call it in the trainer's thread.

        A key that has been there stays. The keys: docs/metrics.md.

        Args:
            prefix: before each key.

        Raises:
            ConfigError: the trainer is gone.
        """
        self._read()
        return self.reading().flat(prefix)

    def look_at(self, engines: Iterable[RolloutEngine]) -> Mapping[str, Standing]:
        """Ask engines what they hold, as ``trainer.serving(engines)`` does, and go on from what they say.

        Raises:
            ConfigError: one of them is no engine, two have the same name, or the trainer is gone.
        """
        standings = self._trainer.serving(engines)
        self._engines.saw(standings)
        self._read()
        return standings

    def _begins(self, event: TrainerEvent, _: TrainerState) -> Callable[[Outcome | BaseException], None]:
        def ended(how: Outcome | BaseException) -> None:
            done = how.outcome if isinstance(how, AuditError) else how
            if isinstance(done, Moved):
                with self._lock:
                    self._seconds[event.value] = self._seconds.get(event.value, Seconds()).plus(done.duration_s)
            pushed = done.engines if isinstance(done, Moved | TransitionFailed) else _NONE
            if pushed:
                self._engines.pushed(pushed, self._trainer.versions)
            self._read()

        return ended

    def _read(self) -> None:
        """Take what is held and how far engines are behind. What has been held somewhere stays listed, with 0."""
        trainer = self._trainer
        ledger = trainer.ledger
        held = dict.fromkeys(self._held, 0) | parts_of(ledger.held, self.model)
        lags = self._engines.lags(trainer.versions, trainer.staleness)
        with self._lock:
            self._held, self._moved, self._lags = held, ledger.moved, lags
