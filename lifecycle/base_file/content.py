"""The bytes of a base file: written once, in chunks, and compared with the tensors whenever a file was found."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import torch
from torch import Tensor

from lifecycle.base_file import disk
from lifecycle.base_file.layout import Layout
from lifecycle.weights.chunks import CHUNK_BYTES, buffer_of, host_buffer, host_chunks


def write(descriptor: int, layout: Layout, tensors: Mapping[str, Tensor]) -> None:
    """Write the whole file and wait until it is on the disk.

    Args:
        descriptor: an empty file that nobody else writes.
        layout: of these tensors.
        tensors: readable; those that are not contiguous host memory go through one buffer.

    Raises:
        OSError: no room, known before the first byte, or a disk error.
    """
    os.fchmod(descriptor, 0o600)
    disk.reserve(descriptor, layout.size_bytes)
    disk.write_all(descriptor, memoryview(layout.header), 0)
    for name, entry in layout.entries.items():
        offset = entry.start
        for chunk in host_chunks(tensors[name]):
            disk.write_all(descriptor, buffer_of(chunk), offset)
            offset += chunk.numel()
    disk.sync(descriptor)


def difference(descriptor: int, layout: Layout, tensors: Mapping[str, Tensor]) -> str:
    """What makes a found file another than :func:`write` would make, empty when every byte is the same."""
    status = os.fstat(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    if mode != 0o600:  # noqa: PLR2004 - a mode reads best as its digits
        return f"its mode is {mode:04o}, others may have written to it"
    if status.st_size != layout.size_bytes:
        return f"it has {status.st_size} bytes and should have {layout.size_bytes}"
    try:
        return _different_bytes(descriptor, layout, tensors)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def _different_bytes(descriptor: int, layout: Layout, tensors: Mapping[str, Tensor]) -> str:
    header = bytearray(len(layout.header))
    if disk.read_all(descriptor, memoryview(header), 0) != len(header) or header != layout.header:
        return "its header is another one"
    found = host_buffer(min(CHUNK_BYTES, layout.size_bytes))
    for name, entry in layout.entries.items():
        offset = entry.start
        for chunk in host_chunks(tensors[name]):
            part = found[: chunk.numel()]
            if disk.read_all(descriptor, buffer_of(part), offset) != chunk.numel() or not torch.equal(part, chunk):
                return f"the bytes of {name} are others"
            offset += chunk.numel()
    return ""
