"""What the operating system says about memory and disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from lifecycle.memory import cgroup

_KEPT = ("tms_*", "base-*.safetensors")
_MEMORY_BACKED = ("tmpfs", "ramfs", "devtmpfs")


ASKED_FROM_BYTES: Final = 2**20
"""So many bytes are needed before the operating system is asked: its answer is older than that when it is used."""


def host_free_bytes(budget_bytes: int | None = None, held_bytes: int = 0) -> int:
    """Host bytes that a backup may take now: what is available, within the limit of the container and our own.

    Args:
        budget_bytes: a limit of our own, None for what the operating system has available.
        held_bytes: what backups and copies hold already, counted against the budget.
    """
    import psutil  # noqa: PLC0415 - only needed where an offload is decided

    available = int(psutil.virtual_memory().available)
    room = cgroup.room_bytes()
    if room is not None:
        available = min(available, room)
    return available if budget_bytes is None else min(available, _left(budget_bytes, held_bytes))


def host_room_for(need_bytes: int, budget_bytes: int | None, held_bytes: int) -> int | None:
    """:func:`host_free_bytes` for a need; None where nothing limits so little.

    What any process takes between two moments is not asked for: the answer takes longer than the copy.

    Args:
        need_bytes: what will be taken.
        budget_bytes: see there.
        held_bytes: see there.
    """
    if need_bytes >= ASKED_FROM_BYTES:
        return host_free_bytes(budget_bytes, held_bytes)
    return None if budget_bytes is None else _left(budget_bytes, held_bytes)


def _left(budget_bytes: int, held_bytes: int) -> int:
    return max(0, budget_bytes - held_bytes)


def disk_problem(directory: str | None) -> str:
    """Why the directory cannot take a backup, empty when it can."""
    if directory is None:
        return "the saver has no disk directory"
    path = Path(directory)
    if not path.is_dir():
        return f"{directory} is not a directory"
    if not os.access(path, os.W_OK | os.X_OK):
        return f"{directory} is not writable"
    return ""


def disk_free_bytes(directory: str) -> int:
    """Free bytes of the file system that holds the directory."""
    return shutil.disk_usage(directory).free


def is_real_disk(directory: str) -> bool:
    """Whether the directory lies on a disk and not in memory in disguise."""
    import psutil  # noqa: PLC0415 - only needed where an offload is decided

    path = Path(directory).resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    holder = next((parent for parent in (path, *path.parents) if parent in mounts), None)
    return holder is None or mounts[holder] not in _MEMORY_BACKED


def backup_files(*directories: str | None) -> tuple[str, ...]:
    """Names of backup and base files that lie in the directories, sorted: another run's, never opened by this one."""
    folders = {Path(one) for one in directories if one is not None and Path(one).is_dir()}
    return tuple(sorted(path.name for folder in folders for kind in _KEPT for path in folder.glob(kind)))
