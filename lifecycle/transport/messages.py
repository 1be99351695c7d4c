"""What a receiver is told of a buffer: JSON, checked before a byte is looked at. No pickle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from lifecycle.transport.layout import ALIGN_BYTES, Piece
from lifecycle.transport.leased import Unreadable

_DTYPES: Final = {
    str(one).removeprefix("torch."): one
    for one in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
        torch.bool,
    )
}  # fmt: skip


class Stretch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One :class:`~lifecycle.transport.layout.Piece` without its bytes; *size* of them."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    at: int
    size: int


class Parcel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer on its way.

    Attributes:
        transport: which port sent it.
        file: name of the file that stands for it.
        size: of the buffer, in bytes.
        pieces: what is in it.
        handle: of device memory, empty elsewhere.
    """

    transport: str
    file: str
    size: int
    pieces: tuple[Stretch, ...]
    handle: dict[str, str | int] = {}


def message_of(
    transport: str, file: str, size: int, pieces: Sequence[Piece], handle: Mapping[str, str | int] | None = None
) -> dict[str, Any]:
    """The message as plain JSON values.

    Raises:
        ValueError: a tensor's dtype has no name here.
    """
    rows = []
    for one in pieces:
        dtype = str(one.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise ValueError(f"{one.name} has dtype {dtype}, which no transport sends")
        rows.append(Stretch(one.name, tuple(one.shape), dtype, one.offset_bytes, one.at_bytes, one.content.nbytes))
    found: dict[str, Any] = msgspec.to_builtins(Parcel(transport, file, size, tuple(rows), dict(handle or {})))
    return found


def read_message(message: object) -> Parcel:
    """The message, checked whole.

    Raises:
        Unreadable: it is not one, or its table does not describe stretches of such tensors in such a buffer.
    """
    try:
        parcel = msgspec.convert(message, Parcel)
    except msgspec.ValidationError as error:
        raise Unreadable(f"the message is none: {error}") from error
    for one in parcel.pieces:
        why = _problem(one, parcel.size)
        if why:
            raise Unreadable(f"the table says of {one.name[:80]!r}: {why}")
    return parcel


def views(parcel: Parcel, memory: Tensor) -> list[Piece]:
    """The pieces as views of the buffer: uint8 ``[size]``."""
    return [
        Piece(
            one.name,
            torch.Size(one.shape),
            _DTYPES[one.dtype],
            one.offset,
            memory[one.at : one.at + one.size],
            one.at,
        )
        for one in parcel.pieces
    ]


def _problem(one: Stretch, room_bytes: int) -> str:
    if one.dtype not in _DTYPES:
        return f"dtype {one.dtype[:40]!r} is unknown"
    if any(length < 0 for length in one.shape):
        return f"shape {one.shape} is none"
    whole = math.prod(one.shape) * _DTYPES[one.dtype].itemsize
    if one.offset < 0 or one.size < 0 or one.offset + one.size > whole:
        return f"bytes {one.offset} to {one.offset + one.size} of a tensor of {whole}"
    if one.at < 0 or one.at % ALIGN_BYTES or one.at + one.size > room_bytes:
        return f"{one.size} bytes at {one.at} of a buffer of {room_bytes}"
    return ""
