"""Where an engine stands: whether it may get requests, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Serves(StrEnum):
    """Whether an engine may get requests now."""

    CURRENT = "current"
    BEHIND = "behind"
    FENCED = "fenced"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one engine stands. Only what is ``current`` may get requests.

    Attributes:
        engine: its name.
        serves: ``current``: this instance has confirmed the newest version of everything; ``behind``: it lacks some;
            ``fenced``: what it holds is in doubt; ``unknown``: it does not answer, does not know, or was never pushed.
        because: why it is not current; nothing when it is.
        instance_id: who answered, empty when nobody did.
        versions: what it says it holds; who is current serves exactly these.
        verified: content group to how it was compared with the trainer's, of what is held now.
        released: tags whose memory is given back: nothing is answered until they are resumed.
    """

    engine: str
    serves: Serves
    because: tuple[str, ...] = ()
    instance_id: str = ""
    versions: Mapping[str, int] = field(default_factory=dict)
    verified: Mapping[str, str] = field(default_factory=dict)
    released: frozenset[str] = frozenset()

    @property
    def is_routable(self) -> bool:
        """Whether requests may be sent to it now: it is current, and all of its memory is there."""
        return self.serves is Serves.CURRENT and not self.released
