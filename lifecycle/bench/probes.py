"""Figures that are ratios to a bare operation on the same bytes, each measured in a fresh process, in pairs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor

from lifecycle.audit.log import AuditLog
from lifecycle.bench.clock import seconds
from lifecycle.bench.model import BenchModel
from lifecycle.bench.options import Case
from lifecycle.bench.probe_adapters import probe_reconcile, probe_registry
from lifecycle.bench.probe_audit import probe_audit
from lifecycle.bench.probe_handover import probe_handover
from lifecycle.bench.trainer import BenchTrainer
from lifecycle.saver import Backup, HostArena, pages
from lifecycle.saver.views import bytes_at

_WARM_UP: Final = 2
_OVERHEAD_ROUNDS: Final = 300


def probe_views(case: Case, folder: Path, repetitions: int) -> dict[str, Any]:
    """``weights()`` of an offloaded trainer against bare views of the same backup, and whether a byte was copied.

    A bare view is what a program would write that knew the address of the backup: slice, dtype, shape.
    """
    trainer = _offloaded(case, folder)
    opening, viewing, bare = [], [], []
    with trainer.controller.weights("bench") as lease:
        memory, spans = _where({name: lease[name] for name in lease})
    for _ in range(repetitions + _WARM_UP):
        started = time.perf_counter()
        others = {name: _bare_view(memory, span) for name, span in spans.items()}
        bare.append(time.perf_counter() - started)
        del others
        started = time.perf_counter()
        lease = trainer.controller.weights("bench")
        opened = time.perf_counter()
        views = {name: lease[name] for name in lease}
        viewing.append(time.perf_counter() - opened)
        opening.append(opened - started)
        first = memory.data_ptr()
        elsewhere = sum(one.data_ptr() - first != spans[name][0] for name, one in views.items())
        del views
        lease.close()
    ratios = [view / one for view, one in zip(viewing, bare, strict=True)][_WARM_UP:]
    return {
        "tensors": len(spans),
        "open_seconds": median(opening[_WARM_UP:]),
        "views_seconds": median(viewing[_WARM_UP:]),
        "bare_seconds": median(bare[_WARM_UP:]),
        "ratio": median(ratios),
        "copied_tensors": elsewhere,
    }


def _offloaded(case: Case, folder: Path) -> BenchTrainer:
    trainer = BenchTrainer(case, folder, folder / "audit-views.jsonl")
    for event in ("attach", "first_reconcile", "sleep", "offload"):
        trainer.do(event)
    return trainer


_Span = tuple[int, int, torch.dtype, torch.Size]


def _where(views: dict[str, Tensor]) -> tuple[Tensor, dict[str, _Span]]:
    """All backups as one range of bytes, and where in it each tensor lies."""
    first = min(one.data_ptr() for one in views.values())
    last = max(one.data_ptr() + one.nbytes for one in views.values())
    spans = {name: (one.data_ptr() - first, one.nbytes, one.dtype, one.shape) for name, one in views.items()}
    return bytes_at(first, last - first), spans


def _bare_view(memory: Tensor, span: _Span) -> Tensor:
    offset, size_bytes, dtype, shape = span
    return memory[offset : offset + size_bytes].view(dtype).view(shape)


def probe_arena(case: Case, _folder: Path, repetitions: int) -> dict[str, Any]:
    """Pause and resume of the arena against a bare copy of as many bytes into fresh pages, made just before."""
    arena = HostArena()
    tensor = torch.ones(case.base_bytes, dtype=torch.uint8)
    arena.place({"base": tensor}, "bench/base", Backup.CPU)
    bare, pausing, other, resuming = [], [], [], []
    source = torch.ones(case.base_bytes, dtype=torch.uint8)  # readable also while the other one is paused
    for _ in range(repetitions + 1):
        bare.append(_copy_into_fresh_pages(source))
        pausing.append(seconds(lambda: arena.pause("bench/base")))
        other.append(_copy_into_fresh_pages(source))
        resuming.append(seconds(lambda: arena.resume("bench/base")))
    kept_bytes = arena.usage().host_bytes
    arena.close()
    return {
        "base_bytes": case.base_bytes,
        "bare_seconds": median(bare[1:] + other[1:]),
        "pause_seconds": median(pausing[1:]),
        "resume_seconds": median(resuming[1:]),
        "pause_ratio": _ratio(bare, pausing),
        "resume_ratio": _ratio(other, resuming),
        "kept_after_resume_bytes": kept_bytes,
    }


def _ratio(bare: list[float], measured: list[float]) -> float:
    """The median of pairs, without the first: how fast it is, as a part of the bare operation's speed."""
    return median(one / another for one, another in zip(bare[1:], measured[1:], strict=True))


