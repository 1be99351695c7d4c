"""Random runs of a real trainer that write a log: any order of calls and faults, of many configurations."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from lifecycle import HostArena, TrainerState
from lifecycle.audit import AuditLog
from lifecycle.errors import LifecycleError
from lifecycle.transition.records import LogStanding
from lifecycle.weights.leases import WeightLease
from states import ACTOR, Strategy, Verify
from tests.lifecycle.injector import Injector
from tests.lifecycle.world import FakeEngine, World, make_world

SLOTS = {"A": 0, "B": 1, "C": 2}
PLACES: tuple[dict[str, str], ...] = ({}, {}, {"frozen_base": "file"}, {"offload_target": "disk"})
BASE = ("embed", "up", "down")
KINDS = ("error", "interrupt", "ENOSPC", "EIO", "out of memory")


def record(world: World, log: AuditLog) -> None:
    """The trainer's records go into this log from now on, as if it had begun with it."""
    recorder = world.trainer._runner.recorder
    recorder._audit = log
    recorder.go_on(LogStanding(0, {}, sys.maxsize))


class Run:
    """One trainer, two engines and leases, and what may be asked of them."""

    def __init__(self, seed: int, folder: Path, **options: Any) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - a test
        torch.manual_seed(seed)
        chosen = {
            "strategy": self.draw.choice(list(Strategy)),
            "verify": self.draw.choice(list(Verify)),
            "colocate": self.draw.random() < 0.7,
            "with_ref": True,
            **self.draw.choice(PLACES),
        }
        self.chosen = {**chosen, "trainable": self.draw.random() < 0.4}
        self.retains = self.draw.random() < 0.3
        rotates = {"max_bytes": self.draw.choice([None, 20_000]), "compress": True}
        self.folder, self.options = folder, {**rotates, **options}
        self.engines = [FakeEngine("E0"), FakeEngine("E1")]
        self.leases: list[WeightLease] = []
        self.lost_before = 0
        self.begin()

    def begin(self) -> None:
        """A process begins: a new trainer, and the log that there is goes on."""
        arena = HostArena(disk_dir=str(self.folder / "disk"), retain_host_backup=self.retains)
        self.world = make_world(arena=arena, **self.chosen)
        self.log = AuditLog(self.folder / "audit.jsonl", **self.options)
        record(self.world, self.log)

    def restart(self) -> None:
        """The process ends between two events, or in the middle of writing what it was about to begin."""
        self.close_all()
        with suppress(LifecycleError):
            self.world.trainer.wake_up()  # its facts say that nobody reads any more
        self.lost_before = self.lost_records
        self.log.close()
        if self.draw.random() < 0.5:
            with self.log.path.open("ab") as file:
                file.write(b'{"event":"lifecycle.began","schema":2,"sequ')
        self.begin()

    @property
    def lost_records(self) -> int:
        """How many records could not be written, because a fault was one of the log's own disk: it is no good log."""
        return self.lost_before + len(self.world.trainer.audit_failures)

    def live(self, calls: int = 25) -> Path:
        """So many calls; then everything is closed, and the last event says so. The path of the log."""
        for _ in range(calls):
            with suppress(LifecycleError):
                self.draw.choice(self.calls())()
            self.mend()
        self.close_all()
        with suppress(LifecycleError):
            self.world.trainer.wake_up()
        self.log.close()
        return self.log.path

    def calls(self) -> list[Callable[[], object]]:
        """What may be asked; what is asked more often stands there several times."""
        trainer = self.world.trainer
        moves = [self.turn, self.turn, trainer.sleep, trainer.offload, trainer.wake_up, trainer.wake_up]
        pushes = [self.push, self.push, self.restart_engine, self.adopt]
        steps = [self.train, self.train, self.train, self.accumulate, self.abort, self.load]
        models = [self.keep, self.keep_another, self.switch, self.switch, self.release]
        return [*moves, *pushes, *steps, *models, self.register, self.deregister, self.reconcile, self.reconcile,
                self.lease, self.close, self.fail, self.fail, self.restart]  # fmt: skip

    def name(self) -> str:
        """A loaded adapter, or one that is not."""
        return self.draw.choice([*self.world.host.loaded(), "A"])

    def turn(self) -> None:
        """To sleep and offloaded."""
        self.world.trainer.sleep()
        self.world.trainer.offload()

    def train(self) -> None:
        """A real step."""
        name = self.name()
        if name in self.world.host.loaded():
            self.world.train(name)

    def accumulate(self) -> None:
        """Only gradients change."""
        with self.world.trainer.step([self.name()]) as step:
            step.accumulated()

    def abort(self) -> None:
        """A step that fails inside."""
        with suppress(KeyError), self.world.trainer.step([self.name()]):
            raise KeyError

    def load(self) -> None:
        """Another base comes."""
        with self.world.trainer.loading_checkpoint(), torch.no_grad():
            self.world.model.up += self.draw.randrange(2)

    def register(self) -> None:
        """A name is registered, or registered anew."""
        name = self.draw.choice(list(SLOTS))
        self.world.host.register(name, SLOTS[name], self.draw.randrange(4))

    def deregister(self) -> None:
        """A name goes."""
        self.world.host.wanted.pop(self.draw.choice(list(SLOTS)), None)

    def reconcile(self) -> None:
        """Slots follow the registry."""
        self.world.trainer.reconcile_adapters()

    def push(self) -> None:
        """Engines get what they lack."""
        self.world.trainer.update_weights(self.draw.choice([self.engines, self.engines[:1], self.engines[1:]]))

    def restart_engine(self) -> None:
        """A new instance holds nothing, or a push to it fails."""
        engine = self.draw.choice(self.engines)
        engine.restart()
        engine.fails_at = self.draw.choice(["", "", "base", "commit", "begin"])

    def adopt(self) -> None:
        """An engine that is ahead, and the trainer that goes on above it."""
        if self.draw.random() < 0.3:
            self.engines[0].versions["adapter/A"] = self.world.trainer._parts.versions.newest + 5
        self.world.trainer.adopt_versions(self.engines)

    def keep(self) -> None:
        """What is live, under a tag."""
        self.world.trainer.keep_model(self.draw.choice(["ref", "old_actor"]))

    def keep_another(self) -> None:
        """A model with a base of its own."""
        given = {name: torch.full_like(getattr(self.world.model, name), 2) for name in BASE}
        self.world.trainer.keep_model("ref", given)

    def release(self) -> None:
        """A kept model goes."""
        self.world.trainer.snapshots.release(self.draw.choice(["ref", "old_actor", ACTOR]))

    def switch(self) -> None:
        """Another model, or the actor back."""
        self.world.trainer.switch_model(self.draw.choice([ACTOR, ACTOR, "ref", "old_actor"]))

    def lease(self) -> None:
        """Somebody reads."""
        if len(self.leases) < 2:
            self.leases.append(self.world.trainer.weights(f"reader {len(self.leases)}"))

    def close(self) -> None:
        """And stops."""
        if self.leases:
            self.leases.pop().close()

    def close_all(self) -> None:
        """Nobody reads any more."""
        while self.leases:
            self.leases.pop().close()
        gc.collect()

    def fail(self) -> None:
        """Something fails somewhere in an event."""
        trainer, injector, kind = self.world.trainer, Injector(), self.draw.choice(KINDS)
        calls = [trainer.sleep, trainer.offload, trainer.wake_up, self.push, self.reconcile, self.switch]
        injector.arm(self.draw.randrange(1, 40), kind, sticky=kind != "interrupt" and self.draw.random() < 0.3)
        try:
            with injector.on(self.world, self.engines):
                self.draw.choice(calls)()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the log tells it
            error.__traceback__ = None

    def mend(self) -> None:
        """Out of faulted."""
        if self.world.trainer.state is TrainerState.FAULTED:
            self.close_all()
            with suppress(LifecycleError):
                self.world.trainer.recover()
