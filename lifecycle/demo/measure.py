"""How much host memory the process holds, as the operating system counts it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Final

from lifecycle.saver import MemorySaver

_SMAPS: Final = Path("/proc/self/smaps_rollup")
_COUNTED: Final = ("Pss_Anon:", "Pss_Shmem:")


def process_bytes(text: str | None = None) -> int:
    """Pss_Anon + Pss_Shmem of this process, in bytes; 0 where the system does not tell.

    Args:
        text: the content of ``smaps_rollup``; read when None.
    """
    if text is None:
        if not _SMAPS.is_file():
            return 0
        text = _SMAPS.read_text(encoding="ascii")
    rows = (line.split() for line in text.splitlines() if line.startswith(_COUNTED))
    return sum(int(row[1]) * 1024 for row in rows)


def settle() -> None:
    """Let the process give back what it does not use, so that two measurements can be compared."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class HostMeter:
    """Host bytes held, against a baseline.

    The arena emulates device memory on host pages. What it has given back since the baseline has left
    the process too, and must not hide what the host took for it: host bytes are the change of the
    process plus the device bytes given back.

    Args:
        saver: the arena. The baseline is taken now: build the meter when everything is attached and
            resident.
    """

    def __init__(self, saver: MemorySaver) -> None:
        self._saver = saver
        settle()
        self._process = process_bytes()
        self._device = saver.usage().device_bytes

    def host_bytes(self) -> int:
        """Host bytes held beyond the baseline. Never negative."""
        settle()
        given_back = self._device - self._saver.usage().device_bytes
        return max(0, process_bytes() - self._process + given_back)
