"""What the kernel says of this process."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

PAGE_BYTES = mmap.PAGESIZE
_ROOT = Path(__file__).parents[2]


def pss_bytes() -> int:
    """Anonymous and shared memory that is this process's own share."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))


def mappings() -> int:
    """How many mappings there are, the poison's and the reserved ones among them."""
    return len(Path("/proc/self/maps").read_text(encoding="ascii").splitlines())


def writable(address: int) -> bool:
    """Whether memory is mapped there that can be written: neither a reserved range nor poison."""
    return bool(writable_of([address]))


def writable_of(addresses: Iterable[int]) -> set[int]:
    """Those of the addresses at which memory is mapped that can be written."""
    starts: list[int] = []
    extents: list[tuple[int, bool]] = []
    with Path("/proc/self/maps").open(encoding="utf-8") as lines:
        for line in lines:
            extent, permissions, _ = line.split(maxsplit=2)
            first, end = extent.split("-")
            starts.append(int(first, 16))
            extents.append((int(end, 16), "w" in permissions))
    found = set()
    for address in addresses:
        behind, can_be_written = extents[bisect_right(starts, address) - 1]
        if address < behind and can_be_written:
            found.add(address)
    return found


def descriptors() -> int:
    """How many files are open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def run_child(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python of its own, in which warnings are errors. Keywords are more environment."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    whole = {**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", **environment}
    # The library prints an unknown address as if it were text.
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=120, check=False, env=whole
    )
