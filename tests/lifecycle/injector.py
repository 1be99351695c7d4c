"""Faults on demand: every operation of a transition and below it is a numbered point, and one of them fails.

The points are the effects, the commit, the saver's native operations and its calls, the calls of the operating system
that move bytes between memory and disk, the pages of the arena, memory for copies, engines, adapters and the log.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from lifecycle.errors import AdapterError, AuditError, EngineError
from lifecycle.saver import pages
from tests.lifecycle.world import FakeEngine, World


def _os_error(number: int) -> Callable[[], BaseException]:
    return lambda: OSError(number, f"injected: {os.strerror(number)}")


def _no_memory() -> BaseException:
    return RuntimeError("injected: DefaultCPUAllocator: can't allocate memory")


SHORT = "short"
"""Not an error: the read ends before its time, as that of a file which another program has cut off does."""

Kind = Callable[[], BaseException] | str
_DISK = {"ENOSPC": _os_error(errno.ENOSPC), "EIO": _os_error(errno.EIO)}
_ENOMEM = {"ENOMEM": _os_error(errno.ENOMEM)}
KINDS: dict[str, dict[str, Kind]] = {
    "effect": {"error": lambda: ValueError("injected"), "interrupt": KeyboardInterrupt},
    "commit": {"error": lambda: ValueError("injected")},
    "native": {"EIO": _os_error(errno.EIO), "out of memory": MemoryError},
    "pause": {"error": lambda: OSError("injected"), "interrupt": KeyboardInterrupt},
    "resume": {"error": lambda: OSError("injected"), "interrupt": KeyboardInterrupt},
    "paused": {"interrupt": KeyboardInterrupt},
    "resumed": {"interrupt": KeyboardInterrupt},
    "os.open": {"EMFILE": _os_error(errno.EMFILE), "EIO": _os_error(errno.EIO)},
    "os.write": _DISK,
    "os.pwrite": _DISK,
    "os.posix_fallocate": _DISK,
    "os.fsync": {"EIO": _os_error(errno.EIO)},
    "os.rename": _DISK,
    "os.readv": {"EIO": _os_error(errno.EIO), "short": SHORT},
    "os.preadv": {"EIO": _os_error(errno.EIO), "short": SHORT},
    "pages.map_fresh": _ENOMEM,
    "pages.move_away": _ENOMEM,
    "pages.map_poison": _ENOMEM,
    "pages.move_to": _ENOMEM,
    "torch.empty": {"out of memory": _no_memory, "MemoryError": MemoryError},
    "Tensor.clone": {"out of memory": _no_memory},
    "Tensor.copy_": {"error": lambda: RuntimeError("injected: the device failed"), "interrupt": KeyboardInterrupt},
    "engine": {"refuses": lambda: EngineError("E0", "injected"), "is gone": lambda: ConnectionError("injected")},
    "adapters": {"refuses": lambda: AdapterError("A", "injected")},
    "audit": {"ENOSPC": lambda: AuditError("audit.jsonl", "injected: no space left")},
}
"""What can go wrong at a point, by the part of its name before the blank."""

_OS = ("open", "write", "pwrite", "posix_fallocate", "fsync", "rename", "readv", "preadv")
_PAGES = ("map_fresh", "move_away", "map_poison", "move_to")
_ENGINE = ("begin_update", "send_base", "load_adapter", "unload_adapter", "commit_update")
_ADAPTERS = ("prepare", "install", "uninstall", "export")


def kinds_of(point: str) -> dict[str, Kind]:
    """What can go wrong at a point."""
    return KINDS[point.partition(" ")[0]]


@dataclass
class Injector:
    """Counts points while it is on, and lets one fail.

    Attributes:
        seen: the points that were reached since it was switched on.
        fired: the faults that were injected, as ``POINT: KIND``.
    """

    seen: list[str] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    _nth: int = 0
    _kind: str = ""
    _sticky: bool = False
    _broken: str = ""

    def arm(self, nth: int, kind: str, *, sticky: bool = False) -> None:
        """The n-th point from now fails.

        Args:
            nth: counted from 1; 0 lets nothing fail.
            kind: how, one of :func:`kinds_of`.
            sticky: every further point of the same name, but for a commit, fails too, until the next :meth:`arm`.
        """
        self._nth, self._kind, self._sticky, self._broken = nth, kind, sticky, ""
        self.seen, self.fired = [], []

    def point(self, name: str) -> str:
        """Reach a point.

        Returns:
            :data:`SHORT` if the read that follows has to end before its time, else nothing.
        """
        self.seen.append(name)
        if len(self.seen) != self._nth and name != self._broken:
            return ""
        if self._sticky and name != "commit":  # a state is a value in memory: it is not broken for good, as a disk is
            self._broken = name
        kinds = kinds_of(name)
        chosen = self._kind if self._kind in kinds else next(iter(kinds))  # a point may come earlier or later this time
        self.fired.append(f"{name}: {chosen}")
        kind = kinds[chosen]
        if isinstance(kind, str):
            return kind
        raise kind()

    @contextmanager
    def on(self, world: World, engines: tuple[FakeEngine, ...] = ()) -> Iterator[None]:
        """Watch everything that this world reaches inside the block."""
        with _replaced(self._places(world, engines)):
            yield

    def _places(self, world: World, engines: tuple[FakeEngine, ...]) -> list[tuple[Any, str, Callable[..., object]]]:
        runner = world.trainer._runner
        places: list[tuple[Any, str, Callable[..., object]]] = [
            (runner, "effects", {one: self._before(f"effect {one}", do) for one, do in runner.effects.items()}),  # type: ignore[list-item]
            (runner.machine, "take", self._before("commit", runner.machine.take)),
            (world.arena.port, "_faults", lambda operation, tag: self.point(f"native {operation}")),
            (world.arena, "pause", self._around("pause", "paused", world.arena.pause)),
            (world.arena, "resume", self._around("resume", "resumed", world.arena.resume)),
            (torch, "empty", self._before("torch.empty", torch.empty)),
            (torch.Tensor, "clone", self._before("Tensor.clone", torch.Tensor.clone)),
            (torch.Tensor, "copy_", self._before("Tensor.copy_", torch.Tensor.copy_)),
            (runner.recorder._audit, "write", self._before("audit", runner.recorder._audit.write)),
        ]
        places += [(os, name, self._read_or_call(f"os.{name}", getattr(os, name))) for name in _OS]
        places += [(pages, name, self._before(f"pages.{name}", getattr(pages, name))) for name in _PAGES]
        places += [(world.host, one, self._before(f"adapters {one}", getattr(world.host, one))) for one in _ADAPTERS]
        for engine in engines:
            places += [(engine, one, self._before(f"engine {one}", getattr(engine, one))) for one in _ENGINE]
        return places

    def _before(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def reached(*arguments: object, **keywords: object) -> object:
            self.point(name)
            return call(*arguments, **keywords)

        return reached

    def _around(self, before: str, after: str, call: Callable[[str], object]) -> Callable[..., object]:
        def reached(tag: str) -> None:
            self.point(before)
            call(tag)
            self.point(after)

        return reached

    def _read_or_call(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def reached(*arguments: object, **keywords: object) -> object:
            return 0 if self.point(name) == SHORT else call(*arguments, **keywords)

        return reached


@contextmanager
def _replaced(places: list[tuple[Any, str, Callable[..., object]]]) -> Iterator[None]:
    """Attributes have other values inside the block; what was inherited is inherited again after it."""
    missing = object()
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
