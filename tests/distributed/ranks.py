"""Real ranks: processes with a trainer each, that agree over gloo and a store of its own process.

A rank is ended whatever happens: it dies with the process that started it, is killed when the fixture ends, and every
wait of the test has an end.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final, Self

import torch

from lifecycle import HostArena
from lifecycle.audit.projection import canonical
from lifecycle.distributed import RankAgreement
from states import Effect
from tests.lifecycle.world import World, make_world

WORLD, TIMEOUT_S = 4, 4.0
ROOT: Final = Path(__file__).parents[2]
_ANSWER_S: Final = 90.0
_DIE_WITH_PARENT: Final = 1
_CONTEXT: Final = multiprocessing.get_context("forkserver")


class Member:
    """What runs in a rank's process: one agreement, and one trainer after another."""

    def __init__(self, rank: int, store: str) -> None:
        self.rank = rank
        self.agreement = RankAgreement.over_gloo(rank, WORLD, store, timeout_s=TIMEOUT_S)
        self.faults: dict[str, str] = {}
        self.world: World
        self.held: Any = None

    def fresh(self, *, adapters: tuple[str, ...] = ("A", "B"), **changes: Any) -> None:
        """A new trainer with these adapters loaded."""
        self.faults, self.held = {}, None
        self.world = make_world(adapters=adapters, arena=HostArena(faults=self._fault), ranks=self.agreement, **changes)

    def send(self, *events: str, late_s: float = 0.0) -> None:
        """Events by the names of their methods, one after another."""
        time.sleep(late_s)
        for event in events:
            getattr(self.world.trainer, event)()

    def reconcile_partly(self) -> None:
        """Keep what can be loaded."""
        self.world.trainer.reconcile_adapters(partial="keep")

    def register(self, *names: str, bad: bool = False) -> None:
        """Adapters that the next reconcile loads, or fails to."""
        for name in names:
            self.world.host.register(name, 2, seed=5)
            if bad:
                self.world.host.bad.add(name)

    def forget(self, *names: str) -> None:
        """Take the registration back, and what was bad about it."""
        for name in names:
            self.world.host.bad.discard(name)
            self.world.host.wanted.pop(name, None)

    def fail_at(self, operation: str) -> None:
        """The saver fails at this operation from now on."""
        self.faults[operation] = "told to"

    def hook(self, effect: str, what: str) -> None:
        """Replace an effect by one that raises, or ends this process, or that cannot be undone."""
        effects = self.world.trainer._runner.effects
        real = effects[Effect(effect)]

        def hooked(parts: Any, work: Any) -> Callable[[], None]:
            if what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "raise":
                raise ValueError("a hook raised")
            undo = real(parts, work)

            def undo_and_raise() -> None:
                undo()
                raise ValueError("an undo raised")

            return undo_and_raise

        effects[Effect(effect)] = hooked

    def unhook(self) -> None:
        """All effects as they were."""
        from lifecycle.transition.effects import EFFECTS  # noqa: PLC0415

        self.world.trainer._runner.effects = dict(EFFECTS)

    def hold(self) -> None:
        """Read the weights under a lease that stays open."""
        self.held = self.world.trainer.weights("an export")
        self.held.__enter__()

    def look(self) -> dict[str, Any]:
        """Where this rank is."""
        world = self.world
        return {
            "state": str(world.trainer.state),
            "bytes": world.all_bytes() if str(world.trainer.state) != "faulted" else None,
            "versions": dict(world.trainer._parts.versions.wanted),
            "records": canonical(world.records()),
        }

    def _fault(self, operation: str, tag: str) -> None:
        if operation in self.faults:
            raise OSError(f"{operation} of {tag}: {self.faults[operation]}")


def serve(pipe: Connection, rank: int, store: str, kind: type[Member] = Member) -> None:
    """The process of a rank: does what it is told and answers, until the pipe closes."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    torch.set_num_threads(1)
    member = kind(rank, store)
    pipe.send(("ok", "here"))
    while True:
        try:
            what, positional, named = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("ok", getattr(member, what)(*positional, **named)))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            pipe.send(("error", Told.of(error)))


@dataclass(frozen=True)
class Told:
    """An error as a rank tells it."""

    kind: str
    text: str
    cause: str = ""
    keys: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException) -> Told:
        joint = getattr(error, "cause", None) or error
        keys = {name: getattr(joint, name) for name in ("ranks", "differences", "reasons", "waited_s", "generation")
                if hasattr(joint, name)}  # fmt: skip
        keys["adapter"] = getattr(error, "adapter", None)
        keys["failed"] = [(one.name, one.because) for one in getattr(error, "failed", ())]
        return cls(type(error).__name__, str(error), type(joint).__name__, keys)


class Ranks:
    """Four ranks and their store. Use it as a context manager.

    Args:
        kind: what runs in each of their processes.
    """

    def __init__(self, kind: type[Member] = Member) -> None:
        self._kind = kind
        command = [sys.executable, "-m", "lifecycle.distributed.store", "--until-eof"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.store = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.processes: dict[int, ForkServerProcess] = {}
        self._pipes: dict[int, Connection] = {}
        assert self.store.stdout is not None
        self.address = self.store.stdout.readline().decode().strip()
        self.start(*range(WORLD))

    def start(self, *ranks: int) -> None:
        """Start ranks, or new processes in the place of lost ones, and wait until they are there."""
        for rank in ranks:
            self._start(rank)
        for rank in ranks:
            assert self.hear(rank) == "here"

    def _start(self, rank: int) -> None:
        self.end(rank)
        here, there = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=serve, args=(there, rank, self.address, self._kind), daemon=True)
        process.start()
        there.close()
        self.processes[rank], self._pipes[rank] = process, here

    def end(self, rank: int) -> None:
        """Kill a rank and wait for it; one that is stopped too."""
        process = self.processes.pop(rank, None)
        if process is not None:
            process.kill()
            process.join(10)
            self._pipes.pop(rank).close()

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a rank."""
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, number)

    def tell(self, rank: int, what: str, *positional: Any, **named: Any) -> None:
        """Tell one rank what to do, without waiting for the answer."""
        self._pipes[rank].send((what, positional, named))

    def hear(self, rank: int) -> Any:
        """Its answer: a value, or a :class:`Told`."""
        if not self._pipes[rank].poll(_ANSWER_S):
            raise TimeoutError(f"rank {rank} did not answer in {_ANSWER_S} s")
        return self._pipes[rank].recv()[1]

    def one(self, rank: int, what: str, *positional: Any, **named: Any) -> Any:
        """Let one rank do something that needs no other rank."""
        self.tell(rank, what, *positional, **named)
        return self.hear(rank)

    def all(
        self, what: str, *positional: Any, but: Mapping[int, Mapping[str, Any]] | None = None,
        deaf: tuple[int, ...] = (), **named: Any
    ) -> dict[int, Any]:  # fmt: skip
        """Let all ranks do something together. Returns rank to answer.

        Args:
            what: the method of :class:`Member`.
            positional: its arguments.
            but: arguments that are others on some ranks.
            deaf: ranks that are not told and not heard.
            named: its arguments.
        """
        ranks = [rank for rank in self.processes if rank not in deaf]
        for rank in ranks:
            self.tell(rank, what, *positional, **named, **(but or {}).get(rank, {}))
        return {rank: self.hear(rank) for rank in ranks}

    def close(self) -> None:
        """End everything."""
        for rank in list(self.processes):
            self.end(rank)
        self.store.kill()
        self.store.wait()
        for pipe in (self.store.stdin, self.store.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
