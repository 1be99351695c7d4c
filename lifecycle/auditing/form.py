"""The form of a record where its schema leaves it open: a time that is none, totals that are not whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from lifecycle.audit.notes import NOTED
from lifecycle.places import PLACES

_UTC: Final = timedelta(0)
_PLACES: Final = frozenset({*PLACES, "moved"})


def problem_of(record: Mapping[str, Any]) -> str:
    """Why it is no record, empty where it is one. Its facts are looked at where values are made of them."""
    time = record.get("time")
    if not _is_time(time):
        return f"its time is {time!r}, which is no time in UTC" if isinstance(time, str) else "its time is no text"
    totals = record.get("bytes")
    if totals is None or record["event"] == NOTED or not isinstance(totals, dict):
        return ""
    if totals.keys() != _PLACES:
        return f"its bytes are of {', '.join(sorted(totals))}, places are {', '.join(sorted(_PLACES))}"
    return "its bytes are less than none" if min(totals.values()) < 0 else ""


def _is_time(told: object) -> bool:
    try:
        return isinstance(told, str) and datetime.fromisoformat(told).utcoffset() == _UTC
    except ValueError:
        return False
