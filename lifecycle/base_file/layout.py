"""Where each tensor lies in a base file: the safetensors format, written by hand because the library cannot stream.

8 bytes of header length (little endian), a JSON header padded with spaces, then the bytes of the tensors without
gaps. Larger elements come first, so that each tensor is aligned for its dtype. The header follows from the tensors
and their digest alone: two files of one content are equal byte by byte.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from lifecycle.errors import BaseFileError

DTYPES: Final[dict[torch.dtype, str]] = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}
"""What the format can hold, with its names. Packed types of less than a byte are not written."""

_ALIGNMENT: Final = 4096
_HEADER_BYTES_MAX: Final = 100_000_000  # the library reads no larger one
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor in the file.

    Attributes:
        dtype: of the tensor.
        shape: of the tensor.
        start: offset of its first byte in the file.
        size_bytes: its bytes, contiguous in row-major order.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole file.

    Attributes:
        header: what comes before the tensors, a multiple of 4096 bytes.
        entries: name to place, in the order of the file.
        size_bytes: the file's size.
    """

    header: bytes
    entries: Mapping[str, Entry]
    size_bytes: int


def layout_of(tensors: Mapping[str, Tensor], digest: str, path: str) -> Layout:
    """Lay the tensors out.

    Args:
        tensors: only dtypes and shapes are looked at. Tied tensors are laid out under each of their names.
        digest: goes into the header's metadata.
        path: for messages.

    Raises:
        BaseFileError: a name, a dtype or a kind of tensor that the file cannot hold.
    """
    for name, tensor in tensors.items():
        problem = _name_problem(name) or tensor_problem(tensor)
        if problem:
            raise BaseFileError(path, f"tensor {name!r} {problem}")
    described: dict[str, object] = {"__metadata__": {"digest": digest, "format": "pt"}}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name in sorted(tensors, key=lambda one: (-tensors[one].element_size(), one)):
        tensor = tensors[name]
        start, end = end, end + tensor.numel() * tensor.element_size()
        places[name] = (start, end)
        described[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    header = _header(described)
    if len(header) > _HEADER_BYTES_MAX:
        raise BaseFileError(path, f"the names of {len(tensors)} tensors need a header of {len(header)} bytes")
    entries = {
        name: Entry(tensors[name].dtype, tuple(tensors[name].shape), len(header) + start, stop - start)
        for name, (start, stop) in places.items()
    }
    return Layout(header, entries, len(header) + end)


def digest_problem(digest: str) -> str:
    """Why this is no digest that can name a file, empty when it is one."""
    return "" if _DIGEST.fullmatch(digest) else "it is no SHA-256 in 64 lower-case hexadecimal digits"


def tensor_problem(tensor: Tensor) -> str:
    """Why the file cannot hold such a tensor, empty when it can."""
    if hasattr(tensor, "__tensor_flatten__"):  # how torch marks a class that wraps other tensors
        return f"is a {type(tensor).__name__}, which wraps other tensors; give the tensors inside it"
    if tensor.layout != torch.strided:
        return f"is laid out as {tensor.layout}, only strided tensors have bytes in order"
    if tensor.dtype not in DTYPES:
        return f"has dtype {tensor.dtype}, which a safetensors file cannot hold"
    if tensor.device.type == "meta":
        return "is on the meta device and has no bytes"
    return ""


def _name_problem(name: str) -> str:
    if not name:
        return "has no name"
    if name == "__metadata__":
        return "has the name that the format keeps for itself"
    return "" if name.isprintable() else "has characters in its name that cannot be printed"


def _header(described: Mapping[str, object]) -> bytes:
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    length = len(text) + -(8 + len(text)) % _ALIGNMENT
    return struct.pack("<Q", length) + text.ljust(length)
