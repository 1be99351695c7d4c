"""Memory that stands for a device's: files that two processes map. It fails when it is told to."""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


class FakeIpc:
    """Exports by name; *fails_at* is the number of the export that raises, 0 for none, -1 for each.

    Attributes:
        exports: how many were asked for.
    """

    def __init__(self, folder: Path, *, fails_at: int = 0) -> None:
        self.exports = 0
        self.fails_at = fails_at
        self._folder = folder / "device"
        self._folder.mkdir(exist_ok=True)
        self._names: dict[int, str] = {}

    def buffer(self, size_bytes: int) -> Tensor:
        name = f"fake-device-{secrets.token_hex(8)}"
        descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(descriptor, size_bytes)
        found = torch.frombuffer(mmap.mmap(descriptor, size_bytes), dtype=torch.uint8)
        os.close(descriptor)
        self._names[found.data_ptr()] = name
        return found

    def export(self, buffer: Tensor) -> Mapping[str, str | int]:
        self.exports += 1
        if self.fails_at in (-1, self.exports):
            raise RuntimeError("CUDA error: invalid device context")
        return {"fake": self._names[buffer.data_ptr()]}

    def open(self, handle: Mapping[str, str | int]) -> Tensor:
        with (self._folder / str(handle["fake"])).open("rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
