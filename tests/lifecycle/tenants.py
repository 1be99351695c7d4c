"""Fake engines whose memory is real, and a meter that looks at all of it in the middle of every native call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from lifecycle import Backup, HostArena, MemorySaver
from lifecycle.engines.protocol import EngineReport
from tests.lifecycle.world import FakeEngine, World, make_world


class Tenant(FakeEngine):
    """An engine with both of its tags in the trainer's saver. Released after construction."""

    def __init__(self, saver: MemorySaver, weights_bytes: int, kv_cache_bytes: int, name: str = "E0") -> None:
        super().__init__(name)
        self._saver = saver
        saver.place({"weights": torch.ones(weights_bytes, dtype=torch.uint8)}, f"{name}/weights", Backup.CPU)
        saver.place({"kv_cache": torch.zeros(kv_cache_bytes, dtype=torch.uint8)}, f"{name}/kv_cache", Backup.NONE)
        self.release(("weights", "kv_cache"))

    def report(self) -> EngineReport:
        infos = {tag: self._saver.tags()[f"{self.name}/{tag}"] for tag in ("weights", "kv_cache")}
        return replace(
            super().report(),
            device_bytes={tag: info.size_bytes for tag, info in infos.items()},
            mirror_bytes=infos["weights"].size_bytes,
            saver_tags=tuple(info.tag for info in infos.values()),
        )

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        wanted = tuple(tags)
        for tag in sorted(self.resident & set(wanted)):
            self._saver.pause(f"{self.name}/{tag}")
        super().release(wanted)

    def resume(self, tags: Iterable[str]) -> None:
        wanted = tuple(tags)
        for tag in sorted(set(wanted) - self.resident):
            self._saver.resume(f"{self.name}/{tag}")
        super().resume(wanted)


class Foreign(FakeEngine):
    """An engine with memory of its own: what stands for its device memory, and a mirror while that is released."""

    def __init__(self, weights_bytes: int, kv_cache_bytes: int, name: str = "E1") -> None:
        super().__init__(name, resident=set())
        self.sizes = {"weights": weights_bytes, "kv_cache": kv_cache_bytes}
        self.mirror: Tensor | None = torch.ones(weights_bytes, dtype=torch.uint8)
        self.device: dict[str, Tensor] = {}
        self.meter: Meter | None = None

    def report(self) -> EngineReport:
        return replace(super().report(), device_bytes=self.sizes, mirror_bytes=self.sizes["weights"])

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        wanted = tuple(tags)
        for tag in self.resident & set(wanted):
            if tag == "weights":
                self.mirror = self.device[tag].clone()
                self._look()
            del self.device[tag]
        super().release(wanted)

    def resume(self, tags: Iterable[str]) -> None:
        wanted = tuple(tags)
        for tag in set(wanted) - self.resident:
            self.device[tag] = torch.ones(self.sizes[tag], dtype=torch.uint8)
            self._look()
            if tag == "weights":
                self.mirror = None
        super().resume(wanted)

    def _look(self) -> None:
        if self.meter is not None:
            self.meter.look()


class Meter:
    """The most that was held, on the host and on the device, looked at before and within every native call."""

    def __init__(self, **changes: object) -> None:
        self.calls: list[tuple[str, str]] = []
        self.world: World | None = None
        self.engines: list[Foreign] = []
        self.host_bytes = self.device_bytes = 0
        arena = HostArena(faults=self._native)
        self.world = make_world(arena=arena, adapters=("A",), slots=1, **changes)
        self.world.trainer.subscribe(lambda _: self.look())
        self.begin()

    def begin(self, *foreign: Foreign) -> None:
        """Measure from now on, these engines included."""
        self.engines = list(foreign)
        for engine in foreign:
            engine.meter = self
        self.calls.clear()
        self.host_bytes = self.device_bytes = 0
        self.look()

    def look(self) -> None:
        """What is held now."""
        if self.world is None:
            return
        trainer = self.world.trainer
        blocks = self.world.arena.port._estate.blocks.values()
        backups = sum(block.size_bytes for block in blocks if block.slot is not None)
        copies = trainer.snapshots.host_bytes() + trainer._parts.gradients.kept_bytes()
        mirrors = sum(one.mirror.nbytes for one in self.engines if one.mirror is not None)
        self.host_bytes = max(self.host_bytes, backups + copies + mirrors)
        active = sum(block.size_bytes for block in blocks if not block.paused)
        foreign = sum(held.nbytes for one in self.engines for held in one.device.values())
        self.device_bytes = max(self.device_bytes, active + foreign)

    def _native(self, operation: str, tag: str) -> None:
        self.calls.append((operation, tag))
        self.look()
