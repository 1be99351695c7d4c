"""The steps of a hand-over in one order, with the bytes that are held while each runs and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from states.handover_needs import RESUME_ORDER, WEIGHTS, EngineBytes, HandoverSizes, MemoryPeak


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverStep:
    """One step, and the bytes that are held while it runs and after it. A step takes before it gives.

    Attributes:
        does: ``sleep``, ``offload``, ``update_weights``, ``wake_up``, ``resume`` or ``release``.
        engine: whose step it is, empty for the trainer's.
        tags: the memory tags that an engine resumes or releases, in that order.
        host_peak_bytes: the most that is held on the host while it runs.
        device_peak_bytes: the most that is held on the device while it runs.
        host_bytes: held on the host after it.
        device_bytes: held on the device after it.
        sends_bytes: what ``update_weights`` has to send to all engines together.
        discards: a release that keeps no copy of the weights.
    """

    does: str
    engine: str = ""
    tags: tuple[str, ...] = ()
    host_peak_bytes: int
    device_peak_bytes: int
    host_bytes: int
    device_bytes: int
    sends_bytes: int = 0
    discards: bool = False

    def __str__(self) -> str:
        return f"{self.engine}.{self.does}({','.join(self.tags)})" if self.engine else self.does

    def told(self) -> dict[str, object]:
        """As it stands in the log."""
        peaks = {"host_peak_bytes": self.host_peak_bytes, "device_peak_bytes": self.device_peak_bytes}
        levels = {"host_bytes": self.host_bytes, "device_bytes": self.device_bytes}
        sends = {"sends_bytes": self.sends_bytes} if self.does == "update_weights" else {}
        return {"step": str(self), **peaks, **levels, **sends, **({"discards": True} if self.discards else {})}


@dataclass(frozen=True, slots=True)
class Leg:
    """One way of the hand-over in one order.

    Attributes:
        memory_peak: where the two sides overlap.
        keeps_weights: the weights of the engines that can do so stay on the device (on the way back).
        steps: in order.
    """

    memory_peak: MemoryPeak
    keeps_weights: bool
    steps: tuple[HandoverStep, ...]

    @property
    def host_peak_bytes(self) -> int:
        """The most that is held on the host at any moment of it."""
        return max(step.host_peak_bytes for step in self.steps)

    @property
    def device_peak_bytes(self) -> int:
        """The most that is held on the device at any moment of it."""
        return max(step.device_peak_bytes for step in self.steps)

    @property
    def host_bytes(self) -> int:
        """Held on the host at its end."""
        return self.steps[-1].host_bytes

    @property
    def device_bytes(self) -> int:
        """Held on the device at its end."""
        return self.steps[-1].device_bytes

    def told(self) -> dict[str, object]:
        """As it stands in the log."""
        return {
            "memory_peak": str(self.memory_peak),
            "keeps_weights": self.keeps_weights,
            "host_peak_bytes": self.host_peak_bytes,
            "device_peak_bytes": self.device_peak_bytes,
            "steps": [step.told() for step in self.steps],
        }


def way_there(sizes: HandoverSizes, peak: MemoryPeak) -> Leg:
    """The way to the engines from what is held now: their weights, what changed, then the rest of their memory."""
    moves = _there(sizes, peak)
    return Leg(peak, False, tuple(_walk(moves, sizes.host_held_bytes, sizes.device_held_bytes)))


def way_back(sizes: HandoverSizes, peak: MemoryPeak, there: Leg, *, keeps_weights: bool) -> Leg:
    """The way back after *there*, when every engine holds all of its memory."""
    moves = _back(sizes, peak, keeps_weights=keeps_weights)
    return Leg(peak, keeps_weights, tuple(_walk(moves, there.host_bytes, there.device_bytes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    does: str
    engine: str = ""
    tags: tuple[str, ...] = ()
    takes_host: int = 0
    takes_device: int = 0
    gives_host: int = 0
    gives_device: int = 0
    sends: int = 0
    discards: bool = False


def _walk(moves: Iterable[_Move], host_bytes: int, device_bytes: int) -> Iterator[HandoverStep]:
    for move in moves:
        host_peak, device_peak = host_bytes + move.takes_host, device_bytes + move.takes_device
        host_bytes, device_bytes = host_peak - move.gives_host, device_peak - move.gives_device
        yield HandoverStep(
            does=move.does,
            engine=move.engine,
            tags=move.tags,
            host_peak_bytes=host_peak,
            device_peak_bytes=device_peak,
            host_bytes=host_bytes,
            device_bytes=device_bytes,
            sends_bytes=move.sends,
            discards=move.discards,
        )


def _there(sizes: HandoverSizes, peak: MemoryPeak) -> Iterator[_Move]:
    one = sizes.trainer
    yield _Move(does="sleep", takes_host=one.kept_bytes, gives_host=one.replaced_bytes, gives_device=one.scratch_bytes)
    gives = [_Move(does="offload", takes_host=one.backup_bytes, gives_device=one.weights_bytes)]
    offload = gives if one.target is not None else []
    takes = [move for engine in sizes.engines for move in _resume(engine, weights=True)]
    yield from (*offload, *takes) if peak is MemoryPeak.HOST else (*takes, *offload)
    yield _Move(does="update_weights", sends=sum(engine.sends_bytes(one.base_bytes) for engine in sizes.engines))
    for engine in sizes.engines:
        yield from _resume(engine, weights=False)


def _resume(engine: EngineBytes, *, weights: bool) -> Iterator[_Move]:
    """What it lacks, of its weights or of everything else; a tag that is resident is never asked for."""
    lacks = (tag for tag in RESUME_ORDER if tag in engine.tags and tag not in engine.resident)
    tags = tuple(tag for tag in lacks if (tag == WEIGHTS) is weights)
    if tags:
        mirror, size = engine.mirror_held_bytes if weights else 0, engine.device_bytes(tags)
        yield _Move(does="resume", engine=engine.name, tags=tags, takes_device=size, gives_host=mirror)


def _back(sizes: HandoverSizes, peak: MemoryPeak, *, keeps_weights: bool) -> Iterator[_Move]:
    one = sizes.trainer
    stays = one.weights_bytes if one.target is None else 0
    later: list[_Move] = []
    for engine in sizes.engines:
        tags = [tag for tag in reversed(RESUME_ORDER) if tag in engine.tags]
        if keeps_weights and engine.may_keep_weights:
            tags.remove(WEIGHTS)
        waits = [] if peak is MemoryPeak.HOST else [tag for tag in tags if tag == WEIGHTS or not engine.releases_apart]
        yield from _release(engine, tuple(tag for tag in tags if tag not in waits))
        later += _release(engine, tuple(waits))
    yield _Move(does="wake_up", takes_device=max(0, one.awake_bytes - stays), gives_host=one.returned_bytes)
    yield from later


def _release(engine: EngineBytes, tags: tuple[str, ...]) -> Iterator[_Move]:
    if not tags:
        return
    discards = engine.discards and WEIGHTS in tags
    mirror = engine.mirror_bytes if WEIGHTS in tags and not discards else 0
    size = engine.device_bytes(tags)
    yield _Move(does="release", engine=engine.name, tags=tags, takes_host=mirror, gives_device=size, discards=discards)
