"""Tags of a trainer's own, among those of all tenants of a memory saver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.places import SAVER_DISK, SAVER_HOST
from states import TrainerEvent

Tags = Mapping[str, int]
"""Bytes by tag."""
BACKUPS: Final = (SAVER_HOST, SAVER_DISK)
"""Where a saver keeps what it paused."""

_TELL: Final = frozenset({TrainerEvent.SLEEP, TrainerEvent.OFFLOAD, TrainerEvent.WAKE_UP})
_KEYS: Final = ("paused", "resumed", "resumed_scratch")


def prefix_in(record: Mapping[str, Any]) -> str | None:
    """With what this trainer's tags begin, as the end of a transition tells by those that it paused or resumed.

    The name of the model in its log need not be the one that its tags begin with.
    """
    if record["trigger"] not in _TELL:
        return None
    details = record.get("details", {})
    tag = next((tag for key in _KEYS for tag in details.get(key, ())), None)
    return None if tag is None else f"{tag.partition('/')[0]}/"


def own(held: Mapping[str, Tags], place: str, prefix: str) -> dict[str, int]:
    """What this trainer's tags hold in a place."""
    if place not in held:
        return {}
    return {tag: size for tag, size in held[place].items() if tag.startswith(prefix)}
