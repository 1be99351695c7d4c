"""Tensors in flat memory: packed one after the other into buffers of bounded size, and rebuilt as views of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from lifecycle.weights.chunks import pieces

ALIGN_BYTES: Final = 64
"""Where a stretch may begin in a buffer: a multiple of every element size, so that it can be viewed in its dtype."""

ROOM_BYTES: Final = 1024
"""The smallest buffer: an element of any dtype fits, and what a probe sends."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one tensor in a buffer.

    Attributes:
        name: of the tensor.
        shape: of the whole tensor.
        dtype: of the whole tensor.
        offset_bytes: where the stretch begins in the tensor's contiguous bytes.
        content: its bytes, uint8, in the buffer's memory.
        at_bytes: where it begins in the buffer.
    """

    name: str
    shape: torch.Size
    dtype: torch.dtype
    offset_bytes: int
    content: Tensor
    at_bytes: int = 0

    def write_into(self, whole: Tensor) -> None:
        """Copy the stretch to its place in a contiguous tensor of the whole one's shape and dtype."""
        flat = whole.detach().view(-1).view(torch.uint8)
        flat[self.offset_bytes : self.offset_bytes + self.content.nbytes].copy_(self.content)


def packed(
    tensors: Iterable[tuple[str, Tensor]], buffer_bytes: int, new: Callable[[], Tensor]
) -> Iterator[tuple[Tensor, tuple[Piece, ...]]]:
    """Copy the tensors into buffers, in order; a larger one is cut along its rows. No other copy of one is made.

    Args:
        tensors: strided, on any device; each is read before the next one is asked for.
        buffer_bytes: size of a buffer, at least :data:`ROOM_BYTES`.
        new: gives a buffer: uint8 ``[buffer_bytes]``, on any device. Called when the next one is needed.

    Yields:
        A full buffer (or the last one) with what is in it.
    """
    memory: Tensor | None = None
    held: list[Piece] = []
    ready: list[tuple[Tensor, tuple[Piece, ...]]] = []  # taken out as they are yielded: nothing here keeps a buffer
    used = 0
    for name, tensor in tensors:
        for offset, part in _parts(tensor.detach(), buffer_bytes):
            size = part.numel() * part.element_size()
            at = -(-used // ALIGN_BYTES) * ALIGN_BYTES
            if memory is not None and at + size > buffer_bytes:
                ready.append((memory, tuple(held)))
                memory, held = None, []
                yield ready.pop()
            if memory is None:
                memory, at = new(), 0
            content = memory[at : at + size]
            _copy(content, part)
            held.append(Piece(name, tensor.shape, tensor.dtype, offset, content, at))
            used = at + size
            del content, part
    if memory is not None:
        ready.append((memory, tuple(held)))
        memory, held = None, []
        yield ready.pop()


def _parts(tensor: Tensor, buffer_bytes: int) -> Iterator[tuple[int, Tensor]]:
    """Pieces that fit a buffer, each with its offset in the tensor's contiguous bytes; an empty tensor has one."""
    if tensor.numel() == 0:
        yield 0, tensor
        return
    offset = 0
    for part in pieces(tensor, buffer_bytes):
        yield offset, part
        offset += part.numel() * part.element_size()


def _copy(content: Tensor, part: Tensor) -> None:
    if content.nbytes:
        content.view(part.dtype).view(part.shape).copy_(part)
