"""The receiver's side, for the process of an engine: open what a message names, lend views, let go."""

from __future__ import annotations

import hashlib
import mmap
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from lifecycle.errors import ConfigError
from lifecycle.transport.ipc import CudaIpc, DeviceIpc
from lifecycle.transport.layout import Piece
from lifecycle.transport.leased import Unreadable, open_leased, private_folder
from lifecycle.transport.memories import CONTENT, SHARED_MEMORY, files_folder
from lifecycle.transport.messages import Parcel, read_message, views
from lifecycle.transport.ports import Transport
from lifecycle.weights.chunks import buffer_of

__all__ = ["Receiver", "Unreadable"]

Take = Callable[[Piece], None]


class Receiver:
    """Reads buffers that a sender of the same user on the same host has filled. One a process is enough.

    Args:
        shared: the sender's folder of shared memory.
        files: the sender's folder of files; :func:`~lifecycle.transport.memories.files_folder` when None.
        ipc: how device memory is opened; CUDA's handles when None.
    """

    def __init__(
        self, *, shared: Path = SHARED_MEMORY, files: Path | None = None, ipc: DeviceIpc | None = None
    ) -> None:
        self._shared = shared
        self._files = files if files is not None else files_folder()
        self._ipc: DeviceIpc = ipc if ipc is not None else CudaIpc()
        self._kept: list[_Opened] = []

    def receive(self, message: object, take: Take) -> None:
        """Lend each piece of a buffer to *take*, which copies it. Writing into one never reaches the sender.

        What *take* raises comes through, after the buffer was let go of.

        Raises:
            Unreadable: the message is none, or its buffer cannot be opened here. Nothing was lent.
            ValueError: *take* kept a view. The buffer stays in use, and the sender names this engine, until
                :meth:`let_go` finds it gone.
        """
        self.let_go()
        parcel = read_message(message)
        opened = _Opened(self._descriptor(parcel))
        try:
            opened.open(parcel, self._ipc)
            opened.lend(parcel, take)
        finally:
            was_kept = not opened.close()
            if was_kept:
                self._kept.append(opened)
        if was_kept:
            raise ValueError("a view of a transport buffer was kept; copy what is received before take() returns")

    def digests(self, message: object) -> dict[str, str]:
        """Read a buffer that holds whole tensors and answer SHA-256 of each one's bytes: what a probe asks for.

        Raises:
            Unreadable: as in :meth:`receive`.
        """
        found: dict[str, Any] = {}

        def take(piece: Piece) -> None:
            host = piece.content.cpu()
            found.setdefault(piece.name, hashlib.sha256()).update(buffer_of(host))

        self.receive(message, take)
        return {name: total.hexdigest() for name, total in found.items()}

    def let_go(self) -> bool:
        """Let go of buffers of which views were kept, where those are gone now. Returns whether none is left."""
        self._kept = [one for one in self._kept if not one.close()]
        return not self._kept

    def _descriptor(self, parcel: Parcel) -> int:
        if parcel.transport == Transport.FILE:
            try:
                return open_leased(private_folder(self._files), parcel.file)
            except ConfigError as error:
                raise Unreadable(str(error)) from error
        if parcel.transport in (Transport.DEVICE_IPC, Transport.HOST_BUFFER):
            return open_leased(self._shared, parcel.file)
        raise Unreadable(f"transport {parcel.transport[:40]!r} is unknown; there are: {', '.join(Transport)}")


class _Opened:
    """One buffer in this process: its lock, and the memory."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._memory: Tensor | None = None
        self._storage: StorageWeakRef | None = None

    def open(self, parcel: Parcel, ipc: DeviceIpc) -> None:
        assert self._descriptor is not None  # just opened
        try:
            if parcel.transport == Transport.HOST_BUFFER:
                # A copy on write: the sender's bytes are never the reader's to change.
                pages = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_COPY)
                self._memory = torch.frombuffer(pages, dtype=torch.uint8)
            elif parcel.transport == Transport.FILE:
                self._memory = _content(self._descriptor)
            else:
                self._memory = ipc.open(parcel.handle)
        except Exception as error:
            raise Unreadable(f"{parcel.transport} {parcel.file}: {type(error).__name__}: {error}") from error
        self._storage = StorageWeakRef(self._memory.untyped_storage())  # type: ignore[no-untyped-call]
        if self._memory.nbytes < parcel.size:
            raise Unreadable(f"{parcel.file} has {self._memory.nbytes} bytes, and the table goes to {parcel.size}")

    def lend(self, parcel: Parcel, take: Take) -> None:
        assert self._memory is not None  # it was opened
        lent = views(parcel, self._memory)
        try:
            while lent:
                take(lent.pop(0))
        except Exception as error:
            lent.clear()
            traceback.clear_frames(error.__traceback__)  # they hold views, and so the sender's buffer
            raise

    def close(self) -> bool:
        """Let go. Returns False while views are left: they keep the memory, and the lock stays."""
        self._memory = None
        if self._storage is not None and not self._storage.expired():  # type: ignore[no-untyped-call]
            return False
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._storage = self._descriptor = None
        return True


def _content(descriptor: int) -> Tensor:
    from safetensors.torch import load  # noqa: PLC0415 - an extra, needed only where a file is read

    with open(os.dup(descriptor), "rb") as file:  # noqa: PTH123 - of an open descriptor
        file.seek(0)
        found: Tensor = load(file.read())[CONTENT]
    return found
