"""Transport bytes in the trainer's own process: buckets as leases with a named receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import torch
from torch import Tensor

from lifecycle.errors import ConfigError, EngineError
from lifecycle.transport.layout import ROOM_BYTES, Piece, packed

ALIVE: Final = 2
"""How many buckets of one sender exist at once: one is filled while the receiver reads the other."""


class Bucket:
    """A buffer on its way: a lease of the sender's memory, held by its receiver until it is closed.

    Attributes:
        receiver: the engine that holds it.
        pieces: what is in it; empty once it is closed.
    """

    def __init__(self, receiver: str, memory: Tensor, closed: Callable[[Bucket], None]) -> None:
        self.receiver = receiver
        self.pieces: tuple[Piece, ...] = ()
        self._memory: Tensor | None = memory
        self._closed = closed

    @property
    def size_bytes(self) -> int:
        """The sender's memory that it takes, 0 once it is closed."""
        return 0 if self._memory is None else self._memory.nbytes

    def close(self) -> None:
        """The receiver has copied what it wants. Idempotent."""
        if self._memory is not None:
            self._memory, self.pieces = None, ()
            self._closed(self)


class BucketTransport:
    """A reference transport: tensors go through buckets of bounded size, and the receiver closes each.

    Args:
        receiver: name of the engine that receives.
        bucket_bytes: size of a bucket. A larger tensor is cut into pieces.

    Attributes:
        peak_bytes: the most that was outstanding at once, at most :data:`ALIVE` buckets.

    Raises:
        ConfigError: the size is not that of a buffer.
    """

    def __init__(self, receiver: str, bucket_bytes: int) -> None:
        check_size(bucket_bytes)
        self.receiver = receiver
        self.peak_bytes = 0
        self._bucket_bytes = bucket_bytes
        self._open: list[Bucket] = []

    def outstanding_bytes(self) -> int:
        """Bytes of the buckets that the receiver has not closed."""
        return sum(bucket.size_bytes for bucket in self._open)

    def send(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[Bucket]:
        """Copy the tensors into buckets, one after the other; each is the receiver's from when it is yielded.

        Raises:
            EngineError: the receiver holds :data:`ALIVE` buckets and the next one is needed.
        """
        opened: list[Bucket] = []

        def memory() -> Tensor:
            opened.append(self._new())
            found = opened[-1]._memory  # noqa: SLF001 - the sender's own, until the receiver closes it
            assert found is not None  # nobody but the sender has seen it yet
            return found

        for _, pieces in packed(tensors, self._bucket_bytes, memory):
            bucket = opened.pop()
            bucket.pieces = pieces
            yield bucket

    def close(self) -> None:
        """The receiving session is over: whatever is still open is closed."""
        for bucket in tuple(self._open):
            bucket.close()

    def _new(self) -> Bucket:
        if len(self._open) >= ALIVE:
            held = self.outstanding_bytes()
            why = f"it holds {len(self._open)} buckets ({held} bytes) and the next one is due; close them as you read"
            raise EngineError(self.receiver, why)
        memory = torch.empty(self._bucket_bytes, dtype=torch.uint8)
        bucket = Bucket(self.receiver, memory, self._open.remove)
        self._open.append(bucket)
        self.peak_bytes = max(self.peak_bytes, self.outstanding_bytes())
        return bucket


def check_size(bucket_bytes: int) -> None:
    """Refuse a size in which not every tensor could be sent.

    Raises:
        ConfigError: it is no number of bytes, or fewer than :data:`~lifecycle.transport.layout.ROOM_BYTES`.
    """
    if not isinstance(bucket_bytes, int) or bucket_bytes < ROOM_BYTES:
        raise ConfigError(f"bucket_bytes is {bucket_bytes!r}; give a positive number of bytes, at least {ROOM_BYTES}")
