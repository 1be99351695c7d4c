"""The vocabulary: states, events, sources and strategies, by the names that appear in logs and docs."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TrainerState(StrEnum):
    """Where the trainer's bytes are. Four resting places, one activity, one fault."""

    AWAKE = "awake"
    SLEEPING = "sleeping"
    OFFLOADED_CPU = "offloaded-cpu"
    OFFLOADED_DISK = "offloaded-disk"
    ADAPTER_RECONCILING = "adapter-reconciling"
    FAULTED = "faulted"


RESTING: Final = (
    TrainerState.AWAKE,
    TrainerState.SLEEPING,
    TrainerState.OFFLOADED_CPU,
    TrainerState.OFFLOADED_DISK,
)
OFFLOADED: Final = (TrainerState.OFFLOADED_CPU, TrainerState.OFFLOADED_DISK)


class TrainerEvent(StrEnum):
    """What can be asked of the trainer. Verbs, except for the two that close a reconcile."""

    SLEEP = "sleep"
    OFFLOAD = "offload"
    WAKE_UP = "wake_up"
    RECONCILE_ADAPTERS = "reconcile_adapters"
    RECONCILED = "reconciled"
    RECONCILE_ABANDONED = "reconcile_abandoned"
    UPDATE_WEIGHTS = "update_weights"
    BEGIN_STEP = "begin_step"
    TRAINED = "trained"
    SWITCH_MODEL = "switch_model"
    FAIL = "fail"
    RECOVER = "recover"


class Source(StrEnum):
    """The places a tensor's bytes can be read from."""

    LIVE = "live"
    SAVER_BACKUP = "saver-backup"
    SNAPSHOT = "snapshot"
    BASE_FILE = "base-file"


class Strategy(StrEnum):
    """When a second host copy of the actor is made.

    ``lean`` makes one only of what could not be read otherwise, ``reference`` is the rule of the reference
    change, ``duplicate`` always keeps a full ``actor`` copy, and every kept model holds one of its own.

    A switch to a model with another frozen base overwrites the actor's. Without a base file ``lean`` copies it then,
    once: the copy stays as long as a model with another base is kept, for the next switch would need it again, and
    is given up when none is left. ``reference`` holds that copy from the first step on.
    """

    LEAN = "lean"
    REFERENCE = "reference"
    DUPLICATE = "duplicate"


class FrozenBase(StrEnum):
    """What brings the frozen base back after a pause: the saver's backup, or a file that is shared by a node."""

    SAVER = "saver"
    FILE = "file"


class Verify(StrEnum):
    """How closely bytes are compared with what they were: across a pause and a resume, and before they are sent.

    ``always`` takes full digests, ``sampled`` looks at some blocks of every tensor, others each time, ``off``
    compares nothing.
    """

    ALWAYS = "always"
    SAMPLED = "sampled"
    OFF = "off"


ACTOR: Final = "actor"
"""The model that trains and is served. Snapshots of other models carry other tags."""

FROZEN_BASE: Final = "frozen-base"
TRAINABLE_BASE: Final = "trainable-base"
BUFFERS: Final = "buffers"
ADAPTER_PREFIX: Final = "adapter/"


def adapter_group(name: str) -> str:
    """The content group of one adapter."""
    return ADAPTER_PREFIX + name
