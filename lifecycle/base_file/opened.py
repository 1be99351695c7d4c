"""An open base file: tensors mapped from it, and reads that answer a broken file with an error."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lifecycle.base_file import disk
from lifecycle.base_file.layout import Entry, Layout
from lifecycle.base_file.locks import withdraw
from lifecycle.errors import BaseFileError
from lifecycle.weights.chunks import as_bytes, buffer_of, is_plain, pieces, staged, staging_for
from lifecycle.weights.digests import digest

_NO_RESERVE: Final = int(getattr(mmap, "MAP_NORESERVE", 0))  # pages that nobody writes need no swap put by


class BaseFile:
    """A base file that this process uses. While it is open, nobody who follows the rules removes it.

    Made by :meth:`BaseFileStore.obtain`. Threads may share it.

    Attributes:
        path: its name.
        digest: SHA-256 of its content, as :func:`lifecycle.weights.digests.digest` gives it.
        size_bytes: its size on the disk, header included.
        written_bytes: bytes that were written to make it: ``size_bytes``, or 0 where the file was found.
    """

    def __init__(
        self, path: Path, digest: str, layout: Layout, descriptor: int, status: os.stat_result, *, written: bool
    ) -> None:
        self.path = path
        self.digest = digest
        self.size_bytes = layout.size_bytes
        self.written_bytes = layout.size_bytes if written else 0
        self._entries = layout.entries
        self._descriptor: int | None = descriptor
        self._stamp = _stamp(status)
        self._mapping: mmap.mmap | None = _mapped(descriptor, layout.size_bytes, path)
        # Last: if anything above raises, the descriptor is still the caller's to close.
        self._closing = weakref.finalize(self, os.close, descriptor)

    def __repr__(self) -> str:
        state = "closed" if self._descriptor is None else "open"
        return f"BaseFile({str(self.path)!r}, {self.size_bytes} bytes, {state})"

    def names(self) -> tuple[str, ...]:
        """Names of the tensors, sorted."""
        return tuple(sorted(self._entries))

    def tensor(self, name: str) -> Tensor:
        """The tensor on the mapped file: CPU, contiguous, on a storage of its own, without a copy; only to be read.

        It stays good after :meth:`close`; the mapping, and with it the lock, then goes with the last such tensor.

        Raises:
            BaseFileError: no such tensor, the file is closed, or no longer as long as it was written.
        """
        entry = self._entry(name)
        self.check()
        assert self._mapping is not None, "an open file is mapped"
        return _on(self._mapping, entry)

    def view(self) -> Callable[[str], Tensor]:
        """The tensors by name, as :meth:`tensor` gives them, on a mapping of this view's own.

        What a reader writes into one, against the rule, no other reader sees.

        Raises:
            BaseFileError: the file is closed or cannot be mapped; at each tensor, what :meth:`tensor` raises.
        """
        mapping = _mapped(self._open_descriptor(), self.size_bytes, self.path)

        def tensor(name: str) -> Tensor:
            entry = self._entry(name)
            self.check()
            return _on(mapping, entry)

        return tensor

    def read_into(self, name: str, into: Tensor) -> int:
        """Read the tensor's bytes into another one, in chunks.

        Contiguous host memory is read into directly, anything else through a buffer of 16 MiB at most (pinned for a
        CUDA device). After an error the target holds some of the new bytes.

        Args:
            name: of the tensor in the file.
            into: same dtype and shape; any device, any strides that do not overlap.

        Returns:
            Bytes read.

        Raises:
            BaseFileError: no such tensor, another dtype or shape, the file is closed, too short or cannot be read.
        """
        entry = self._entry(name)
        problem = _target_problem(entry, into)
        if problem:
            raise BaseFileError(str(self.path), f"{name} cannot be read into the tensor given: {problem}")
        self.check()
        plain = into.detach()
        if entry.size_bytes == 0:
            return 0
        if is_plain(plain):
            self._fill(name, as_bytes(plain), entry.start)
            return entry.size_bytes
        staging, offset = staging_for(plain), entry.start
        for piece in pieces(plain):
            host = staged(staging, piece)
            self._fill(name, as_bytes(host), offset)
            piece.copy_(host)
            offset += host.numel() * host.element_size()
        return entry.size_bytes

    def check(self) -> None:
        """Look whether the file is still as long as it was written: mapped reads beyond its end end the process.

        Raises:
            BaseFileError: it is closed, or its size has changed.
        """
        size_bytes = os.fstat(self._open_descriptor()).st_size
        if size_bytes != self.size_bytes:
            raise BaseFileError(
                str(self.path),
                f"it has {size_bytes} bytes now and had {self.size_bytes} when it was opened: another program changed "
                "it. Restore the weights from a checkpoint and remove the file",
            )

    def is_untouched(self) -> bool:
        """Whether device, inode, size and times are those of when its bytes were compared or written.

        False does not say that bytes differ: a removed, linked or touched file has other times too. The times are as
        fine as the file system keeps them, a few milliseconds on some.

        Raises:
            BaseFileError: it is closed.
        """
        return _stamp(os.fstat(self._open_descriptor())) == self._stamp

    def compare(self) -> None:
        """Compare the whole content with the digest; if it is right, the times of now count from here on.

        Raises:
            BaseFileError: it is closed, cut off, or its bytes are not those that its name is the digest of.
        """
        stamp = _stamp(os.fstat(self._open_descriptor()))
        if digest({name: self.tensor(name) for name in self._entries}) != self.digest:
            why = "its bytes are not those of its digest any more: another program wrote into it. Remove the file"
            raise BaseFileError(str(self.path), why)
        self._stamp = stamp

    def close(self) -> None:
        """Let go of the lock and the mapping. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        # Never mapping.close(): torch does not count its tensors as users of the buffer, they would dangle.
        self._mapping = None
        if descriptor is not None:
            self._closing()

    def discard(self) -> None:
        """Close it, and remove the file unless another process uses it. What is mapped stays good.

        Never fails: a file that cannot be removed is left to whoever cleans up later.
        """
        descriptor, self._descriptor = self._descriptor, None
        self._mapping = None
        if descriptor is not None and self._closing.detach() is not None:
            with suppress(OSError):
                withdraw(descriptor, self.path)

    def _entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise BaseFileError(str(self.path), f"it holds no tensor named {name!r}") from None

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise BaseFileError(str(self.path), "it is closed; obtain() it again")
        return self._descriptor

    def _fill(self, name: str, into: Tensor, offset: int) -> None:
        try:
            count = disk.read_all(self._open_descriptor(), buffer_of(into), offset)
        except OSError as error:
            raise BaseFileError(str(self.path), f"{name} cannot be read: {error.strerror or error}") from error
        if count != into.numel():
            raise BaseFileError(str(self.path), f"it ends within {name}: another program cut it off")


