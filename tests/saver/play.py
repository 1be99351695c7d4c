"""Plays a scenario on a port and draws the picture after every call. Knows no expectation."""

from __future__ import annotations

import ctypes
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, cast

import torch
from torch import Tensor

from lifecycle.errors import SaverError, SaverMisuse
from lifecycle.saver.native import NativePort
from lifecycle.saver.protocol import Backup
from tests.saver.real_port import Host
from tests.saver.scenarios import Scenario

ENDS: Final = "ends"
CONTENTS: Final = range(1, 6)
NEVER_ALLOCATED: Final = 4096


class Stage(NativePort, Protocol):
    """A port that a scenario can be played on."""

    def mapped(self, allocation: Tensor) -> bool:
        """Whether there is memory behind it, asked of the system and not of the port."""

    def use_host(self, host: Host) -> None:
        """Which host memory the backups of later allocations take."""

    def fill_host(self) -> None:
        """From now on no host memory can be had for a backup."""


def content(number: int, size_bytes: int) -> bytes:
    """Bytes that are different in every content and, for 251 of them, at every offset."""
    return bytes((offset * 7 + number * 31) % 251 for offset in range(size_bytes))


def number_of(data: bytes) -> str:
    """Which content it is."""
    return next((str(number) for number in CONTENTS if data == content(number, len(data))), "?")


def calls_of(scenario: Scenario) -> list[tuple[list[str], str]]:
    """The words of each call, and the picture after it."""
    lines = [line.partition("=>") for line in scenario.lines.strip().splitlines()]
    return [(call.split(), picture.strip()) for call, _, picture in lines]


class Player:
    """One play.

    Args:
        stage: where; in it nothing is allocated.
        folder: of disk backups, empty.
        page_bytes: what the device rounds allocations up to.
    """

    def __init__(self, stage: Stage, folder: Path, page_bytes: int) -> None:
        self.stage = stage
        self.folder = folder
        self.page_bytes = page_bytes
        self.made: dict[str, Tensor] = {}
        self.kinds: dict[str, Backup] = {}
        self.idle_bytes = stage.device_used_bytes() or 0

    def play(self, scenario: Scenario) -> Iterator[str]:
        """The picture after each call, ``ends`` where the stage refuses it; the process may end before."""
        for words, _ in calls_of(scenario):
            try:
                answer = self.call(*words)
            except (SaverMisuse, SaverError):
                yield ENDS
            else:
                yield answer or self.picture()

    def call(self, verb: str, *words: str) -> str | None:
        """Make one call. A query has an answer."""
        if verb.startswith("ask"):
            return self.ask(*words)
        action = {
            "new": self.new,
            "write": self.write,
            "write-backup": self.write_backup,
            "pause": lambda tag: self.stage.pause(tag.strip("*")),
            "resume": lambda tag: self.stage.resume(tag.strip("*")),
            "free": self.free,
            "retain": lambda value: self.stage.set_retain(retain=value == "on"),
            "spoil": self.spoil,
            "fill": lambda place: self.stage.fill_host() if place == "host" else fill_disk(),
        }[verb]
        action(*words)  # type: ignore[operator]  # what a verb takes is in the table
        return None

    def new(self, name: str, size: str, tag: str, kind: str) -> None:
        if kind in ("pinned", "mmap"):
            self.stage.use_host(cast("Host", kind))
        self.kinds[name] = Backup.CPU if kind in ("pinned", "mmap") else Backup(kind)
        self.made[name] = self.stage.allocate(int(size), tag, self.kinds[name])
        self.write(name, "1")

    def write(self, name: str, number: str) -> None:
        data = bytearray(content(int(number), self.made[name].nbytes))
        self.made[name].copy_(torch.frombuffer(data, dtype=torch.uint8))

    def write_backup(self, name: str, number: str) -> None:
        tensor = self.made[name]
        pointer = self.stage.backup_pointer(tensor.data_ptr(), tensor.nbytes)
        assert pointer is not None
        ctypes.memmove(pointer, content(int(number), tensor.nbytes), tensor.nbytes)

    def free(self, name: str) -> None:
        self.stage.free(self.made.pop(name))

    def spoil(self, how: str) -> None:
        for path in self.folder.iterdir():
            path.write_bytes(path.read_bytes()[:-1]) if how == "short" else path.unlink()

    def ask(self, name: str = "", offset: str = "0", size: str = "1") -> str:
        """The answer: ``none``, ``pointer``, or ``wrong`` when it leads to other bytes than those of the whole."""
        if not name:
            return "none" if self.stage.backup_pointer(NEVER_ALLOCATED, 1) is None else "pointer"
        tensor, start = self.made[name], int(offset)
        pointer = self.stage.backup_pointer(tensor.data_ptr() + start, int(size))
        if pointer is None:
            return "none"
        whole = self.stage.backup_pointer(tensor.data_ptr(), tensor.nbytes)
        return "pointer" if pointer == (whole or 0) + start else "wrong"

    def picture(self) -> str:
        """All memory, in the notation of the table, and a word when the driver's figure is not what is mapped."""
        parts = [f"{name}={self.live(name)}/{self.kept(name)}" for name in self.made]
        files = sorted(self.held(path) for path in self.folder.glob("tms_*"))
        if files:
            parts.append(f"disk={','.join(files)}")
        mapped = [tensor.nbytes for tensor in self.made.values() if self.stage.mapped(tensor)]
        expected = sum(-(-size // self.page_bytes) * self.page_bytes for size in mapped)
        used = (self.stage.device_used_bytes() or 0) - self.idle_bytes
        if used != expected:
            parts.append(f"unaccounted={used - expected}")
        return " ".join(parts)

    def held(self, path: Path) -> str:
        """What a backup file holds, with a mark when no allocation has its size."""
        data = path.read_bytes()
        fits = any(tensor.nbytes == len(data) for tensor in self.made.values())
        return number_of(data) + ("" if fits else "~")

    def live(self, name: str) -> str:
        tensor = self.made[name]
        return number_of(bytes(tensor.cpu().numpy())) if self.stage.mapped(tensor) else "-"

    def kept(self, name: str) -> str:
        tensor = self.made[name]
        if self.kinds[name] is Backup.NONE and not self.stage.mapped(tensor):
            return "x"
        pointer = self.stage.backup_pointer(tensor.data_ptr(), tensor.nbytes)
        return "-" if pointer is None else number_of(ctypes.string_at(pointer, tensor.nbytes))


def fill_disk() -> None:
    """From now on no file of this process can grow beyond 100 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def disk_with_room_again() -> Iterator[None]:
    """Afterwards files can grow as before. A file that cannot is an error of the call, not a signal."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
