"""The compiled torch_memory_saver itself as a native port, over a stand-in for the CUDA driver. No GPU is needed.

Misuse ends the process, so this runs in a child process only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from torch import Tensor

from lifecycle.errors import SaverError
from lifecycle.saver.protocol import Backup
from lifecycle.saver.views import bytes_at
from tests.saver.proc import writable

Host = Literal["pinned", "mmap"]

HOOK = "torch_memory_saver_hook_mode_torch_cu13.abi3.so"


class RealLibrary:
    """The real library over the stand-ins in the folder, which are found because they are loaded first."""

    def __init__(self, folder: Path) -> None:
        self.driver = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self.runtime = ctypes.CDLL(str(folder / "libcudart.so.13"), mode=ctypes.RTLD_GLOBAL)
        spec = find_spec("torch_memory_saver")
        if spec is None or spec.origin is None:
            raise FileNotFoundError("torch_memory_saver is not installed")
        self.native = ctypes.CDLL(str(Path(spec.origin).parents[1] / HOOK))
        declare(self.native)
        for function in (self.driver.stub_set_capacity, self.driver.stub_set_granularity):
            function.argtypes = [ctypes.c_size_t]
        self.driver.stub_set_returns_pages.argtypes = [ctypes.c_int]
        self.driver.stub_free.restype = self.driver.stub_used.restype = ctypes.c_size_t
        self.runtime.stub_set_host_capacity.argtypes = [ctypes.c_size_t]
        self.runtime.stub_host_used.restype = ctypes.c_size_t

    def used_bytes(self) -> int:
        """What the stand-in has given out."""
        return int(self.driver.stub_used())


def declare(native: ctypes.CDLL) -> None:
    """Tell ctypes what the library's functions take and give."""
    for name in ("set_current_tag", "pause", "resume", "set_disk_backup_dir", "set_cpu_backup_backend"):
        getattr(native, f"tms_{name}").argtypes = [ctypes.c_char_p]
    for name in ("interesting_region", "enable_cpu_backup", "enable_disk_backup", "retain_cpu_backup"):
        getattr(native, f"tms_set_{name}").argtypes = [ctypes.c_bool]
    native.tms_get_cpu_backup_backend.restype = ctypes.c_char_p
    native.tms_get_cpu_backup_pointer.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    native.tms_get_cpu_backup_pointer.restype = ctypes.c_void_p
    native.tms_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    native.tms_torch_malloc.restype = ctypes.c_void_p
    native.tms_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]


class NativeCalls:
    """The library's own calls, nothing else. What differs between a device and the stand-in is in subclasses."""

    def __init__(self, native: ctypes.CDLL, disk_dir: str | None = None, host: Host = "pinned") -> None:
        self._native = native
        self._host = host
        self._sizes: dict[int, int] = {}
        if disk_dir is not None:
            native.tms_set_disk_backup_dir(disk_dir.encode())

    def enabled(self) -> bool:
        return True

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        free = self.device_free_bytes()
        if free is not None and size_bytes > free:
            raise SaverError(tag, "the device is full")
        self._native.tms_set_current_tag(tag.encode())
        self._native.tms_set_enable_cpu_backup(backup is Backup.CPU)
        self._native.tms_set_enable_disk_backup(backup is Backup.DISK)
        self._native.tms_set_cpu_backup_backend(self._host.encode())
        self._native.tms_set_interesting_region(True)
        try:
            address = self._native.tms_torch_malloc(size_bytes, 0, None)
        finally:
            self._native.tms_set_interesting_region(False)
        self._sizes[address] = size_bytes
        return self.view(address, size_bytes)

    def view(self, address: int, size_bytes: int) -> Tensor:
        """The device memory as a tensor."""
        raise NotImplementedError

    def free(self, allocation: Tensor) -> None:
        address = allocation.data_ptr()
        self._free(address, self._sizes.pop(address))

    def pause(self, tag: str) -> None:
        self._native.tms_pause(tag.encode())

    def resume(self, tag: str) -> None:
        self._native.tms_resume(tag.encode())

    def backup_pointer(self, address: int, size_bytes: int) -> int | None:
        found: int | None = self._native.tms_get_cpu_backup_pointer(address, size_bytes)
        return found

    def set_retain(self, *, retain: bool) -> None:
        self._native.tms_set_retain_cpu_backup(retain)

    def use_host(self, host: Host) -> None:
        """Which host memory the backups of later allocations take."""
        self._host = host

    def unmanaged(self) -> AbstractContextManager[None]:
        return self._disabled()

    def synchronize(self) -> None:
        """Nothing is queued."""

    def device_free_bytes(self) -> int | None:
        return None

    def frees_while_paused(self) -> bool:
        return True

    def free_all(self) -> None:
        """Give back what is left, for the next rule."""
        for address, size_bytes in self._sizes.items():
            self._free(address, size_bytes)
        self._sizes.clear()

    def _free(self, address: int, size_bytes: int) -> None:
        self._native.tms_set_interesting_region(True)
        self._native.tms_torch_free(address, size_bytes, 0, None)
        self._native.tms_set_interesting_region(False)

    @contextmanager
    def _disabled(self) -> Iterator[None]:
        self._native.tms_set_interesting_region(False)
        yield


class RealPort(NativeCalls):
    """The real library over the stand-in."""

    def __init__(self, library: RealLibrary, disk_dir: str | None = None, host: Host = "pinned") -> None:
        super().__init__(library.native, disk_dir, host)
        self.library = library

    def view(self, address: int, size_bytes: int) -> Tensor:
        return bytes_at(address, size_bytes)

    def device_free_bytes(self) -> int | None:
        return int(self.library.driver.stub_free())

    def device_used_bytes(self) -> int | None:
        return self.library.used_bytes()

    def mapped(self, allocation: Tensor) -> bool:
        """Whether there is memory behind it, as the kernel says."""
        return writable(allocation.data_ptr())

    def fill_host(self) -> None:
        """From now on no host memory can be pinned."""
        self.library.runtime.stub_set_host_capacity(0)
