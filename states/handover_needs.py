"""What a hand-over is planned from: who gives and takes how many bytes, and what may be held."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

WEIGHTS: Final = "weights"
KV_CACHE: Final = "kv_cache"
CUDA_GRAPH: Final = "cuda_graph"
"""The memory tags of an engine that a hand-over gives and takes."""


def _refuse_negative(record: Any) -> None:
    for one in fields(record):
        value = getattr(record, one.name)
        if one.name.endswith("_bytes") and value is not None and value < 0:
            raise ValueError(f"{one.name} is {value}; bytes are counted from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerBytes:
    """What the trainer gives and takes, in bytes.

    Attributes:
        target: its offload target; None keeps the weights on the device.
        weights_bytes: device memory of what must survive that it holds now; offload gives it back.
        scratch_bytes: device memory without backup that it holds now; sleep gives it back.
        awake_bytes: all device memory that it holds when it is awake.
        kept_bytes: host memory that sleep takes: accumulated gradients, and a copy of the actor that is due.
        backup_bytes: host memory that offload takes; 0 for what a file brings back.
        returned_bytes: host memory that wake_up gives back.
    """

    target: str | None = "cpu"
    weights_bytes: int = 0
    scratch_bytes: int = 0
    awake_bytes: int = 0
    kept_bytes: int = 0
    backup_bytes: int = 0
    returned_bytes: int = 0

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
        weights_bytes: device memory of its weights when they are resident.
        kv_cache_bytes: device memory of its key/value cache when it is resident.
        mirror_bytes: host memory that a copy of its weights takes while they are released.
        resident: which of its tags hold device memory now.
    """

    name: str
    weights_bytes: int = 0
    kv_cache_bytes: int = 0
    mirror_bytes: int = 0
    resident: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse negative sizes.

        Raises:
            ValueError: naming the field.
        """
        _refuse_negative(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverNeeds:
    """Everything that a plan is made from.

    Attributes:
        trainer: the trainer.
        engines: the engines on the same device, in the order in which they are served.
        host_held_bytes: host memory that counts against the budget and is held now, by whomever.
        device_held_bytes: the same on the device.
        host_budget_bytes: what may be held on the host at any moment, None without a limit.
        device_budget_bytes: the same on the device.
    """

    trainer: TrainerBytes = TrainerBytes()
    engines: tuple[EngineBytes, ...] = ()
    host_held_bytes: int = 0
    device_held_bytes: int = 0
    host_budget_bytes: int | None = None
    device_budget_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse negative sizes.

        Raises:
            ValueError: naming the field.
        """
        _refuse_negative(self)
