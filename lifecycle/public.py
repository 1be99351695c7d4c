"""What ``import lifecycle`` gives. It brings torch, transitions and structlog, when a name is first used."""

from __future__ import annotations

from lifecycle.audit.log import AuditLog, MemoryAudit
from lifecycle.config import LifecycleConfig
from lifecycle.controller import TrainerLifecycle
from lifecycle.errors import (
    AdapterError,
    AuditError,
    BaseFileError,
    BusyError,
    ConfigError,
    DigestMismatch,
    EngineError,
    EngineUnconfirmed,
    EventRefused,
    IncompletePush,
    LeaseError,
    LifecycleError,
    ReentrantEvent,
    SaverError,
    SaverMisuse,
    SlotWriteError,
    TrainerFaulted,
    TransitionFailed,
    UnknownTag,
    UnreadableTensor,
)
from lifecycle.outcome import EngineOutcome, Explanation, FailedAdapter, Moved, Outcome, Unchanged
from lifecycle.probes import GreedyProbe
from lifecycle.process_groups import ProcessGroups
from lifecycle.saver import Backup, HostArena, MemorySaver, TagInfo, TorchMemorySaver, Usage
from lifecycle.standing import Standing
from lifecycle.transition.steps import TrainingStep
from lifecycle.weights.leases import WeightLease
from lifecycle.weights.snapshots import SnapshotStore
from states import StalenessError, TrainerEvent, TrainerState, staleness

__all__ = [
    "AdapterError",
    "AuditError",
    "AuditLog",
    "Backup",
    "BaseFileError",
    "BusyError",
    "ConfigError",
    "DigestMismatch",
    "EngineError",
    "EngineOutcome",
    "EngineUnconfirmed",
    "EventRefused",
    "Explanation",
    "FailedAdapter",
    "GreedyProbe",
    "HostArena",
    "IncompletePush",
    "LeaseError",
    "LifecycleConfig",
    "LifecycleError",
    "MemoryAudit",
    "MemorySaver",
    "Moved",
    "Outcome",
    "ProcessGroups",
    "ReentrantEvent",
    "SaverError",
    "SaverMisuse",
    "SlotWriteError",
    "SnapshotStore",
    "StalenessError",
    "Standing",
    "TagInfo",
    "TorchMemorySaver",
    "TrainerEvent",
    "TrainerFaulted",
    "TrainerLifecycle",
    "TrainerState",
    "TrainingStep",
    "TransitionFailed",
    "Unchanged",
    "UnknownTag",
    "UnreadableTensor",
    "Usage",
    "WeightLease",
    "staleness",
]