def _copy_into_fresh_pages(tensor: Tensor) -> float:
    """Seconds to map new pages and copy the bytes there; the pages are given back outside that time."""
    size_bytes = pages.round_up(tensor.nbytes)
    started = time.perf_counter()
    fresh = pages.map_fresh(size_bytes)
    pages.copy(tensor.data_ptr(), fresh, tensor.nbytes)
    took = time.perf_counter() - started
    pages.unmap(fresh, size_bytes)
    return took


class TimedArena(HostArena):
    """An arena that adds up how long its pauses and resumes take, so that the rest is the controller's.

    Attributes:
        seconds: in pauses and resumes so far.
    """

    seconds = 0.0

    def pause(self, tag: str) -> None:
        """See :meth:`HostArena.pause`."""
        self.seconds += seconds(lambda: super(TimedArena, self).pause(tag))

    def resume(self, tag: str) -> None:
        """See :meth:`HostArena.resume`."""
        self.seconds += seconds(lambda: super(TimedArena, self).resume(tag))


class TimedLog(AuditLog):
    """A log that adds up how long its records take.

    Attributes:
        seconds: in records so far.
    """

    seconds = 0.0

    def write(self, name: str, keys: Mapping[str, object]) -> None:
        """See :meth:`AuditLog.write`."""
        self.seconds += seconds(lambda: super(TimedLog, self).write(name, keys))


_MOVES: Final = ("step", "sleep", "offload", "wake_up")
_SETTLED: Final = ("sleep", "offload", "update_weights", "wake_up", "nothing_to_reconcile")


def probe_overhead(case: Case, folder: Path, _repetitions: int) -> dict[str, Any]:
    """What an event costs when there is next to nothing to move, with the audit log on a disk.

    Weights of a few bytes. Each event is sent, and sent again when what it asks for holds already. The time inside
    the saver's pauses and resumes is taken off; the time inside the log stands beside it. A step is two events.
    """
    arena, model = TimedArena(), BenchModel(case, width=1, modules=1)
    trainer = BenchTrainer(case, folder, folder / "overhead.jsonl", arena=arena, model=model, kind=TimedLog)
    for event in ("attach", "first_reconcile"):
        trainer.do(event)
    assert isinstance(trainer.log, TimedLog)
    taken: dict[str, dict[str, list[float]]] = {"moves": {}, "moves_log": {}, "settled": {}, "settled_log": {}}
    for _ in range(_OVERHEAD_ROUNDS + _WARM_UP):
        for event in ("step", "sleep", "offload", "update_weights", "wake_up", "nothing_to_reconcile"):
            before, logged = arena.seconds, trainer.log.seconds
            sample, calls = trainer.do(event)[event], 2 if event == "step" else 1
            if event in _MOVES:
                took = sample["seconds"] - (arena.seconds - before)
                taken["moves"].setdefault(event, []).append(took / calls)
                taken["moves_log"].setdefault(event, []).append((trainer.log.seconds - logged) / calls)
            if event in _SETTLED:
                logged = trainer.log.seconds
                taken["settled"].setdefault(event, []).append(trainer.do(event)[event]["seconds"])
                taken["settled_log"].setdefault(event, []).append(trainer.log.seconds - logged)
    return {kind: _medians(found) for kind, found in taken.items()}


def _medians(found: dict[str, list[float]]) -> dict[str, float]:
    """Median seconds of each kind of event, and of all of them."""
    counted = {event: samples[_WARM_UP:] for event, samples in found.items()}
    every = [one for samples in counted.values() for one in samples]
    return {"all": median(every), **{event: median(samples) for event, samples in counted.items()}}


PROBES: Final[dict[str, Callable[[Case, Path, int], dict[str, Any]]]] = {
    "views": probe_views,
    "arena": probe_arena,
    "overhead": probe_overhead,
    "reconcile": probe_reconcile,
    "registry": probe_registry,
    "handover": probe_handover,
    "audit": probe_audit,
}
"""What a measuring process can be told to measure."""
