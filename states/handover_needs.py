"""What a hand-over is planned from: who gives and takes how many bytes, what may be held, what the user asks for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

WEIGHTS: Final = "weights"
KV_CACHE: Final = "kv_cache"
CUDA_GRAPH: Final = "cuda_graph"
RESUME_ORDER: Final = (WEIGHTS, KV_CACHE, CUDA_GRAPH)
"""The memory tags of an engine in the order in which they are resumed; they are released the other way round."""


class MemoryPeak(StrEnum):
    """The memory in which trainer and engines overlap.

    ``HOST``: who gives device memory goes first, and the trainer's backup and an engine's mirror exist together.
    ``DEVICE``: who takes device memory goes first, and both sides hold device memory.
    """

    HOST = "host"
    DEVICE = "device"


def _refuse_negative(record: Any) -> None:
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name.endswith("_bytes") and value is not None and value < 0:
            raise ValueError(f"{one.name} is {value}; bytes are counted from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverConfig:
    """What the user asks for, and what may be held.

    Attributes:
        memory_peak: the only memory in which the two sides may overlap, on both ways; None takes the first that fits.
        lora: the base is frozen, so that the weights of an engine are still right after a training step.
        engine_keeps_weights: whether engines keep their weights on the device while the trainer is awake; None keeps
            them with LoRA where they fit beside the trainer.
        host_budget_bytes: what may be held on the host at any moment, None without a limit.
        device_budget_bytes: the same on the device; None where nothing is known of it.
    """

    memory_peak: MemoryPeak | None = None
    lora: bool = True
    engine_keeps_weights: bool | None = None
    host_budget_bytes: int | None = None
    device_budget_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse negative budgets.

        Raises:
            ValueError: naming the field.
        """
        _refuse_negative(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerBytes:
    """What the trainer gives and takes, in bytes.

    Attributes:
        target: its offload target; None keeps the weights on the device.
        weights_bytes: device memory of what must survive that it holds now; offload gives it back.
        scratch_bytes: device memory without backup that it holds now; sleep gives it back.
        awake_bytes: all device memory that it holds when it is awake.
        kept_bytes: host memory that sleep takes: accumulated gradients, and a copy of the actor that is due.
        replaced_bytes: host memory that sleep gives back: the copies of the actor that the new ones replace.
        backup_bytes: host memory that offload takes; 0 for what a file brings back.
        returned_bytes: host memory that wake_up gives back: backups, and gradients that were kept.
        base_bytes: what an engine is sent that holds nothing of the base, in parameters and buffers.
    """

    target: str | None = "cpu"
    weights_bytes: int = 0
    scratch_bytes: int = 0
    awake_bytes: int = 0
    kept_bytes: int = 0
    replaced_bytes: int = 0
    backup_bytes: int = 0
    returned_bytes: int = 0
    base_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse negative sizes.

        Raises:
            ValueError: naming the field.
        """
        _refuse_negative(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBytes:
    """What an engine gives and takes, in bytes.

    Attributes:
        name: the engine.
        tags: the memory tags that it has. A hand-over asks for no others; an engine on a device of its own has none.
        resident: which of them hold device memory now.
        discarded: which of them were given back without keeping their bytes.
        weights_bytes: device memory of its weights when they are resident.
        kv_cache_bytes: device memory of its key/value cache when it is resident.
        cuda_graph_bytes: device memory of its captured graphs when they are resident.
        mirror_bytes: host memory that a copy of its weights takes when they are released.
        mirror_held_bytes: host memory that such a copy takes now; the resume gives it back.
        behind_bytes: the content groups that it does not hold as the trainer wants them: what it has to be sent.
        releases_apart: it can release one tag and keep another.
        discards: its release of weights keeps no copy of them.
    """

    name: str
    tags: tuple[str, ...] = (WEIGHTS, KV_CACHE)
    resident: frozenset[str] = frozenset()
    discarded: frozenset[str] = frozenset()
    weights_bytes: int = 0
    kv_cache_bytes: int = 0
    cuda_graph_bytes: int = 0
    mirror_bytes: int = 0
    mirror_held_bytes: int = 0
    behind_bytes: int = 0
    releases_apart: bool = True
    discards: bool = False

    def __post_init__(self) -> None:
        """Refuse negative sizes and tags that do not exist.

        Raises:
            ValueError: naming the field.
        """
        _refuse_negative(self)
        unknown = sorted({*self.tags, *self.resident, *self.discarded} - set(RESUME_ORDER))
        if unknown:
            raise ValueError(f"{self.name}: no tag {', '.join(unknown)}; there are {', '.join(RESUME_ORDER)}")

    @property
    def may_keep_weights(self) -> bool:
        """Whether its weights can stay on the device while its other memory is given back."""
        return self.releases_apart and WEIGHTS in self.tags

    @property
    def tells_no_sizes(self) -> bool:
        """Whether it has memory to give and does not say how much."""
        return bool(self.tags) and not (self.weights_bytes or self.kv_cache_bytes or self.cuda_graph_bytes)

    def device_bytes(self, tags: tuple[str, ...]) -> int:
        """Device memory of these tags when they are resident."""
        sizes = {WEIGHTS: self.weights_bytes, KV_CACHE: self.kv_cache_bytes, CUDA_GRAPH: self.cuda_graph_bytes}
        return sum(sizes[tag] for tag in tags)

    def sends_bytes(self, base_bytes: int) -> int:
        """What it has to be sent: after a discard the base at least, whatever it says that it holds."""
        return max(self.behind_bytes, base_bytes) if WEIGHTS in self.discarded else self.behind_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverSizes:
    """Everything that is given and taken, and what is held now.

    Attributes:
        trainer: the trainer.
        engines: the engines, in the order in which they are served.
        host_held_bytes: host memory that counts against the budget and is held now, by whomever.
        device_held_bytes: the same on the device.
    """

    trainer: TrainerBytes = TrainerBytes()
    engines: tuple[EngineBytes, ...] = ()
    host_held_bytes: int = 0
    device_held_bytes: int = 0

    def __post_init__(self) -> None:
        """Refuse negative sizes.

        Raises:
            ValueError: naming the field.
        """
        _refuse_negative(self)
