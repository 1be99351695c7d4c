"""What the control group of this process leaves it of the host's memory.

In a container the operating system's figure is the whole machine's; a backup beyond the limit ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
MEMBERSHIP: Final = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Names:
    """The files of one version of control groups."""

    limit: str
    usage: str
    cache: str


_V1: Final = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2: Final = _Names("memory.max", "memory.current", "inactive_file")


def room_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """Bytes that this process may take before the tightest group above it is full; None where no limit is set.

    The page cache that the kernel drops first counts as free, as it does in what the operating system has available:
    reading a checkpoint fills a container with it.

    Args:
        root: where control groups are mounted, version 2, version 1 or both.
        membership: the kernel's list of the groups that this process is in.
    """
    rooms = (_room(folder, names) for folder, names in _groups(root, membership))
    return min((room for room in rooms if room is not None), default=None)


def _groups(root: Path, membership: Path) -> Iterator[tuple[Path, _Names]]:
    """Each group that holds this process and each one above it. In a container the path may be the host's."""
    for line in _text(membership).splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        mounts: tuple[Path, ...]
        if hierarchy == "0":
            mounts, names = (root, root / "unified"), _V2
        elif "memory" in controllers.split(","):
            mounts, names = (root / "memory",), _V1
        else:
            continue
        own = Path(path.lstrip("/"))
        for mount in mounts:
            yield from ((mount / above, names) for above in (own, *own.parents))


def _room(folder: Path, names: _Names) -> int | None:
    limit, usage = _text(folder / names.limit).strip(), _text(folder / names.usage).strip()
    if not (limit.isdecimal() and usage.isdecimal()):
        return None  # "max", or the group has no such file
    counts = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
    return max(0, int(limit) - int(usage) + int(counts.get(names.cache, 0)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
