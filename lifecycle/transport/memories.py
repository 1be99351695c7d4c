"""What buffers are made of: shared memory, a file's content, or memory of a device; and the ports over them."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lifecycle.transport.ipc import CudaIpc, DeviceIpc
from lifecycle.transport.leased import LeasedFile, private_folder
from lifecycle.transport.ports import BUCKET_BYTES, LeasedPort, Transport
from lifecycle.weights.chunks import host_buffer

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - each file in it is 0600, under a name that cannot be guessed

CONTENT: Final = "buffer"
"""Name of the one tensor in a transport file: uint8, the used part of the buffer."""


def files_folder() -> Path:
    """Where transport files of this user are, sender's and receiver's alike, unless both are told otherwise."""
    return Path(tempfile.gettempdir()) / f"adapter-lifecycle-{os.geteuid()}"


def by_device_ipc(
    bucket_bytes: int = BUCKET_BYTES, *, ipc: DeviceIpc | None = None, folder: Path = SHARED_MEMORY
) -> LeasedPort:
    """Buffers on the device, opened by the receiver where they are. The files only carry the locks.

    Args:
        bucket_bytes: size of a buffer, in device memory.
        ipc: how memory is exported; CUDA's handles when None.
        folder: of the files.
    """
    return LeasedPort(_OnDevice(ipc if ipc is not None else CudaIpc()), folder, bucket_bytes)


def by_host_buffer(bucket_bytes: int = BUCKET_BYTES, *, folder: Path = SHARED_MEMORY) -> LeasedPort:
    """Buffers in shared memory, which the receiver maps and views.

    Args:
        bucket_bytes: size of a buffer, in host memory. Give a host budget divided by the number of buffers.
        folder: on a tmpfs; what is in it is host memory.
    """
    return LeasedPort(_Shared(), folder, bucket_bytes)


def by_file(bucket_bytes: int = BUCKET_BYTES, *, folder: Path | None = None) -> LeasedPort:
    """Buffers as safetensors files in a private directory.

    Args:
        bucket_bytes: size of a buffer, in host memory and on the disk.
        folder: made 0700 where it is missing; :func:`files_folder` when None.

    Raises:
        ConfigError: the folder cannot be made, or is open to others.
    """
    return LeasedPort(_Filed(), private_folder(folder if folder is not None else files_folder()), bucket_bytes)


class _Shared:
    """The file is the memory."""

    transport = Transport.HOST_BUFFER

    def make(self, file: LeasedFile, size_bytes: int) -> Tensor:
        # Not only truncated to its size: where shared memory is full, the first write would end the process.
        os.posix_fallocate(file.descriptor, 0, size_bytes)
        pages = mmap.mmap(file.descriptor, size_bytes)
        pages.madvise(mmap.MADV_DONTFORK)  # a forked worker of the trainer must not keep it
        return torch.frombuffer(pages, dtype=torch.uint8)

    def hand_over(self, file: LeasedFile, memory: Tensor, used_bytes: int) -> Mapping[str, str | int]:  # noqa: ARG002 - as the protocol has it
        return {}


class _Filed:
    """The memory is written into the file."""

    transport = Transport.FILE

    def make(self, file: LeasedFile, size_bytes: int) -> Tensor:  # noqa: ARG002 - as the protocol has it
        return host_buffer(size_bytes)

    def hand_over(self, file: LeasedFile, memory: Tensor, used_bytes: int) -> Mapping[str, str | int]:
        from safetensors.torch import save  # noqa: PLC0415 - an extra, needed only where a file is written

        os.ftruncate(file.descriptor, 0)
        with open(os.dup(file.descriptor), "wb") as written:  # noqa: PTH123 - of an open descriptor
            written.seek(0)
            written.write(save({CONTENT: memory[:used_bytes]}))
        return {}


class _OnDevice:
    """The memory is exported; the file is empty."""

    transport = Transport.DEVICE_IPC

    def __init__(self, ipc: DeviceIpc) -> None:
        self._ipc = ipc

    def make(self, file: LeasedFile, size_bytes: int) -> Tensor:  # noqa: ARG002 - as the protocol has it
        return self._ipc.buffer(size_bytes)

    def hand_over(self, file: LeasedFile, memory: Tensor, used_bytes: int) -> Mapping[str, str | int]:  # noqa: ARG002 - as the protocol has it
        return self._ipc.export(memory)
