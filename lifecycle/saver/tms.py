"""The adapter for torch_memory_saver on CUDA: a thin lazy binding, under the books and guards of a managed saver.

Written against torch_memory_saver 0.0.10. Importing this module loads neither the package nor CUDA.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, Final, Literal

import torch
from torch import Tensor

from lifecycle.errors import ConfigError, SaverError
from lifecycle.memory.environment import is_preloaded, sets_expandable_segments
from lifecycle.saver.guards import check_folder
from lifecycle.saver.protocol import Backup
from lifecycle.saver.room import CarefulSaver

HookMode = Literal["preload", "torch"]

_FREES_WHILE_PAUSED: Final = (0, 0, 10)


class PackagePort:
    """A :class:`~lifecycle.saver.native.NativePort` over the package's process-wide singleton. No guards here.

    Args:
        hook_mode: ``preload`` (the process was started with LD_PRELOAD) or ``torch`` (a pluggable allocator).
        disk_dir: folder of disk backups, None for the package's own choice.

    Raises:
        ConfigError: the package, CUDA or the hook is missing, or the folder cannot be written.
            Nothing native was called then.
    """

    def __init__(self, hook_mode: HookMode = "preload", disk_dir: str | None = None) -> None:
        why = why_unavailable(hook_mode)
        if why is not None:
            raise ConfigError(f"torch_memory_saver cannot be used: {why}")
        check_folder(disk_dir)
        self._saver, self._library = _start(hook_mode)
        if disk_dir is not None:
            self._saver.set_disk_backup_dir(disk_dir)

    def enabled(self) -> bool:
        """Always: without the hook there is no such port."""
        return True

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """A new ACTIVE allocation on the current device as a uint8 tensor ``[size_bytes]``.

        Raises:
            SaverError: the device has no room.
        """
        region = self._saver.region(
            tag=tag, enable_cpu_backup=backup is Backup.CPU, enable_disk_backup=backup is Backup.DISK
        )
        try:
            with region:
                return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            why = f"the device has no room for {size_bytes} bytes ({error}); pause or release another tag"
            raise SaverError(tag, why) from error

    def free(self, allocation: Tensor) -> None:
        """Nothing to call: torch frees the memory once its last tensor is gone, and may cache it before."""

    def pause(self, tag: str) -> None:
        """Pause every allocation of the tag. Ends the process on misuse and on any failure."""
        self._saver.pause(tag)

    def resume(self, tag: str) -> None:
        """Resume every allocation of the tag. Ends the process on misuse and when the device is full."""
        self._saver.resume(tag)

    def backup_pointer(self, address: int, size_bytes: int) -> int | None:
        """Host address of the backup, None when there is none. Ends the process on misuse."""
        pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8))
        found = self._library.tms_get_cpu_backup_pointer(pointer, size_bytes)
        return ctypes.cast(found, ctypes.c_void_p).value

    def set_retain(self, *, retain: bool) -> None:
        """Whether host backups outlive a resume; one setting a process."""
        self._saver.retain_cpu_backup = retain

    def unmanaged(self) -> AbstractContextManager[None]:
        """The package's ``disable()``, which asserts a region: outside of one, and nested, there is nothing to do."""
        inside: bool = self._library.tms_get_interesting_region()
        context: AbstractContextManager[None] = self._saver.disable() if inside else nullcontext()
        return context

    def synchronize(self) -> None:
        """Wait for the current device's streams."""
        torch.cuda.synchronize()

    def device_free_bytes(self) -> int | None:
        """What the driver has free; torch's own cache is not counted."""
        return int(torch.cuda.mem_get_info()[0])

    def device_used_bytes(self) -> int | None:
        """What the driver has given out, to any process; torch's own cache is in it."""
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def frees_while_paused(self) -> bool:
        """From version 0.0.10 on; before, freeing what is paused released its handle twice and ended the process."""
        return frees_while_paused(_installed_version())


class TorchMemorySaver(CarefulSaver):
    """The memory saver for a CUDA device: books and guards over torch_memory_saver. One a process.

    On top of the guards every saver has, a call is refused when the native library would end the process for
    want of room: a resume on a full device, a pause whose backup does not fit into the host's memory or the disk.

    Args:
        hook_mode: ``preload`` or ``torch``.
        retain_host_backup: whether host backups outlive a resume.
        disk_dir: folder of disk backups, made when it is missing; None refuses them.

    Raises:
        ConfigError: the package, CUDA or the hook is missing, or another saver of this process is alive.
    """

    _live: weakref.ref[TorchMemorySaver] | None = None

    def __init__(
        self, hook_mode: HookMode = "preload", *, retain_host_backup: bool = False, disk_dir: str | None = None
    ) -> None:
        other = TorchMemorySaver._live
        if other is not None and other() is not None:
            raise ConfigError("this process has a TorchMemorySaver already, and two sets of books cannot both be true")
        port = PackagePort(hook_mode, disk_dir)
        super().__init__(port, retain_host_backup=retain_host_backup, disk_dir=disk_dir)
        TorchMemorySaver._live = weakref.ref(self)


def why_unavailable(hook_mode: str) -> str | None:
    """Why torch_memory_saver cannot be used in this process, and what to do; None when it can."""
    if hook_mode not in ("preload", "torch"):
        return f"hook_mode is preload or torch, not {hook_mode!r}"
    if find_spec("torch_memory_saver") is None:
        return "the package is not installed; pip install torch-memory-saver, or use HostArena"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device; use HostArena, or a build of torch with CUDA on a machine that has one"
    name = sets_expandable_segments()
    if name is not None:
        return f"{name} sets expandable_segments:True, which it does not support; unset it"
    if hook_mode == "preload" and not is_preloaded():
        return (
            "its hook is not in LD_PRELOAD; start this process inside torch_memory_saver.configure_subprocess(), "
            'or pass hook_mode="torch"'
        )
    return None


def frees_while_paused(version: str) -> bool:
    """Whether this version of torch_memory_saver survives that paused memory is freed: a release from 0.0.10 on.

    A version that cannot be read, and a pre-release, count as older.
    """
    release = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\.post\d+)?(?:\+.*)?", version)
    return release is not None and tuple(map(int, release[1].split("."))) >= _FREES_WHILE_PAUSED


def _installed_version() -> str:
    try:
        return metadata.version("torch_memory_saver")
    except metadata.PackageNotFoundError:
        return "unknown"


def _start(hook_mode: HookMode) -> tuple[Any, Any]:
    """The singleton and its native library, started in this mode. The package has no public way to the latter."""
    try:
        saver = import_module("torch_memory_saver").torch_memory_saver
        if getattr(saver, "_impl", None) is None:
            saver.hook_mode = hook_mode
        getattr(saver, "retain_cpu_backup")  # noqa: B009  # the first use loads the library
        started = saver._impl  # noqa: SLF001
        mode, library = started._hook_mode, started._binary_wrapper.cdll  # noqa: SLF001
    except (ImportError, OSError, AssertionError, AttributeError, RuntimeError) as error:
        raise ConfigError(
            f"torch_memory_saver cannot be started ({type(error).__name__}: {error}); "
            "install version 0.0.10 built for this CUDA, or use HostArena"
        ) from error
    if mode != hook_mode:
        raise ConfigError(f"torch_memory_saver was started in hook mode {mode} before; pass hook_mode={mode!r}")
    return saver, library
