"""Tags of a trainer's own, among those of all tenants of a memory saver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from states import TrainerEvent

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
