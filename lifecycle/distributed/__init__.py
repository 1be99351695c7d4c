"""Many ranks, one life cycle: ranks agree before a transition acts, and on success before it commits."""

from __future__ import annotations

from lifecycle.distributed.agreement import RankAgreement
from lifecycle.distributed.engine import SharedEngine
from lifecycle.distributed.errors import (
    JoinRefused,
    RankFenced,
    RanksApart,
    RanksDisagree,
    RanksFailed,
    RanksMissing,
    StoreLost,
)
from lifecycle.distributed.hosting import StoreServer

__all__ = [
    "JoinRefused",
    "RankAgreement",
    "RankFenced",
    "RanksApart",
    "RanksDisagree",
    "RanksFailed",
    "RanksMissing",
    "SharedEngine",
    "StoreLost",
    "StoreServer",
]
