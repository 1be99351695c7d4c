"""What was found, before anybody judges it. Sizes are in bytes; a why that is empty means that nothing is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution that the library or one of its extras asks for.

    Attributes:
        name: as the requirement spells it.
        wanted: the least version, empty where any will do.
        extras: the extras that ask for it; none when the library itself does.
        version: what is installed, None when it is not.
        why: why it cannot be imported, the last line of the error.
    """

    name: str
    wanted: str
    extras: tuple[str, ...]
    version: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as the driver names it."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Cuda:
    """CUDA as torch and the driver see it; no context was made.

    Attributes:
        torch: version of torch.
        build: the CUDA that it was built for, empty for none.
        driver: version of the driver, empty when there is none.
        runs: the newest CUDA that the driver runs, empty where it does not say.
        devices: of the driver, also those that this process may not use.
        usable: how many of them torch would use.
        visible: ``CUDA_VISIBLE_DEVICES``, None where it is not set.
        why: why it could not be asked.
    """

    torch: str
    build: str
    driver: str = ""
    runs: str = ""
    devices: tuple[Device, ...] = ()
    usable: int = 0
    visible: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """The library of torch_memory_saver that is preloaded.

    Attributes:
        installed: the package is.
        path: the library for this CUDA, empty when there is none.
        loads: a process that was started with it had it.
        preloaded: this process has it.
        why: why there is none, or why it does not load.
    """

    installed: bool
    path: str = ""
    loads: bool = False
    preloaded: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory.

    Attributes:
        available_bytes: what the operating system has available.
        room_bytes: what the control group leaves, None without a limit.
        locked_bytes: RLIMIT_MEMLOCK, :data:`UNLIMITED` for no limit.
    """

    available_bytes: int
    room_bytes: int | None
    locked_bytes: int


@dataclass(frozen=True, slots=True)
class Room:
    """A file system.

    Attributes:
        path: a directory on it.
        problem: why the directory cannot be used.
        is_real_disk: it is no memory in disguise.
        total_bytes: its size.
        free_bytes: what may still be written.
    """

    path: str
    problem: str = ""
    is_real_disk: bool = True
    total_bytes: int = 0
    free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AuditFolder:
    """Where audit logs go.

    Attributes:
        path: the directory.
        exists: it is there.
        problem: why nothing can be written there.
        mode: permission bits of the directory.
        is_ours: it belongs to this user.
        open_files: names of files in it that others may read or write.
    """

    path: str
    exists: bool
    problem: str = ""
    mode: int = 0o700
    is_ours: bool = True
    open_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gloo:
    """Two ranks on loopback that added numbers up.

    Attributes:
        seconds: how long that took.
        why: why it did not come to an end.
    """

    seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """Who answers at the engine's URL.

    Attributes:
        url: without credentials.
        kind: ``vLLM``, ``SGLang``, or empty for neither.
        version: as it says, empty when it does not.
        missing: endpoints that the library calls and that are not there.
        why: why it cannot be used, of what it says of itself.
        sleeps: it can give its memory back.
    """

    url: str
    kind: str = ""
    version: str = ""
    missing: tuple[str, ...] = ()
    why: str = ""
    sleeps: bool = True
