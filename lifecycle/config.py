"""The configuration of a trainer's life cycle. What cannot work is refused when it is built."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lifecycle.errors import ConfigError
from states import FrozenBase, Strategy, Verify
from states.handover_needs import MemoryPeak

_TARGETS = ("cpu", "disk", None)
_AUDIT_FAILURES = ("stop", "continue")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Reference(StrEnum):
    """What ``reference()`` lends."""

    ADAPTER_OFF = "adapter_off"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleConfig:
    """What kind of run this is. Frozen; every rank must have the same one.

    Attributes:
        colocate: trainer and rollout engine share the device.
        lora: the base is frozen and adapters train.
        offload_target: where device memory goes when the trainer is offloaded: ``"cpu"``, ``"disk"``,
            or None to never offload.
        with_ref: a reference model is kept as a snapshot; the same as ``ref="snapshot"``.
        ref: what ``reference()`` lends: ``"adapter_off"``, the base with its adapters off, of which no copy is kept;
            ``"snapshot"``, the model kept as ``ref``; or None, which is ``"snapshot"`` where *with_ref* is set.
        with_teacher: a teacher is kept.
        keep_old_actor: the actor of an earlier step is kept.
        strategy: when a second host copy of the actor is made (:class:`states.Strategy`).
        frozen_base: what brings the frozen base back after a pause (:class:`states.FrozenBase`): ``"saver"``, or
            ``"file"``, which the disk target always uses.
        verify: how closely bytes are compared with what they were, across a pause and before they are sent
            (:class:`states.Verify`): ``"always"``, ``"sampled"`` or ``"off"``. What came back from the saver's disk
            backup is compared in full unless it is off.
        base_dir: folder of base files, shared by all ranks of a node; None uses the saver's disk directory.
        model: prefix of this trainer's memory tags, so that several models can share a saver.
        frozen_buffers: glob patterns of buffers that never change; all others count as mutable.
        host_budget_bytes: host memory that backups may take; None asks the operating system.
        device_budget_bytes: device memory that the trainer and its engines may take together at a hand-over; None
            asks the saver.
        memory_peak: where trainer and engines may overlap at a hand-over: ``"host"``, the trainer's backup beside an
            engine's mirror; ``"device"``, the weights of both; None takes the first that fits.
        engine_keeps_weights: whether engines keep their weights on the device while the trainer is awake; None keeps
            them with LoRA if they fit into the device budget, or what is free, beside the trainer.
        audit_failure: ``"stop"`` raises when the log cannot be written, ``"continue"`` goes on and
            reports it. What a transition did does not depend on it.
        event_timeout_s: how long a thread waits for another thread's event, in seconds; finite, and no more
            than :data:`threading.TIMEOUT_MAX`.

    Raises:
        ConfigError: a value that does not exist or a combination that cannot work.
    """

    colocate: bool = True
    lora: bool = True
    offload_target: str | None = "cpu"
    with_ref: bool = False
    ref: str | None = None
    with_teacher: bool = False
    keep_old_actor: bool = False
    strategy: str = Strategy.LEAN.value
    frozen_base: str = FrozenBase.SAVER.value
    verify: str = Verify.SAMPLED.value
    base_dir: str | None = None
    model: str = "actor"
    frozen_buffers: tuple[str, ...] = ()
    host_budget_bytes: int | None = None
    device_budget_bytes: int | None = None
    memory_peak: str | None = None
    engine_keeps_weights: bool | None = None
    audit_failure: str = "stop"
    event_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        """Check every value."""
        for name in ("colocate", "lora", "with_ref", "with_teacher", "keep_old_actor"):
            _check_flag(name, getattr(self, name))
        if not _is_one_of(self.offload_target, _TARGETS):
            raise ConfigError(f"offload_target is {self.offload_target!r}; use 'cpu', 'disk' or None")
        for name, known in (("strategy", Strategy), ("frozen_base", FrozenBase), ("verify", Verify)):
            if not _is_one_of(getattr(self, name), tuple(known)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(known)}")
        if self.base_dir is not None and (not isinstance(self.base_dir, str) or not self.base_dir):
            raise ConfigError(f"base_dir is {self.base_dir!r}; use the path of a folder, or None")
        if not _is_one_of(self.audit_failure, _AUDIT_FAILURES):
            raise ConfigError(f"audit_failure is {self.audit_failure!r}; use 'stop' or 'continue'")
        if not isinstance(self.model, str) or not _NAME.fullmatch(self.model):
            raise ConfigError(f"model is {self.model!r}; use letters, digits, dot, underscore and dash")
        if not isinstance(self.frozen_buffers, tuple) or not all(isinstance(one, str) for one in self.frozen_buffers):
            raise ConfigError(f"frozen_buffers is {self.frozen_buffers!r}; use a tuple of patterns")
        self._check_reference()
        self._check_budgets()
        checked_peak(self.memory_peak)
        if self.engine_keeps_weights is not None:
            _check_flag("engine_keeps_weights", self.engine_keeps_weights)
        self._check_timeout()

    @property
    def reference(self) -> Reference | None:
        """What ``reference()`` lends, None when this run has no reference."""
        if self.ref is not None:
            return Reference(self.ref)
        return Reference.SNAPSHOT if self.with_ref else None

    def _check_reference(self) -> None:
        if not _is_one_of(self.ref, (*Reference, None)):
            raise ConfigError(f"ref is {self.ref!r}; use 'adapter_off', 'snapshot' or None")
        if self.ref != Reference.ADAPTER_OFF:
            return
        if self.with_ref:
            raise ConfigError("with_ref keeps a ref model and ref='adapter_off' keeps none; leave one of them out")
        if not self.lora:
            raise ConfigError("ref='adapter_off' needs a base that never changes; with lora=False use ref='snapshot'")

    def _check_budgets(self) -> None:
        for name in ("host_budget_bytes", "device_budget_bytes"):
            budget = getattr(self, name)
            if budget is not None and (not _is_whole(budget) or budget < 0):
                raise ConfigError(f"{name} is {budget!r}; use a number of bytes or None")

    def _check_timeout(self) -> None:
        timeout, longest = self.event_timeout_s, threading.TIMEOUT_MAX
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if not is_number or not 0 < timeout <= longest:
            raise ConfigError(f"event_timeout_s is {timeout!r}; use a positive number of seconds up to {longest:.0f}")

    def facts_settings(self) -> dict[str, Any]:
        """What guards may know of the configuration: these keyword arguments of :class:`states.Facts`."""
        return {
            "colocate": self.colocate,
            "lora": self.lora,
            "offload_target": self.offload_target,
            "with_ref": self.reference is Reference.SNAPSHOT,
            "with_teacher": self.with_teacher,
            "keep_old_actor": self.keep_old_actor,
            "strategy": self.strategy,
            "frozen_base": self.frozen_base,
        }

    @classmethod
    def from_args(
        cls, args: Any, *, with_ref: bool = False, with_teacher: bool = False, **overrides: Any
    ) -> LifecycleConfig:
        """Build the configuration from a namespace with the argument names of miles and slime.

        Args:
            args: has some of ``colocate``, ``lora_rank``, ``lora_adapter_path``, ``offload_train``,
                ``offload_train_target``, ``keep_old_actor``, ``colocate_memory_peak_device``. A missing one counts as
                not given; ``offload_train`` left at None follows ``colocate``, as it does there. Without offload
                ``offload_train_target`` is ignored: there it has a default, so it says nothing then.
            with_ref: whether a reference model is kept (there it is an argument of the actor).
            with_teacher: whether a teacher is kept.
            **overrides: further fields of this class.

        Raises:
            ConfigError: an argument of another type than there, or one that cannot work.
        """
        colocate = _flag(args, "colocate") or False
        offload_train = _flag(args, "offload_train")
        offloads = colocate if offload_train is None else offload_train
        target = getattr(args, "offload_train_target", None)
        overrides.setdefault("memory_peak", _peak(args))
        return cls(
            colocate=colocate,
            lora=_rank(args) > 0 or _has_adapter_path(args),
            offload_target=("cpu" if target is None else target) if offloads else None,
            with_ref=with_ref,
            with_teacher=with_teacher,
            keep_old_actor=_flag(args, "keep_old_actor") or False,
            **overrides,
        )


def checked_peak(memory_peak: object) -> MemoryPeak | None:
    """The memory that is named, None for None.

    Raises:
        ConfigError: there is no such memory.
    """
    if memory_peak is None:
        return None
    if not _is_one_of(memory_peak, tuple(MemoryPeak)):
        raise ConfigError(f"memory_peak is {memory_peak!r}; use one of {', '.join(MemoryPeak)}, or None")
    return MemoryPeak(str(memory_peak))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_one_of(value: object, known: tuple[str | None, ...]) -> bool:
    return (value is None or isinstance(value, str)) and value in known


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; use True or False")


def _flag(args: Any, name: str) -> bool | None:
    """A yes or no of the namespace, None where it is missing or not given."""
    value: bool | None = getattr(args, name, None)
    if value is not None:
        _check_flag(name, value)
    return value


def _peak(args: Any) -> str | None:
    """Where the overlap may be, under the names that it has there; None where it is missing."""
    place = getattr(args, "colocate_memory_peak_device", None)
    known = {None: None, "cpu": MemoryPeak.HOST.value, "gpu": MemoryPeak.DEVICE.value}
    if not _is_one_of(place, tuple(known)):
        raise ConfigError(f"colocate_memory_peak_device is {place!r}; use 'cpu' or 'gpu'")
    return known[place]


def _rank(args: Any) -> int:
    rank = getattr(args, "lora_rank", None)
    if rank is None:
        return 0
    if not _is_whole(rank) or rank < 0:
        raise ConfigError(f"lora_rank is {rank!r}; use 0 (no LoRA) or a positive whole number")
    return int(rank)


def _has_adapter_path(args: Any) -> bool:
    path = getattr(args, "lora_adapter_path", None)
    if path is not None and not isinstance(path, str | os.PathLike):
        raise ConfigError(f"lora_adapter_path is {path!r}; use a path, or None for no adapter")
    return bool(path)