def _mapped(descriptor: int, size_bytes: int, path: Path) -> mmap.mmap:
    # Private pages: clean ones are the page cache's, and a stray write stays in this process. Writable, because torch
    # would warn of a read-only buffer and a stray write into one would end the process.
    kept, access = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    try:
        return mmap.mmap(descriptor, size_bytes, flags=kept, prot=access)
    except ValueError as error:  # how the module says that the file is shorter
        raise BaseFileError(str(path), f"another program cut it off while it was opened: {error}") from error


def _on(mapping: mmap.mmap, entry: Entry) -> Tensor:
    if entry.size_bytes == 0:
        return torch.empty(entry.shape, dtype=entry.dtype)
    count = entry.size_bytes // entry.dtype.itemsize
    return torch.frombuffer(mapping, dtype=entry.dtype, count=count, offset=entry.start).view(entry.shape)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _target_problem(entry: Entry, into: Tensor) -> str:
    if into.dtype != entry.dtype or tuple(into.shape) != entry.shape:
        return f"it is {into.dtype} {tuple(into.shape)}, the file holds {entry.dtype} {entry.shape}"
    if into.device.type == "meta":
        return "it is on the meta device and has no memory"
    if any(stride == 0 and size > 1 for size, stride in zip(into.shape, into.stride(), strict=True)):
        return "its elements overlap"
    return ""
