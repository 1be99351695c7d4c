"""The hand-over as a plan: which memory sees its peak, predicted in bytes before the first step.

Trainer and engines each leave something in host memory while they do not use the device: the trainer the
backup of the saver, an engine a mirror of its weights. Between two steps both exist, or both hold device
memory. The order of the steps decides which:

* ``host-peak``: who gives memory goes first. Backup and mirror exist together, the device never holds both.
* ``device-peak``: who takes memory goes first. Scratch and the key/value cache are given back before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from states.handover_needs import KV_CACHE, WEIGHTS, EngineBytes, HandoverNeeds
from states.verdict import NotABool

_MIB: Final = 1024 * 1024


class HandoverOrder(StrEnum):
    """The memory in which the two sides overlap. The first one that fits is taken."""

    HOST_PEAK = "host-peak"
    DEVICE_PEAK = "device-peak"


@dataclass(frozen=True, slots=True)
class HandoverStep:
    """One step, and the most that is held while it runs. A step takes before it gives.

    Attributes:
        does: ``sleep``, ``offload``, ``update_weights``, ``wake_up``, ``resume`` or ``release``.
        engine: whose step it is, empty for the trainer's.
        tags: the memory tags that an engine resumes or releases.
        host_bytes: held on the host meanwhile.
        device_bytes: held on the device meanwhile.
    """

    does: str
    engine: str
    tags: tuple[str, ...]
    host_bytes: int
    device_bytes: int

    def __str__(self) -> str:
        return f"{self.engine}.{self.does}({','.join(self.tags)})" if self.engine else self.does


@dataclass(frozen=True, slots=True)
class Leg:
    """One way of the hand-over in one order."""

    order: HandoverOrder
    steps: tuple[HandoverStep, ...]

    @property
    def host_peak_bytes(self) -> int:
        """The most that is held on the host at any moment of it."""
        return max(step.host_bytes for step in self.steps)

    @property
    def device_peak_bytes(self) -> int:
        """The most that is held on the device at any moment of it."""
        return max(step.device_bytes for step in self.steps)

    def told(self) -> dict[str, object]:
        """As it stands in the log."""
        return {
            "order": str(self.order),
            "steps": [str(step) for step in self.steps],
            "host_peak_bytes": self.host_peak_bytes,
            "device_peak_bytes": self.device_peak_bytes,
        }


@dataclass(frozen=True, slots=True)
class HandoverPlan(NotABool):
    """A hand-over that fits.

    Attributes:
        there: the way to the engines.
        back: the way back.
        needs: what it was made from, the budgets among it.
        unsized: engines that tell no sizes; they count as nothing.
    """

    there: Leg
    back: Leg
    needs: HandoverNeeds
    unsized: tuple[str, ...] = ()

    @property
    def host_peak_bytes(self) -> int:
        """The most that is held on the host at any moment of both ways."""
        return max(self.there.host_peak_bytes, self.back.host_peak_bytes)

    @property
    def device_peak_bytes(self) -> int:
        """The most that is held on the device at any moment of both ways."""
        return max(self.there.device_peak_bytes, self.back.device_peak_bytes)

    def told(self) -> dict[str, object]:
        """As it stands in the log."""
        budgets = {"host": self.needs.host_budget_bytes, "device": self.needs.device_budget_bytes}
        return {
            "there": self.there.told(),
            "back": self.back.told(),
            "budget_bytes": budgets,
            "unsized": list(self.unsized),
        }


@dataclass(frozen=True, slots=True)
class HandoverRefusal(NotABool):
    """No order fits, or not the one that was asked for. Nothing was done.

    Attributes:
        tried: the orders that were tried, by way: ``there`` and ``back``.
        needs: what they were predicted from, the budgets among it.
        because: every prediction that exceeds a budget, in words.
        remedy: what to do.
    """

    tried: Mapping[str, tuple[Leg, ...]]
    needs: HandoverNeeds
    because: str
    remedy: str


def plan_handover(needs: HandoverNeeds, order: HandoverOrder | None = None) -> HandoverPlan | HandoverRefusal:
    """Choose the order of a hand-over, there and back, against the budgets.

    Args:
        needs: sizes, what is held now, and the budgets.
        order: the only order that may be taken, on both ways; None takes the first that fits, for each way.
    """
    orders = tuple(HandoverOrder) if order is None else (order,)
    there, host_bytes, device_bytes = [], 0, 0
    for one in orders:
        walk = _Walk(needs.host_held_bytes, needs.device_held_bytes)
        there.append(Leg(one, tuple(walk.along(_there(needs, one)))))
        host_bytes, device_bytes = walk.host_bytes, walk.device_bytes  # the same after every order
    back = [Leg(one, tuple(_Walk(host_bytes, device_bytes).along(_back(needs, one)))) for one in orders]
    fitting = [next((leg for leg in legs if not _excess(leg, needs)), None) for legs in (there, back)]
    if fitting[0] is None or fitting[1] is None:
        return _refusal({"there": tuple(there), "back": tuple(back)}, needs)
    unsized = tuple(one.name for one in needs.engines if not (one.weights_bytes or one.kv_cache_bytes))
    return HandoverPlan(fitting[0], fitting[1], needs, unsized)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    does: str
    engine: str = ""
    tags: tuple[str, ...] = ()
    takes_host: int = 0
    takes_device: int = 0
    gives_host: int = 0
    gives_device: int = 0


@dataclass(slots=True)
class _Walk:
    """The levels after the moves so far."""

    host_bytes: int
    device_bytes: int

    def along(self, moves: Iterable[_Move]) -> Iterator[HandoverStep]:
        for move in moves:
            self.host_bytes += move.takes_host
            self.device_bytes += move.takes_device
            yield HandoverStep(move.does, move.engine, move.tags, self.host_bytes, self.device_bytes)
            self.host_bytes -= move.gives_host
            self.device_bytes -= move.gives_device


def _there(needs: HandoverNeeds, order: HandoverOrder) -> Iterator[_Move]:
    one = needs.trainer
    gives = [_Move(does="offload", takes_host=one.backup_bytes, gives_device=one.weights_bytes)]
    takes = [_resume_weights(engine) for engine in needs.engines]
    yield _Move(does="sleep", takes_host=one.kept_bytes, gives_device=one.scratch_bytes)
    offload = gives if one.target is not None else []
    yield from (*offload, *takes) if order is HandoverOrder.HOST_PEAK else (*takes, *offload)
    yield _Move(does="update_weights")
    for engine in needs.engines:
        missing = 0 if KV_CACHE in engine.resident else engine.kv_cache_bytes
        yield _Move(does="resume", engine=engine.name, tags=(KV_CACHE,), takes_device=missing)


def _resume_weights(engine: EngineBytes) -> _Move:
    is_there = WEIGHTS in engine.resident
    return _Move(
        does="resume",
        engine=engine.name,
        tags=(WEIGHTS,),
        takes_device=0 if is_there else engine.weights_bytes,
        gives_host=0 if is_there else engine.mirror_bytes,
    )


def _back(needs: HandoverNeeds, order: HandoverOrder) -> Iterator[_Move]:
    one = needs.trainer
    stays = one.weights_bytes if one.target is None else 0
    wake = _Move(does="wake_up", takes_device=max(0, one.awake_bytes - stays), gives_host=one.returned_bytes)
    if order is HandoverOrder.HOST_PEAK:
        yield from (_release(engine, KV_CACHE, WEIGHTS) for engine in needs.engines)
        yield wake
        return
    yield from (_release(engine, KV_CACHE) for engine in needs.engines)
    yield wake
    yield from (_release(engine, WEIGHTS) for engine in needs.engines)


def _release(engine: EngineBytes, *tags: str) -> _Move:
    sizes = {WEIGHTS: engine.weights_bytes, KV_CACHE: engine.kv_cache_bytes}
    return _Move(
        does="release",
        engine=engine.name,
        tags=tags,
        takes_host=engine.mirror_bytes if WEIGHTS in tags else 0,
        gives_device=sum(sizes[tag] for tag in tags),
    )


def _excess(leg: Leg, needs: HandoverNeeds) -> str:
    """Which budget the leg exceeds and by how much, in words; empty when it fits."""
    peaks = (
        ("host", leg.host_peak_bytes, needs.host_budget_bytes),
        ("device", leg.device_peak_bytes, needs.device_budget_bytes),
    )
    over = [
        f"{_mib(peak)} on the {place}, the budget is {_mib(budget)}"
        for place, peak, budget in peaks
        if budget is not None and peak > budget
    ]
    return " and ".join(over)


def _refusal(tried: Mapping[str, tuple[Leg, ...]], needs: HandoverNeeds) -> HandoverRefusal:
    stuck = {way: legs for way, legs in tried.items() if all(_excess(leg, needs) for leg in legs)}
    words = {"there": "to the engines", "back": "back"}
    because = "; ".join(
        f"{leg.order} {words[way]} needs {_excess(leg, needs)}" for way, legs in stuck.items() for leg in legs
    )
    tried_all = all(len(legs) == len(HandoverOrder) for legs in tried.values())
    remedy = (
        'raise a budget to one of these peaks, back the frozen base by a file (frozen_base="file"), '
        "or let the engines keep no copy of their weights while they are released"
    )
    return HandoverRefusal(tried, needs, because, remedy if tried_all else f"try the other order, or {remedy}")


def _mib(count_bytes: int) -> str:
    return f"{count_bytes / _MIB:.1f} MiB ({count_bytes} bytes)"
