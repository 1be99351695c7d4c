"""Bases, stores, and processes of their own that obtain a base and say what became of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from lifecycle.base_file import BaseFile, BaseFileStore
from lifecycle.weights.digests import digest

ROOT = Path(__file__).parents[2]

HEADER = """
import os, sys, time
import torch
from lifecycle.base_file import BaseFileStore
from lifecycle.weights.digests import digest
from lifecycle.errors import BaseFileError
from tests.base_file.world import big_base, pss_bytes, release_signal

directory, mib = sys.argv[1], int(sys.argv[2])
"""


def base(seed: int = 0) -> dict[str, Tensor]:
    """A small base with the kinds of tensors that models have."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(64, 32, generator=generator)
    return {
        "embed.weight": weight.to(torch.bfloat16),
        "lm_head.weight": weight,
        "norm.weight": torch.randn(32, generator=generator, dtype=torch.float64),
        "scale": torch.tensor(1.5 + seed),
        "empty": torch.empty(0, 7),
        "transposed": torch.randn(8, 6, generator=generator).t(),
        "strided": torch.arange(40, dtype=torch.int32)[::3],
        "mask": torch.rand(5, generator=generator) > 0.5,
    }


def big_base(mib: int) -> dict[str, Tensor]:
    """A contiguous base of that many MiB in tensors of at most 8 MiB, the same in every process."""
    sizes = [8] * (mib // 8) + ([mib % 8] if mib % 8 else [])
    return {
        f"layer.{index}.weight": torch.arange(size * 2**18, dtype=torch.int32).add_(index)
        for index, size in enumerate(sizes)
    }


def obtain(directory: Path, tensors: dict[str, Tensor], **settings: float) -> BaseFile:
    """Through a store of its own, with the digest computed."""
    return BaseFileStore(directory, **settings).obtain(tensors, digest(tensors))


@contextmanager
def opened(directory: Path, tensors: dict[str, Tensor], **settings: float) -> Iterator[BaseFile]:
    """The file, closed at the end."""
    file = obtain(directory, tensors, **settings)
    try:
        yield file
    finally:
        file.close()


def start(program: str, directory: Path, mib: int = 1, *more: str) -> subprocess.Popen[str]:
    """Run a program in a process of its own; it ends at a line or the end of its standard input."""
    command = [sys.executable, "-W", "error", "-c", HEADER + program, str(directory), str(mib), *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> str:
    """Let the process end well; the rest of what it printed."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output.strip()


def release_signal() -> None:
    """In a child: say that all is ready and wait for the word to go on."""
    sys.stdin.readline()


def pss_bytes() -> int:
    """Anonymous and shared memory that is this process's own share."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Pss_Anon", "Pss_Shmem"))


def names(directory: Path) -> list[str]:
    """What lies in the directory."""
    return sorted(path.name for path in directory.iterdir())
