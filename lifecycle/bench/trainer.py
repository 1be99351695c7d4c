"""One rank of one case: a trainer that is told each event of the cycle by name, and says what it took.

Lives in a process of its own, so that what the operating system counts is this rank alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from torch import Tensor
from torch.optim import Adam

from lifecycle.audit.log import AuditLog
from lifecycle.bench.engine import ReadingEngine
from lifecycle.bench.model import BenchModel, LightAdapters
from lifecycle.bench.options import KEPT_MODELS, Case
from lifecycle.config import LifecycleConfig
from lifecycle.controller import TrainerLifecycle
from lifecycle.demo.measure import process_bytes, settle
from lifecycle.saver import HostArena
from states import TrainerState

SENT: Final = "sync"
"""The kind of bytes that an engine took. The trainer made no copy of them."""

BEFORE: Final = ("attach", "first_reconcile", "keep_models")
CYCLE: Final = (
    "step",
    "sleep",
    "offload",
    "update_weights",
    "update_weights_fresh",
    "reconcile_adapters",
    "weights",
    "wake_up",
)
"""What a fresh process is told once, and what it is told in each cycle."""

Result = TypeVar("Result")


@dataclass
class Sample:
    """What one event took in one rank.

    Attributes:
        seconds: inside the calls of the controller.
        moved_bytes: bytes that the trainer copied.
        sent_bytes: bytes that engines took of it.
        kinds: the bytes moved, by kind.
    """

    seconds: float = 0.0
    moved_bytes: int = 0
    sent_bytes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, count_bytes: int) -> None:
        """Add bytes of one kind."""
        if not count_bytes:
            return
        self.kinds[kind] = self.kinds.get(kind, 0) + count_bytes
        if kind == SENT:
            self.sent_bytes += count_bytes
        else:
            self.moved_bytes += count_bytes


class BenchTrainer:
    """A synthetic trainer on an arena.

    Args:
        case: what is measured.
        base_dir: folder of base files and disk backups, the same for all ranks.
        log: the audit log of this rank.
        arena: the memory saver; a new arena when None.
        model: the model; one of the size of the case when None.
        kind: what kind of log is written.

    Attributes:
        arena: the memory saver.
        log: the audit log.
    """

    def __init__(
        self,
        case: Case,
        base_dir: Path,
        log: Path,
        *,
        arena: HostArena | None = None,
        model: BenchModel | None = None,
        kind: type[AuditLog] = AuditLog,
    ) -> None:
        self._case = case
        self._base_dir = base_dir
        self.log = kind(log)
        self._engine = ReadingEngine("rollout")
        self._model = model if model is not None else BenchModel(case)
        self._adapters = LightAdapters(self._model, case)
        self._optimizers = {slot: Adam(self._model.slot(slot).values()) for slot in range(case.adapters)}
        self.arena = arena if arena is not None else HostArena(disk_dir=str(base_dir))
        self._trainer: TrainerLifecycle | None = None
        self._baseline = self._device = 0

    def do(self, event: str) -> dict[str, Any]:
        """Take one event of :data:`BEFORE` or :data:`CYCLE`.

        Returns:
            Samples by the name of their row; ``weights`` gives two.
        """
        found = getattr(self, f"_{event}")()
        return {name: asdict(one) for name, one in (found if isinstance(found, dict) else {event: found}).items()}

    def memory(self) -> dict[str, int]:
        """Bytes held since the attach, of this rank: as the operating system counts them, and as the books do."""
        settle()
        given_back = self._device - self.arena.usage().device_bytes
        ledger = self.controller.ledger
        return {
            "held_bytes": max(0, process_bytes() - self._baseline + given_back),
            "file_bytes": ledger.file_bytes,
            "backup_file_bytes": ledger.disk_bytes,
            "books_bytes": ledger.host_bytes,
        }

    def sizes(self) -> dict[str, int]:
        """Bytes of what it trains and of what it does not."""
        return {"base_bytes": self._model.base_bytes(), "trainable_bytes": self._model.trainable_bytes()}

    @property
    def controller(self) -> TrainerLifecycle:
        """The controller, once it is attached."""
        assert self._trainer is not None  # attach is the first event
        return self._trainer

    def _attach(self) -> Sample:
        """Lay the memory out, and take the baseline. Moved are also the bytes that were placed in regions."""
        sample = self._call(self._build)
        sample.add("placed", self.arena.usage().device_bytes)
        settle()
        self._baseline, self._device = process_bytes(), self.arena.usage().device_bytes
        return sample

    def _build(self) -> None:
        case = self._case
        config = LifecycleConfig(
            strategy=case.strategy,
            frozen_base=case.frozen_base,
            base_dir=str(self._base_dir),
            offload_target=case.offload_target,
            verify=case.verify,
            with_ref=case.kept_models > 0,
            keep_old_actor=case.kept_models > 1,
        )
        self._trainer = TrainerLifecycle(
            config,
            saver=self.arena,
            model=self._model,
            optimizer=self._optimizers,
            adapters=self._adapters,
            audit=self.log,
            initial_state=TrainerState.AWAKE,
        )

    def _first_reconcile(self) -> Sample:
        """Load every adapter, and bring the engine up to date, which is not counted."""
        for slot in range(self._case.adapters):
            self._adapters.register(slot)
        sample = self._call(self.controller.reconcile_adapters)
        self.controller.update_weights([self._engine])
        return sample

    def _keep_models(self) -> Sample:
        """Keep the models, each with adapters of other bytes."""
        sample = Sample()
        for tag in KEPT_MODELS[: self._case.kept_models]:
            self._take(sample, self.controller.keep_model, tag)
            self._step()
        return sample

    def _step(self) -> Sample:
        """A step of all adapters; what the optimizer takes is not counted."""
        sample = self._call(self.controller.begin_step, self._adapters.names)
        for slot, optimizer in self._optimizers.items():
            for parameter in self._model.slot(slot).values():
                _gradient_of(parameter).fill_(1e-3)
            optimizer.step()
        self._take(sample, self.controller.trained)
        return sample

    def _sleep(self) -> Sample:
        return self._call(self.controller.sleep)

    def _offload(self) -> Sample:
        return self._call(self.controller.offload)

    def _update_weights(self) -> Sample:
        """The adapters that changed go to an engine that has the rest."""
        return self._call(self.controller.update_weights, [self._engine])

    def _update_weights_fresh(self) -> Sample:
        """Everything goes to an engine that has just been started."""
        return self._call(self.controller.update_weights, [ReadingEngine("fresh")])

    def _reconcile_adapters(self) -> Sample:
        """One adapter is replaced where the trainer is now."""
        self._adapters.register(0)
        return self._call(self.controller.reconcile_adapters)

    def _nothing_to_reconcile(self) -> Sample:
        """The adapters that are loaded are those that are registered."""
        return self._call(self.controller.reconcile_adapters)

    def _weights(self) -> dict[str, Sample]:
        """Open a lease, and take a view of every tensor."""
        opening, viewing = Sample(), Sample()
        lease = self._take(opening, self.controller.weights, "bench")
        views = self._take(viewing, lambda: [lease[name] for name in lease])
        del views
        lease.close()
        return {"weights_open": opening, "weights_views": viewing}

    def _wake_up(self) -> Sample:
        return self._call(self.controller.wake_up)

    def _call(self, call: Callable[..., object], *arguments: object) -> Sample:
        sample = Sample()
        self._take(sample, call, *arguments)
        return sample

    def _take(self, sample: Sample, call: Callable[..., Result], *arguments: object) -> Result:
        """Make a call, and add its time and what the ledger says that it moved."""
        before, started = self._moved(), time.perf_counter()
        result = call(*arguments)
        sample.seconds += time.perf_counter() - started
        for (event, kind), count_bytes in self._moved().items():
            sample.add(kind, count_bytes - before.get((event, kind), 0))
        return result

    def _moved(self) -> Mapping[tuple[str, str], int]:
        return {} if self._trainer is None else self._trainer.ledger.moved


def _gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None  # the controller keeps gradients in their region
    return parameter.grad
