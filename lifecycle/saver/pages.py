"""Pages of host memory by system call: map, move, poison and unmap. Linux 5.7 or newer; knows nothing of tags.

Every function takes and gives addresses as plain integers and sizes in bytes, multiples of :data:`PAGE_BYTES`.
A call that the kernel refuses raises :class:`OSError` and has changed nothing, :func:`map_poison` excepted.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import Final

PAGE_BYTES: Final = mmap.PAGESIZE
POISON_BYTES: Final = 4 << 20

_PROT_NONE: Final = 0
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
_MREMAP_MAYMOVE: Final = 1
_MREMAP_FIXED: Final = 2
_MREMAP_DONTUNMAP: Final = 4
_MAP_FAILED: Final = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.mremap.restype = ctypes.c_void_p
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
_libc.madvise.restype = ctypes.c_int
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.restype = ctypes.c_int
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def round_up(size_bytes: int) -> int:
    """The size in whole pages, in bytes."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def map_fresh(size_bytes: int) -> int:
    """Map fresh private pages, readable and writable, zero until written. Returns their address."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _mmap(None, size_bytes, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Faulting page by page takes longer than the copy. It is a hint: a kernel without huge pages ignores it.
    _libc.madvise(address, size_bytes, mmap.MADV_HUGEPAGE)
    return address


def reserve_in_place(address: int, size_bytes: int) -> None:
    """Drop what is mapped there and keep the address range: any later access is a SIGSEGV."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
    _mmap(address, size_bytes, _PROT_NONE, flags)


def move_away(address: int, size_bytes: int) -> int:
    """Move pages made by :func:`map_fresh` elsewhere, without a copy, and keep the old range mapped but empty.

    The old range is never a hole, so no other thread's mapping can land there in between.
    Returns the new address.
    """
    return _mremap(address, size_bytes, _MREMAP_MAYMOVE | _MREMAP_DONTUNMAP, None)


def move_to(source: int, address: int, size_bytes: int) -> None:
    """Move pages made by :func:`map_fresh` onto *address*, replacing in one step what is mapped there."""
    _mremap(source, size_bytes, _MREMAP_MAYMOVE | _MREMAP_FIXED, address)


def make_poison() -> int:
    """A memory file of :data:`POISON_BYTES` bytes 0xFF. Returns its descriptor, which the caller closes."""
    descriptor = os.memfd_create("lifecycle-poison", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, b"\xff" * POISON_BYTES)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_poison(address: int, size_bytes: int, descriptor: int) -> None:
    """Map the poison file read-only over the range, again and again. Replaces what is mapped there.

    Costs no memory beyond the one file. A read gives 0xFF bytes: NaN in float64, float32, float16, bfloat16,
    float8_e4m3fn and float8_e5m2, and -1 in signed integers. A write is a SIGSEGV.

    Raises:
        OSError: the process has too many mappings; a part of the range may be poisoned already.
    """
    for offset in range(0, size_bytes, POISON_BYTES):
        chunk_bytes = min(POISON_BYTES, size_bytes - offset)
        _mmap(address + offset, chunk_bytes, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor)


def unmap(address: int, size_bytes: int) -> None:
    """Give the pages and the address range back."""
    if _libc.munmap(address, size_bytes) != 0:
        raise _os_error("munmap", size_bytes)


def copy(source: int, target: int, size_bytes: int) -> None:
    """Copy bytes from address to address; other threads run meanwhile."""
    ctypes.memmove(target, source, size_bytes)


def memory(address: int, size_bytes: int) -> memoryview:
    """The mapped memory as a writable buffer of bytes."""
    return memoryview((ctypes.c_uint8 * size_bytes).from_address(address)).cast("B")


def why_unsupported() -> str | None:
    """Why this system cannot move pages, None when it can."""
    if sys.platform != "linux":
        return f"the system is {sys.platform}"
    page = map_fresh(PAGE_BYTES)
    try:
        unmap(move_away(page, PAGE_BYTES), PAGE_BYTES)
    except OSError as error:
        return f"the kernel cannot move pages and keep their range ({error})"
    finally:
        unmap(page, PAGE_BYTES)
    return None


def fill_poison(address: int, size_bytes: int) -> None:
    """Write 0xFF over the range."""
    ctypes.memset(address, 0xFF, size_bytes)


def _mmap(address: int | None, size_bytes: int, protection: int, flags: int, descriptor: int = -1) -> int:
    result = _libc.mmap(address, size_bytes, protection, flags, descriptor, 0)
    if result is None or result == _MAP_FAILED:
        raise _os_error("mmap", size_bytes)
    return int(result)


def _mremap(address: int, size_bytes: int, flags: int, target: int | None) -> int:
    result = _libc.mremap(address, size_bytes, size_bytes, flags, target)
    if result is None or result == _MAP_FAILED:
        raise _os_error("mremap", size_bytes)
    return int(result)


def _os_error(call: str, size_bytes: int) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call} of {size_bytes} bytes: {os.strerror(number)}")
