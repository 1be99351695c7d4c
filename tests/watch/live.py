"""Real trainers whose records go into a log, and what is seen of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest

from lifecycle import AuditLog, TrainerFaulted
from lifecycle.watch import Picture, RankSeen, RunWatch
from tests.auditing.runs import record
from tests.lifecycle.world import FakeEngine, World, make_world


class Live:
    """A trainer, its engine, its log, and somebody who watches it.

    Args:
        path: of the log.
        rank: of the trainer.
        options: of the log.
    """

    def __init__(self, path: Path, rank: int = 0, **options: Any) -> None:
        self.world: World = make_world(adapters=("A", "B"))
        self.engine = FakeEngine()
        self.log = AuditLog(path, run="r", rank=rank, **options)
        record(self.world, self.log)
        self.run = RunWatch([path])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()
        self.run.close()

    def turn(self) -> None:
        """A step, to the engine and back."""
        self.world.train("A")
        self.world.trainer.sleep()
        self.world.trainer.offload()
        self.world.trainer.update_weights([self.engine])
        self.world.trainer.wake_up()

    def fault(self) -> None:
        """It goes to sleep; then a transition fails, and so does its undo."""
        self.world.trainer.sleep()
        self.fault_asleep()

    def fault_asleep(self) -> None:
        """The same of a trainer that sleeps."""
        effects = self.world.trainer._runner.effects
        effects["synchronize-device"] = lambda parts, work: lambda: 1 / 0  # type: ignore[assignment,return-value]
        effects["pause-weights"] = lambda parts, work: 1 / 0  # type: ignore[assignment,return-value]
        with pytest.raises(TrainerFaulted):
            self.world.trainer.offload()

    def seen(self) -> RankSeen:
        """The rank, as it is seen now."""
        (rank,) = self.picture().ranks
        return rank

    def picture(self, now_s: float | None = None) -> Picture:
        """What is seen now."""
        for _ in self.run.poll():
            pass
        return self.run.picture(now_s)
