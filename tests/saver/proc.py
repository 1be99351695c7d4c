"""What the kernel says of this process."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
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
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        extent, permissions = line.split()[:2]
        first, end = (int(number, 16) for number in extent.split("-"))
        if first <= address < end:
            return "w" in permissions
    return False


def descriptors() -> int:
    """How many files are open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def run_child(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python of its own, in which warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    # The library prints an unknown address as if it were text.
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=120, check=False, env=environment
    )
