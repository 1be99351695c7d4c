"""Transport bytes as leases with a named receiver: a buffer is the trainer's memory until its receiver closes it.

A sync is complete when no such byte is outstanding. Until then ``offload`` and ``wake_up`` are refused and name
the receivers: the memory that they hold is missing where the transition counts on it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import torch
from torch import Tensor

from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import ConfigError, EngineError

ALIVE: Final = 2
"""How many buckets of one sender exist at once: one is filled while the receiver reads the other."""


@runtime_checkable
class HoldsTransport(Protocol):
    """A rollout engine that receives through buffers of the trainer. Optional; others copy before they return."""

    def outstanding_bytes(self) -> int:
        """Bytes of the trainer's buffers that it has not closed yet. Cheap; asked before each offload and wake."""


class Receivers:
    """The engines that were sent something through buffers, by name and weakly: one that is gone holds nothing."""

    def __init__(self) -> None:
        self._known: dict[str, Callable[[], HoldsTransport | None]] = {}

    def remember(self, engine: RolloutEngine) -> None:
        """It gets something now; what it holds counts from here on."""
        if isinstance(engine, HoldsTransport):
            try:
                self._known[engine.name] = weakref.ref(engine)
            except TypeError:  # a class with slots and without weak references
                self._known[engine.name] = lambda: engine

    def outstanding(self) -> dict[str, int | None]:
        """Bytes by holder, of those that hold any; None where a receiver does not answer: that is unknown."""
        found: dict[str, int | None] = {}
        for name, look in tuple(self._known.items()):
            engine = look()
            if engine is None:
                del self._known[name]
                continue
            try:
                held: int | None = int(engine.outstanding_bytes())
            except Exception:  # noqa: BLE001 - whatever a receiver raises, what it holds is unknown
                held = None
            if held != 0:
                found[name] = held
        return found

    def facts(self) -> dict[str, object]:
        """``transport_bytes`` and ``transport_holders`` of :class:`states.Facts`."""
        held = self.outstanding()
        return {
            "transport_bytes": sum(size or 0 for size in held.values()),
            "transport_holders": tuple(
                f"{name} ({'does not answer' if size is None else f'{size} bytes'})" for name, size in held.items()
            ),
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one tensor in a bucket.

    Attributes:
        name: of the tensor.
        shape: of the whole tensor.
        dtype: of the whole tensor.
        offset_bytes: where the stretch begins in the tensor's contiguous bytes.
        content: its bytes, uint8, in the bucket's memory.
    """

    name: str
    shape: torch.Size
    dtype: torch.dtype
    offset_bytes: int
    content: Tensor


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
        ConfigError: the size is not positive.
    """

    def __init__(self, receiver: str, bucket_bytes: int) -> None:
        if bucket_bytes <= 0:
            raise ConfigError(f"bucket_bytes is {bucket_bytes}; give a positive number of bytes")
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
        bucket, used, pieces = None, 0, list[Piece]()
        for name, tensor in tensors:
            content = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            offset = 0
            while offset < content.nbytes or content.nbytes == 0:
                bucket = bucket if bucket is not None else self._new()
                size = min(content.nbytes - offset, self._bucket_bytes - used)
                part = self._fill(bucket, used, content[offset : offset + size])
                pieces.append(Piece(name, tensor.shape, tensor.dtype, offset, part))
                offset, used = offset + size, used + size
                if used == self._bucket_bytes:
                    yield self._whole(bucket, pieces)
                    bucket, used, pieces = None, 0, []
                if content.nbytes == 0:
                    break
        if bucket is not None:
            yield self._whole(bucket, pieces)

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

    @staticmethod
    def _fill(bucket: Bucket, used: int, content: Tensor) -> Tensor:
        memory = bucket._memory  # noqa: SLF001 - the sender's own, until the receiver closes it
        assert memory is not None  # nobody but the sender has seen it yet
        part = memory[used : used + content.nbytes]
        part.copy_(content)
        return part

    @staticmethod
    def _whole(bucket: Bucket, pieces: list[Piece]) -> Bucket:
        bucket.pieces = tuple(pieces)
        return bucket
