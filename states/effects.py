"""What a transition does to the world, by name. How it is done is the business of ``lifecycle/``."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class Reversal(IntEnum):
    """How an effect is taken back. In a row the numbers never decrease.

    ``UNDOABLE``: afterwards every byte and every book is as before. ``COMPENSATED``: it cannot be
    taken back, but what it left is marked unknown and repaired by the next pass. ``FINAL``: neither,
    so nothing may follow that can fail.
    """

    UNDOABLE = 1
    COMPENSATED = 2
    FINAL = 3


class Effect(StrEnum):
    """The effects of the trainer's transitions."""

    KEEP_GRADIENTS = "keep-gradients"
    TEAR_DOWN_GROUPS = "tear-down-groups"
    CLEAR_CACHES = "clear-caches"
    PAUSE_SCRATCH = "pause-scratch"
    SYNCHRONIZE_DEVICE = "synchronize-device"
    NOTE_DIGESTS = "note-digests"
    PAUSE_WEIGHTS = "pause-weights"
    CHECK_FREED = "check-freed"
    RESUME_WEIGHTS = "resume-weights"
    RESUME_SCRATCH = "resume-scratch"
    RESTORE_LOST = "restore-lost"
    RETURN_GRADIENTS = "return-gradients"
    REBUILD_GROUPS = "rebuild-groups"
    WRITE_ADAPTERS = "write-adapters"
    BACKUP_ACTOR = "backup-actor"
    KEEP_OUTGOING = "keep-outgoing"
    COMMIT_VERSIONS = "commit-versions"
    WRITE_BASE_FILE = "write-base-file"
    OPEN_STEP = "open-step"
    RESTORE_MODEL = "restore-model"
    CHECK_SOURCES = "check-sources"
    SEND_WEIGHTS = "send-weights"
    DRIVE_TAGS = "drive-tags"
    CHECK_DIGESTS = "check-digests"
    VERIFY_AND_MEND = "verify-and-mend"


REVERSAL: Final[dict[Effect, Reversal]] = {
    **dict.fromkeys(Effect, Reversal.UNDOABLE),
    Effect.SEND_WEIGHTS: Reversal.COMPENSATED,
    Effect.DRIVE_TAGS: Reversal.COMPENSATED,
    Effect.CHECK_DIGESTS: Reversal.FINAL,
    Effect.VERIFY_AND_MEND: Reversal.FINAL,
}
