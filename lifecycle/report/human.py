"""Bytes and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


def bytes_text(size: float) -> str:
    """Such as ``16.3 MiB``."""
    unit = 0
    while size >= _STEP and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} B"


def lasted_text(seconds: float) -> str:
    """Such as ``212.6 ms``, ``3.20 s``, ``4 min 5 s``, ``7 h 2 min`` or ``12 d 3 h``."""
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.2f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f} min {seconds % _MINUTE_S:.0f} s"
    if seconds < 2 * _DAY_S:
        return f"{seconds // _HOUR_S:.0f} h {seconds % _HOUR_S // _MINUTE_S:.0f} min"
    return f"{seconds // _DAY_S:,.0f} d {seconds % _DAY_S // _HOUR_S:.0f} h"


def when_text(time_s: float) -> str:
    """A time in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
