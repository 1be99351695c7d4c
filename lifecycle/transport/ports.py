"""Three ways to hand a buffer to another process: device memory, shared host memory, a file. All by the same rules.

One buffer after the other is filled, told to the receiver, and used again only when every reader has let go. Between
events there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from torch import Tensor

from lifecycle.transport.buckets import ALIVE, check_size
from lifecycle.transport.layout import Piece, packed
from lifecycle.transport.leased import LeasedFile, sweep
from lifecycle.transport.messages import message_of

BUCKET_BYTES: Final = 64 * 2**20
"""Size of a buffer unless told otherwise. At most :data:`~lifecycle.transport.buckets.ALIVE` of them exist."""


class Transport(StrEnum):
    """The ways, the fastest first."""

    DEVICE_IPC = "device-ipc"
    HOST_BUFFER = "host-buffer"
    FILE = "file"


class TransportPort(Protocol):
    """One way to hand buffers to a receiver."""

    transport: Transport

    def parcels(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Any]]:
        """Fill buffers; each is the receiver's while its message is yielded.

        Raises:
            StillHeld: the receiver keeps every buffer that there may be.
            OSError, RuntimeError: the way does not exist here, or broke.
        """

    def outstanding_bytes(self) -> int:
        """Bytes of buffers that exist. What readers have let go of meanwhile is given back first, once settled."""

    def settle(self) -> None:
        """The update is over: give every buffer back, those that are still read as soon as they are let go of."""


class StillHeld(Exception):
    """The receiver keeps every buffer that there may be, and the next one is due."""


class Memory(Protocol):
    """What a port's buffers are made of."""

    transport: Transport

    def make(self, file: LeasedFile, size_bytes: int) -> Tensor:
        """A buffer: uint8 ``[size_bytes]``, empty of meaning. Freed with its last reference.

        Raises:
            OSError, RuntimeError: there is no room, or no such memory here.
        """

    def hand_over(self, file: LeasedFile, memory: Tensor, used_bytes: int) -> Mapping[str, str | int]:
        """Make the buffer's first *used_bytes* readable for who has the file's name. Returns what else it takes to."""


@dataclass(eq=False, slots=True)
class _Buffer:
    """Memory that a file stands for; None once it is given back."""

    file: LeasedFile
    memory: Tensor | None
    size_bytes: int


class LeasedPort:
    """A port whose readers lock the file of each buffer that they read. A reader that dies has let go.

    Args:
        memory: what its buffers are made of.
        folder: where the files are. What dead senders left there is removed.
        bucket_bytes: size of a buffer. A larger tensor is cut.

    Attributes:
        transport: which way it is.
        peak_bytes: the most that existed at once, at most :data:`~lifecycle.transport.buckets.ALIVE` buffers.

    Raises:
        ConfigError: the size is not that of a buffer.
    """

    def __init__(self, memory: Memory, folder: Path, bucket_bytes: int = BUCKET_BYTES) -> None:
        check_size(bucket_bytes)
        self.transport = memory.transport
        self.peak_bytes = 0
        self._of = memory
        self._folder = folder
        self._bucket_bytes = bucket_bytes
        self._buffers: list[_Buffer] = []
        self._settled = self._swept = False

    def parcels(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Any]]:
        """See :meth:`TransportPort.parcels`."""
        self._settled = False
        taken: list[_Buffer] = []

        def memory() -> Tensor:
            taken.append(self._free())
            found = taken[-1].memory
            assert found is not None  # it is not given back
            return found

        filled = packed(tensors, self._bucket_bytes, memory)
        while True:
            full = next(filled, None)
            if full is None:
                return
            message = self._tell(taken.pop(), *full)
            del full  # while it is on its way, only the buffer itself has its memory
            yield message

    def outstanding_bytes(self) -> int:
        """See :meth:`TransportPort.outstanding_bytes`."""
        if self._settled:
            self.settle()
        return sum(one.size_bytes for one in self._buffers)

    def settle(self) -> None:
        """See :meth:`TransportPort.settle`."""
        self._settled = True
        for one in tuple(self._buffers):
            if not one.file.is_read():
                self._give_back(one)

    def _tell(self, buffer: _Buffer, memory: Tensor, pieces: tuple[Piece, ...]) -> dict[str, Any]:
        used_bytes = max(one.at_bytes + one.content.nbytes for one in pieces)
        handle = self._of.hand_over(buffer.file, memory, used_bytes)
        return message_of(self.transport, buffer.file.name, used_bytes, pieces, handle)

    def _free(self) -> _Buffer:
        """A buffer that no reader has: one that exists, or a new one."""
        for one in tuple(self._buffers):
            if not one.file.is_read():
                if one.file.has_name():
                    return one
                self._give_back(one)
        if len(self._buffers) >= ALIVE:
            held = sum(one.size_bytes for one in self._buffers)
            raise StillHeld(f"it holds {len(self._buffers)} buffers ({held} bytes) and the next one is due")
        return self._new()

    def _new(self) -> _Buffer:
        if not self._swept:
            self._swept = True
            sweep(self._folder)
        file = LeasedFile(self._folder)
        try:
            buffer = _Buffer(file, self._of.make(file, self._bucket_bytes), self._bucket_bytes)
        except BaseException:
            file.remove()
            raise
        self._buffers.append(buffer)
        self.peak_bytes = max(self.peak_bytes, sum(one.size_bytes for one in self._buffers))
        return buffer

    def _give_back(self, buffer: _Buffer) -> None:
        self._buffers.remove(buffer)
        buffer.memory = None
        buffer.file.remove()
