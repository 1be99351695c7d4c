"""Ranks with one engine for all, or one each."""

from __future__ import annotations

import operator
import os
import signal
import time
from pathlib import Path
from typing import Any
from unittest import mock

from torch import Tensor

from lifecycle.distributed import SharedEngine
from lifecycle.engines.protocol import EngineReport, RolloutEngine
from lifecycle.errors import EngineError
from tests.distributed.ranks import Member
from tests.lifecycle.world import FakeEngine


class Sharer(Member):
    """A rank of four that share one engine, which rank *by* has."""

    engine: FakeEngine | None
    shared: RolloutEngine
    second: FakeEngine | None
    shared_second: RolloutEngine

    def share(self, *, by: int = 0) -> None:
        """One engine for all ranks."""
        self.engine = _Engine() if self.rank == by else None
        self.shared = SharedEngine(self.engine, self.agreement, name="E0", by=by)

    def share_another(self) -> None:
        """A second engine of rank 0 for all ranks, which is pushed to after the first."""
        self.second = _Engine("E1") if self.rank == 0 else None
        self.shared_second = SharedEngine(self.second, self.agreement, name="E1")

    def push_both(self) -> None:
        """Send what both engines lack."""
        self.world.trainer.update_weights([self.shared, self.shared_second])

    def second_calls(self) -> list[str]:
        """What the second engine was asked so far."""
        assert self.second is not None
        return self.second.calls

    def own(self, **changes: Any) -> None:
        """An engine of this rank's own, called as those of the others."""
        self.shared = self.engine = _Engine(**changes)

    def change(self, **changes: Any) -> None:
        """Change the engine that this rank has."""
        for name, one in changes.items():
            setattr(self.engine, name, one)

    def restart(self) -> None:
        """This rank's engine restarts."""
        assert self.engine is not None
        self.engine.restart()

    def call(self, what: str, *positional: Any, **named: Any) -> None:
        """A method of the trainer, or of its snapshots, that is no event."""
        operator.attrgetter(what)(self.world.trainer)(*positional, **named)

    def new_optimizer(self) -> None:
        """The moments of slot 0 are made anew, outside of any region, as by a new optimizer."""
        optimizer = self.world.optimizers[0]
        optimizer.state.clear()
        optimizer.step()

    def adopt(self, version: int) -> None:
        """Go on above the version that an engine of this rank's own reports."""
        self.world.trainer.adopt_versions([FakeEngine("E1", versions={"frozen-base": version})])

    def train(self, *names: str) -> None:
        """One step of these adapters."""
        self.world.train(*(names or ("A",)))

    def push(self) -> None:
        """Send what the engine lacks."""
        self.world.trainer.update_weights([self.shared])

    def push_and_time(self) -> tuple[float, float]:
        """The same. Returns when this rank knew what its engine lacks, and when it began to read, by one clock."""
        times: list[float] = []
        runner, door = self.world.trainer._runner, self.world.trainer._parts.door
        real_facts, real_read = runner._ranks.facts, door.read

        def facts(*given: Any) -> Any:
            times.append(time.monotonic())
            return real_facts(*given)

        def read(*given: Any) -> Any:
            times.append(time.monotonic())
            return real_read(*given)

        with mock.patch.object(runner._ranks, "facts", facts), mock.patch.object(door, "read", read):
            self.push()
        return times[0], times[1]

    def hand_over(self) -> dict[str, Any]:
        """The whole turn, with a look at the engine inside."""
        with self.world.trainer.handoff([self.shared]):
            return {name: str(one.serves) for name, one in self.world.trainer.serving([self.shared]).items()}

    def cannot_read(self, name: str = "", *, reads: int = 1) -> None:
        """This rank reads a tensor so often, to compare it, and then cannot any more; without a name it can again."""
        door = self.world.trainer._parts.door
        real = type(door).read.__get__(door)
        left = reads

        def read(tensor: str, *rest: Any) -> Tensor:
            nonlocal left
            if tensor == name:
                left -= 1
                if left < 0:
                    raise OSError(f"{tensor} cannot be read here")
            found: Tensor = real(tensor, *rest)
            return found

        door.read = read  # type: ignore[method-assign]

    def dies_reading(self, name: str) -> None:
        """This process ends when it reads a tensor."""
        door = self.world.trainer._parts.door
        real = door.read

        def read(tensor: str, *rest: Any) -> Tensor:
            if tensor == name:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(tensor, *rest)

        door.read = read  # type: ignore[method-assign]

    def dies_at(self, call: str) -> None:
        """This process ends at a call of its engine."""
        assert isinstance(self.engine, _Engine)
        self.engine.dies_at = call

    def calls(self) -> list[str] | None:
        """What the engine of this rank was asked so far; None where there is none."""
        return self.engine.calls if self.engine is not None else None

    def standing(self) -> dict[str, Any]:
        """The books of engines, and where the engine stands."""
        books = self.world.trainer._parts.runtime.engines
        return {
            "fenced": {name: (one.because, one.suspect) for name, one in books.fences.items()},
            "confirmed": dict(books.confirmed),
            "verified": dict(books.verified),
        }

    def serves(self) -> tuple[str, dict[str, int]]:
        """How every rank may route to the engine, and what it holds."""
        (found,) = self.world.trainer.serving([self.shared]).values()
        return str(found.serves), dict(found.versions)


class _Engine(FakeEngine):
    """One that is ready when a file is there, and can end its process."""

    ready: Path | None = None
    away = False
    dies_at = ""

    def report(self) -> EngineReport:
        """Wait until it is ready, or give up."""
        if self.away:
            raise EngineError(self.name, "it is away")
        while self.ready is not None and not self.ready.exists():
            time.sleep(0.01)
        return super().report()

    def _call(self, what: str) -> None:
        if self.dies_at and what.startswith(self.dies_at):
            os.kill(os.getpid(), signal.SIGKILL)
        super()._call(what)
