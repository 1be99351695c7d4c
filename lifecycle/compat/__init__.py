"""Parts for the trainers of today, under the names that they have in miles and slime; see docs/from-miles.md."""

from __future__ import annotations

from lifecycle.compat.backuper import TensorBackuper
from lifecycle.compat.errors import CastMismatch, FrozenChanged, StaleBackup
from lifecycle.compat.main_cast import MainCastContext
from lifecycle.compat.reading import maybe_get_cpu_backup, named_params_and_buffers
from lifecycle.compat.rules import enable_weight_backup, facts_of, weight_sync_reads_tms_backup

__all__ = [
    "CastMismatch",
    "FrozenChanged",
    "MainCastContext",
    "StaleBackup",
    "TensorBackuper",
    "enable_weight_backup",
    "facts_of",
    "maybe_get_cpu_backup",
    "named_params_and_buffers",
    "weight_sync_reads_tms_backup",
]
