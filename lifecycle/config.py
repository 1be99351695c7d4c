"""The configuration of a trainer's life cycle. What cannot work is refused when it is built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lifecycle.errors import ConfigError
from states import Strategy

_TARGETS = ("cpu", "disk", None)
_AUDIT_FAILURES = ("stop", "continue")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """What kind of run this is. Frozen; every rank must have the same one.

    Attributes:
        colocate: trainer and rollout engine share the device.
        lora: the base is frozen and adapters train.
        offload_target: where device memory goes when the trainer is offloaded: ``"cpu"``, ``"disk"``,
            or None to never offload.
        with_ref: a reference model is kept.
        with_teacher: a teacher is kept.
        keep_old_actor: the actor of an earlier step is kept.
        strategy: when a second host copy of the actor is made (:class:`states.Strategy`).
        model: prefix of this trainer's memory tags, so that several models can share a saver.
        frozen_buffers: glob patterns of buffers that never change; all others count as mutable.
        host_budget_bytes: host memory that backups may take; None asks the operating system.
        audit_failure: ``"stop"`` raises when the log cannot be written, ``"continue"`` goes on and
            reports it. What a transition did does not depend on it.
        event_timeout_s: how long a thread waits for another thread's event, in seconds.

    Raises:
        ConfigError: a value that does not exist or a combination that cannot work.
    """

    colocate: bool = True
    lora: bool = True
    offload_target: str | None = "cpu"
    with_ref: bool = False
    with_teacher: bool = False
    keep_old_actor: bool = False
    strategy: str = Strategy.REFERENCE.value
    model: str = "actor"
    frozen_buffers: tuple[str, ...] = ()
    host_budget_bytes: int | None = None
    audit_failure: str = "stop"
    event_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        """Check every value."""
        for name in ("colocate", "lora", "with_ref", "with_teacher", "keep_old_actor"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; use True or False")
        if self.offload_target not in _TARGETS:
            raise ConfigError(f"offload_target is {self.offload_target!r}; use 'cpu', 'disk' or None")
        if self.strategy not in tuple(Strategy):
            raise ConfigError(f"strategy is {self.strategy!r}; use one of {', '.join(Strategy)}")
        if self.audit_failure not in _AUDIT_FAILURES:
            raise ConfigError(f"audit_failure is {self.audit_failure!r}; use 'stop' or 'continue'")
        if not _NAME.fullmatch(self.model):
            raise ConfigError(f"model is {self.model!r}; use letters, digits, dot, underscore and dash")
        if self.host_budget_bytes is not None and self.host_budget_bytes < 0:
            raise ConfigError(f"host_budget_bytes is {self.host_budget_bytes}; use a number of bytes or None")
        if not self.event_timeout_s > 0:
            raise ConfigError(f"event_timeout_s is {self.event_timeout_s}; use a positive number of seconds")

    @classmethod
    def from_args(
        cls, args: Any, *, with_ref: bool = False, with_teacher: bool = False, **overrides: Any
    ) -> LifecycleConfig:
        """Build the configuration from a namespace with the argument names of miles and slime.

        Args:
            args: has some of ``colocate``, ``lora_rank``, ``lora_adapter_path``, ``offload_train``,
                ``offload_train_target``, ``keep_old_actor``. A missing one counts as not given;
                ``offload_train`` left at None follows ``colocate``, as it does there.
            with_ref: whether a reference model is kept (there it is an argument of the actor).
            with_teacher: whether a teacher is kept.
            **overrides: further fields of this class.

        Raises:
            ConfigError: contradictory or impossible arguments.
        """
        colocate = bool(getattr(args, "colocate", False))
        rank = getattr(args, "lora_rank", 0) or 0
        if rank < 0:
            raise ConfigError(f"lora_rank is {rank}; use 0 (no LoRA) or a positive rank")
        offload_train = getattr(args, "offload_train", None)
        target = getattr(args, "offload_train_target", None)
        offloads = colocate if offload_train is None else bool(offload_train)
        return cls(
            colocate=colocate,
            lora=rank > 0 or bool(getattr(args, "lora_adapter_path", None)),
            offload_target=(target or "cpu") if offloads else None,
            with_ref=with_ref,
            with_teacher=with_teacher,
            keep_old_actor=bool(getattr(args, "keep_old_actor", False)),
            **overrides,
        )
