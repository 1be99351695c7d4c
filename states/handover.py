"""The hand-over as a plan: which memory sees its peak, predicted in bytes before the first step.

Trainer and engines each leave something in host memory while they do not use the device: the trainer the
backup of the saver, an engine a mirror of its weights. Between two steps both exist, or both hold device
memory. The order of the steps decides which (:class:`states.handover_needs.MemoryPeak`). With a frozen base
an engine's weights need not leave the device at all where there is room for them beside the trainer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from states.handover_needs import HandoverConfig, HandoverSizes, MemoryPeak
from states.handover_steps import HandoverStep, Leg, way_back, way_there
from states.verdict import NotABool

__all__ = ["HandoverPlan", "HandoverRefusal", "HandoverStep", "Leg", "MemoryPeak", "plan_handoff"]

_MIB: Final = 1024 * 1024
_WAYS: Final = {"there": "the way to the engines", "back": "the way back"}


@dataclass(frozen=True, slots=True)
class HandoverPlan(NotABool):
    """A hand-over that fits.

    Attributes:
        there: the way to the engines.
        back: the way back.
        config: what was asked for, the budgets among it.
        sizes: what it was predicted from.
        unsized: engines that tell no sizes; they count as nothing.
    """

    there: Leg
    back: Leg
    config: HandoverConfig
    sizes: HandoverSizes
    unsized: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[HandoverStep, ...]:
        """Both ways, in order. The engines serve between them."""
        return (*self.there.steps, *self.back.steps)

    @property
    def order(self) -> str:
        """The steps in words, without bytes."""
        return " ".join(map(str, self.there.steps)) + " ... " + " ".join(map(str, self.back.steps))

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
        budgets = {"host": self.config.host_budget_bytes, "device": self.config.device_budget_bytes}
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
        config: what was asked for, the budgets among it.
        sizes: what they were predicted from.
        because: every prediction that exceeds a budget, in words.
        remedy: what to do.
    """

    tried: Mapping[str, tuple[Leg, ...]]
    config: HandoverConfig
    sizes: HandoverSizes
    because: str
    remedy: str


def plan_handoff(config: HandoverConfig, sizes: HandoverSizes) -> HandoverPlan | HandoverRefusal:
    """Choose the order of a hand-over, there and back: of what is asked for, the first that fits the budgets.

    Args:
        config: what is asked for, and the budgets.
        sizes: what is given and taken, and what is held now.

    Returns:
        The ordered steps with the predicted bytes while each runs and after it, or why there are none.
    """
    peaks = tuple(MemoryPeak) if config.memory_peak is None else (config.memory_peak,)
    there = _distinct(way_there(sizes, peak) for peak in peaks)
    back = _distinct(  # every way there ends at the same levels
        way_back(sizes, peak, there[0], keeps_weights=keeps) for keeps in _keeps(config, sizes) for peak in peaks
    )
    fitting = [next((leg for leg in legs if not _excess(leg, config)), None) for legs in (there, back)]
    if fitting[0] is None or fitting[1] is None:
        return _refusal({"there": there, "back": back}, config, sizes)
    unsized = tuple(one.name for one in sizes.engines if one.tells_no_sizes)
    return HandoverPlan(fitting[0], fitting[1], config, sizes, unsized)


def _distinct(legs: Iterable[Leg]) -> tuple[Leg, ...]:
    """The legs without those whose steps are the same: where nothing overlaps there is but one order."""
    return tuple({leg.steps: leg for leg in reversed(tuple(legs))}.values())[::-1]


def _keeps(config: HandoverConfig, sizes: HandoverSizes) -> tuple[bool, ...]:
    """Whether engines keep their weights on the device, in the order in which it is tried.

    Where nothing is known of the device, or an engine does not say what its weights take, nobody can promise that they
    fit beside the trainer. They are kept then only if no other way fits the host.
    """
    able = [one for one in sizes.engines if one.may_keep_weights]
    asked = config.engine_keeps_weights
    if not able or (asked is None and not config.lora):
        return (False,)
    if asked is not None:
        return (asked,)
    is_known = config.device_budget_bytes is not None and all(one.weights_bytes for one in able)
    return (True, False) if is_known else (False, True)


def _excess(leg: Leg, config: HandoverConfig) -> str:
    """Which budget the leg exceeds and by how much, in words; empty when it fits."""
    peaks = (
        ("host", leg.host_peak_bytes, config.host_budget_bytes),
        ("device", leg.device_peak_bytes, config.device_budget_bytes),
    )
    over = [
        f"{_mib(peak)} on the {place}, the budget is {_mib(budget)}"
        for place, peak, budget in peaks
        if budget is not None and peak > budget
    ]
    return " and ".join(over)


def _refusal(tried: Mapping[str, tuple[Leg, ...]], config: HandoverConfig, sizes: HandoverSizes) -> HandoverRefusal:
    stuck = {way: legs for way, legs in tried.items() if all(_excess(leg, config) for leg in legs)}
    because = "; ".join(
        f"with the peak on the {leg.memory_peak}{', the weights of engines kept,' if leg.keeps_weights else ''} "
        f"{_WAYS[way]} needs {_excess(leg, config)}"
        for way, legs in stuck.items()
        for leg in legs
    )
    remedy = (
        'raise a budget to one of these peaks, back the frozen base by a file (frozen_base="file"), '
        "or let the engines keep no copy of their weights while they are released"
    )
    asked = config.memory_peak
    other = f'leave memory_peak="{asked}" out so that the other order is tried, or {remedy}'
    return HandoverRefusal(tried, config, sizes, because, remedy if asked is None else other)


def _mib(count_bytes: int) -> str:
    return f"{count_bytes / _MIB:.1f} MiB ({count_bytes} bytes)"
