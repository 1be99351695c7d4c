"""A hand-over on the compiled torch_memory_saver, measured by the kernel. Runs in a child: the library may end it."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path

from lifecycle.saver.room import CarefulSaver
from states.handover import HandoverPlan
from tests.lifecycle.tenants import Tenant
from tests.lifecycle.world import World, make_world
from tests.saver.real_port import RealLibrary, RealPort


def pss_bytes() -> tuple[int, int]:
    """Anonymous memory (backups) and shared memory (the stand-in's device) of this process."""
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    return sizes["Pss_Anon"], sizes["Pss_Shmem"]


class WatchedPort(RealPort):
    """Looks after each native call: a pause has written its backup, a resume has not yet made room for the next."""

    look: Callable[[], object] = staticmethod(lambda: None)

    def pause(self, tag: str) -> None:
        super().pause(tag)
        self.look()

    def resume(self, tag: str) -> None:
        super().resume(tag)
        self.look()


class Watch:
    """The most that the kernel has seen, less what there was before."""

    def __init__(self) -> None:
        self.before = pss_bytes()
        self.most = [0, 0]

    def look(self) -> None:
        """Now."""
        self.most = [max(most, now - was) for most, now, was in zip(self.most, pss_bytes(), self.before, strict=True)]


def main(folder: Path) -> None:
    """One turn that fits 1.2 times the base, then one in the other order; prints what was predicted and seen."""
    port = WatchedPort(RealLibrary(folder))
    saver = CarefulSaver(port)
    _, device = pss_bytes()
    world: World = make_world(arena=saver, adapters=("A",), slots=1)  # type: ignore[arg-type]
    started = pss_bytes()[0], device  # attached, and no backup is held yet
    base = sum(info.size_bytes for info in world.trainer._parts.layout.tags().weights)
    engine = Tenant(saver, base, 4096)
    budgets = {"host_budget_bytes": int(1.2 * base), "device_budget_bytes": 3 * base, "engine_keeps_weights": False}
    for name, size in budgets.items():
        object.__setattr__(world.trainer.config, name, size)
    plan = world.trainer.plan_handoff([engine])
    assert isinstance(plan, HandoverPlan), plan
    seen = turn(world, engine, port, started)
    object.__setattr__(world.trainer.config, "host_budget_bytes", None)
    other = turn(world, engine, port, started, memory_peak="host")
    answer = {
        "base": base,
        "memory_peak": plan.there.memory_peak,
        "predicted_host": plan.host_peak_bytes,
        "predicted_device": plan.device_peak_bytes,
        "host": seen.most[0],
        "device": seen.most[1],
        "host_peak_order_host": other.most[0],
    }
    print(json.dumps(answer))


def turn(
    world: World, engine: Tenant, port: WatchedPort, started: tuple[int, int], memory_peak: str | None = None
) -> Watch:
    """One turn, watched."""
    watch = Watch()
    watch.before = started
    port.look = watch.look
    watch.look()
    with world.trainer.handoff([engine], memory_peak=memory_peak):
        watch.look()
    watch.look()
    return watch
