"""The real library on a CUDA device, called as over the stand-in. A program, started once a scenario or rule."""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from lifecycle.saver.protocol import Backup, MemorySaver
from lifecycle.saver.tms import TorchMemorySaver
from lifecycle.testing import SaverContract
from tests.saver.play import Player
from tests.saver.real_port import Host, NativeCalls, declare
from tests.saver.scenarios import SCENARIOS

PAGE_BYTES = 2 << 20  # what the driver hands out, on every device so far


class DevicePort(NativeCalls):
    """The library's own calls on the current device, past torch's allocator."""

    def __init__(self, folder: str, host: Host) -> None:
        from torch_memory_saver.utils import get_binary_path_from_package  # noqa: PLC0415  # needs CUDA

        torch.cuda.current_stream()  # the context is there before the library needs it
        native = ctypes.CDLL(str(get_binary_path_from_package("torch_memory_saver_hook_mode_torch")))
        declare(native)
        super().__init__(native, folder, host)
        self._driver = ctypes.CDLL("libcuda.so.1")

    def view(self, address: int, size_bytes: int) -> Tensor:
        interface = {"shape": (size_bytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        holder = types.SimpleNamespace(__cuda_array_interface__=interface)
        return torch.as_tensor(holder, device="cuda")

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def device_used_bytes(self) -> int | None:
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def mapped(self, allocation: Tensor) -> bool:
        """Whether the driver has a handle for what is mapped there."""
        handle = ctypes.c_uint64()
        address = ctypes.c_void_p(allocation.data_ptr())
        if self._driver.cuMemRetainAllocationHandle(ctypes.byref(handle), address) != 0:
            return False
        self._driver.cuMemRelease(handle)
        return True

    def fill_host(self) -> None:
        raise NotImplementedError("host memory of a machine is not filled for a test")


class DeviceContract(SaverContract):
    """The contract through torch's allocator and the package. One saver a process, hence one rule."""

    def new_saver(self, *, retain_host_backup: bool = False, disk_dir: str | None = None) -> MemorySaver:
        return TorchMemorySaver("torch", retain_host_backup=retain_host_backup, disk_dir=disk_dir)

    def allocate(self, saver: MemorySaver, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        assert isinstance(saver, TorchMemorySaver)
        return saver._port.allocate(size_bytes, tag, backup)


def play(name: str, host: Host) -> None:
    """One scenario; the pictures, one a line."""
    with TemporaryDirectory() as folder:
        port = DevicePort(folder, host)
        torch.zeros(1, device="cuda")  # torch's own first segment is there before anything is counted
        for picture in Player(port, Path(folder), PAGE_BYTES).play(SCENARIOS[name]):
            print(f"saw {picture}", flush=True)


def hold(rule: str) -> None:
    """One rule of the contract."""
    getattr(DeviceContract(), rule)()
    print(f"held {rule}", flush=True)


def live() -> None:
    """One life cycle of a controller."""
    from tests.gpu.life import life_cycle  # noqa: PLC0415  # needs the packages of the adapters

    with TemporaryDirectory() as folder:
        saver = TorchMemorySaver("torch", disk_dir=folder)
        life_cycle(saver, "cuda")
    print("lived", flush=True)


if __name__ == "__main__":
    {"play": play, "hold": hold, "live": live}[sys.argv[1]](*sys.argv[2:])  # type: ignore[operator]
