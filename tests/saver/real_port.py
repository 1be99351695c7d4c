"""The compiled torch_memory_saver itself as a native port, over a stand-in for the CUDA driver. No GPU is needed.

Misuse ends the process, so this runs in a child process only.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from lifecycle.errors import SaverError
from lifecycle.saver.protocol import Backup
from lifecycle.saver.views import bytes_at

SOURCES = Path(__file__).parent / "native_stub"
HOOK = "torch_memory_saver_hook_mode_torch_cu13.abi3.so"


def build_stub(folder: Path) -> None:
    """Compile the stand-ins for libcuda.so.1 and libcudart.so.13 into the folder.

    Raises:
        FileNotFoundError: there is no C compiler.
        subprocess.CalledProcessError: it does not compile them.
    """
    shared = [*_compiler(), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    driver, runtime = folder / "libcuda.so.1", folder / "libcudart.so.13"
    versions = f"-Wl,--version-script={SOURCES / 'libcudart.map'}"
    for command in (
        [*shared, "-Wl,-soname,libcuda.so.1", "-o", str(driver), str(SOURCES / "libcuda.c")],
        [
            *shared,
            "-Wl,-soname,libcudart.so.13",
            versions,
            "-o",
            str(runtime),
            str(SOURCES / "libcudart.c"),
            str(driver),
        ],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)


def load_library(folder: Path) -> ctypes.CDLL:
    """The real library over the stand-ins in the folder, which are found because they are loaded first."""
    driver = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(folder / "libcudart.so.13"), mode=ctypes.RTLD_GLOBAL)
    spec = find_spec("torch_memory_saver")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("torch_memory_saver is not installed")
    library = ctypes.CDLL(str(Path(spec.origin).parents[1] / HOOK))
    library.stub = driver
    for name in ("tms_set_current_tag", "tms_pause", "tms_resume", "tms_set_disk_backup_dir"):
        getattr(library, name).argtypes = [ctypes.c_char_p]
    for name in ("interesting_region", "enable_cpu_backup", "enable_disk_backup", "retain_cpu_backup"):
        getattr(library, f"tms_set_{name}").argtypes = [ctypes.c_bool]
    library.tms_get_cpu_backup_pointer.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.tms_get_cpu_backup_pointer.restype = ctypes.c_void_p
    library.tms_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.tms_torch_malloc.restype = ctypes.c_void_p
    library.tms_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    driver.stub_set_capacity.argtypes = [ctypes.c_size_t]
    driver.stub_free.restype = driver.stub_used.restype = ctypes.c_size_t
    return library


class RealPort:
    """The library's own calls, nothing else."""

    def __init__(self, library: ctypes.CDLL, disk_dir: str | None = None) -> None:
        self._library = library
        self._sizes: dict[int, int] = {}
        if disk_dir is not None:
            library.tms_set_disk_backup_dir(disk_dir.encode())

    def enabled(self) -> bool:
        return True

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        if size_bytes > self._library.stub.stub_free():
            raise SaverError(tag, "the stub device is full")
        self._library.tms_set_current_tag(tag.encode())
        self._library.tms_set_enable_cpu_backup(backup is Backup.CPU)
        self._library.tms_set_enable_disk_backup(backup is Backup.DISK)
        self._library.tms_set_interesting_region(True)
        try:
            address = self._library.tms_torch_malloc(size_bytes, 0, None)
        finally:
            self._library.tms_set_interesting_region(False)
        self._sizes[address] = size_bytes
        return bytes_at(address, size_bytes)

    def free(self, allocation: Tensor) -> None:
        address = allocation.data_ptr()
        self._free(address, self._sizes.pop(address))

    def pause(self, tag: str) -> None:
        self._library.tms_pause(tag.encode())

    def resume(self, tag: str) -> None:
        self._library.tms_resume(tag.encode())

    def backup_pointer(self, address: int, size_bytes: int) -> int | None:
        found: int | None = self._library.tms_get_cpu_backup_pointer(address, size_bytes)
        return found

    def set_retain(self, *, retain: bool) -> None:
        self._library.tms_set_retain_cpu_backup(retain)

    def unmanaged(self) -> AbstractContextManager[None]:
        return self._disabled()

    def synchronize(self) -> None:
        """The stub has no streams."""

    def device_free_bytes(self) -> int | None:
        return int(self._library.stub.stub_free())

    def device_used_bytes(self) -> int | None:
        return int(self._library.stub.stub_used())

    def frees_while_paused(self) -> bool:
        return True

    def free_all(self) -> None:
        """Give back what is left, for the next rule."""
        for address, size_bytes in self._sizes.items():
            self._free(address, size_bytes)
        self._sizes.clear()

    def _free(self, address: int, size_bytes: int) -> None:
        self._library.tms_set_interesting_region(True)
        self._library.tms_torch_free(address, size_bytes, 0, None)
        self._library.tms_set_interesting_region(False)

    @contextmanager
    def _disabled(self) -> Iterator[None]:
        self._library.tms_set_interesting_region(False)
        yield


def _compiler() -> list[str]:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is not None:
        return [found]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise FileNotFoundError("no C compiler; install one, or ziglang from PyPI")
