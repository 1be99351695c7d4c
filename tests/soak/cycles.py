"""Sleep and wake cycles without end: reconciles, pushes, switches and checkpoint loads in between, and nothing grows.

``make soak`` runs 5,000 of them. The configurations take turns; within a turn memory, descriptors, mappings, files and
records have to be what they were after its first periods.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

from lifecycle import HostArena
from lifecycle.audit.log import MemoryAudit
from states import ACTOR
from tests.lifecycle.faulted_events import CONFIGURATIONS, readable_bytes
from tests.lifecycle.world import FakeEngine, World, make_world
from tests.saver.proc import descriptors, mappings, pss_bytes

RECORDS_MAX = 200
PERIOD = 20
"""After so many cycles a run is where it was: what is held is compared at whole periods."""

GROWTH_BYTES = 4 * 2**20
"""Memory that may come without being a leak: allocators keep some, and the interpreter's free lists."""


@dataclass(frozen=True)
class Figures:
    """What is held at one moment.

    Attributes:
        memory: anonymous and shared bytes that are this process's own share.
        descriptors: open files.
        mappings: lines of the kernel's list.
        files: in the directory of base files and backups.
        records: kept in memory by the log.
        digests: kept by the version book.
        snapshots: host bytes of kept models.
        objects: tracked by the garbage collector.
    """

    memory: int
    descriptors: int
    mappings: int
    files: int
    records: int
    digests: int
    snapshots: int
    objects: int


def figures(world: World, folder: Path) -> Figures:
    """What is held now, garbage not counted."""
    gc.collect()
    return Figures(
        memory=pss_bytes(),
        descriptors=descriptors(),
        mappings=mappings(),
        files=len(list(folder.iterdir())),
        records=len(world.audit.records),
        digests=len(world.trainer._parts.versions.digests),
        snapshots=world.trainer.snapshots.host_bytes(),
        objects=len(gc.get_objects()),
    )


@dataclass
class Run:
    """One configuration's turn.

    Attributes:
        world: the trainer.
        engine: restarts now and then.
        folder: for its files.
        cycles: done so far.
    """

    world: World
    engine: FakeEngine
    folder: Path
    cycles: int = 0

    def cycle(self) -> None:
        """Train, sleep, reconcile, push, wake; every so often a switch, a checkpoint, a restart."""
        trainer, number = self.world.trainer, self.cycles
        self.world.train("A")
        if number % 4 == 0:
            with trainer.step(["A"]) as step:
                self.world.backward("A")
                step.accumulated()
        trainer.sleep(offload=True)
        if number % 2 == 0:
            self._swap_an_adapter()
        if number % 10 == 9:
            self.engine.restart()
        trainer.update_weights([self.engine])
        before = readable_bytes(self.world) if number % PERIOD == 0 else None
        trainer.wake_up()
        if before is not None:
            now = readable_bytes(self.world)
            assert {name: now[name] for name in before} == before, f"bytes differ after cycle {number}"
        if number % 5 == 4:
            trainer.keep_model("old_actor")
            trainer.switch_model("ref")
            trainer.switch_model(ACTOR)
        if number % PERIOD == PERIOD - 1:
            with trainer.loading_checkpoint(), torch.no_grad():
                self.world.model.up += 1e-3
        self.cycles += 1

    def _swap_an_adapter(self) -> None:
        host = self.world.host
        if "C" in host.wanted:
            host.deregister("C")
        else:
            host.register("C", 2)
        self.world.trainer.reconcile_adapters()


def begin(configuration: str, folder: Path) -> Run:
    """A world of this configuration with a kept model of another base, and a log that keeps few records."""
    settings = {**CONFIGURATIONS[configuration], "with_ref": True, "keep_old_actor": True}
    world = make_world(arena=HostArena(disk_dir=str(folder)), **settings)
    world.audit = MemoryAudit(records_max=RECORDS_MAX)
    world.trainer._runner.recorder._audit = world.audit
    base = world.trainer._parts.inventory.base["frozen-base"]
    if settings["strategy"] != "lean":
        world.trainer.snapshots.backup(ACTOR)
    world.trainer.keep_model("ref", {name: one.detach() + 1 for name, one in base.items()})
    return Run(world, FakeEngine(), folder)


def grown(first: Figures, last: Figures) -> list[str]:
    """What is more than it was, beyond what is no leak."""
    allowed = Figures(GROWTH_BYTES, 0, 16, 0, RECORDS_MAX, 0, 0, 2000)
    names = Figures.__dataclass_fields__
    rows = zip(names, astuple(first), astuple(last), astuple(allowed), strict=True)
    return [f"{name} grew from {was} to {now}" for name, was, now, more in rows if now > was + more]


def soak(
    cycles: int, configurations: Iterable[str] = tuple(CONFIGURATIONS), show: Callable[[str], None] = print
) -> list[str]:
    """Run at least so many cycles, spread over the configurations.

    Returns:
        What has grown; empty when nothing has.
    """
    names, found = tuple(configurations), []
    show(_HEAD)
    share = max(2, -(-cycles // len(names) // PERIOD)) * PERIOD
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            found += [f"{name}: {one}" for one in turn(name, Path(place), share, show)]
    return found


def turn(configuration: str, folder: Path, cycles: int, show: Callable[[str], None]) -> list[str]:
    """One configuration's turn. What has grown since its first periods."""
    run, seen = begin(configuration, folder), []
    warm_up = min(2, cycles // PERIOD - 1) * PERIOD
    marks = {warm_up, cycles, *(cycles * part // 4 // PERIOD * PERIOD for part in (1, 2, 3))}
    started = time.monotonic()
    while run.cycles < cycles:
        run.cycle()
        if run.cycles in marks and run.cycles >= warm_up:
            seen.append(figures(run.world, folder))
            show(_row(configuration, run.cycles, seen[-1], time.monotonic() - started))
    file, _ = run.world.trainer._parts.file.held()
    if file is not None:
        file.discard()
    run.world.arena.close()
    return grown(seen[0], seen[-1])


_HEAD = (
    f"{'configuration':36} {'cycles':>6} {'MiB':>7} {'files':>5} {'fds':>4} {'maps':>5} {'records':>7} {'digests':>7} "
    f"{'copies':>8} {'objects':>8} {'s':>6}"
)


def _row(configuration: str, cycles: int, now: Figures, seconds: float) -> str:
    return (
        f"{configuration:36} {cycles:6} {now.memory / 2**20:7.1f} {now.files:5} {now.descriptors:4} {now.mappings:5} "
        f"{now.records:7} {now.digests:7} {now.snapshots:8} {now.objects:8} {seconds:6.0f}"
    )
