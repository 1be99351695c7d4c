"""What the trainer knows of each engine besides what it says: fences, confirmed instances, what was verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EVERYTHING: Final = None
"""Suspect groups of a fence: all of them."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Why an engine may not serve, until a later push has sent everything it lacks and was confirmed.

    Attributes:
        because: what happened.
        suspect: the content groups whose bytes are unknown, whatever the engine says of them; None: all of them.
    """

    because: str
    suspect: frozenset[str] | None = EVERYTHING


@dataclass
class Engines:
    """Books of the engines of a run, by name.

    Attributes:
        fences: engines that may not serve.
        confirmed: the instance that took part in the last push that was confirmed. Only its word counts.
        verified: content group to (version, how its content was verified), of what that instance holds.
    """

    fences: dict[str, Fence] = field(default_factory=dict)
    confirmed: dict[str, str] = field(default_factory=dict)
    verified: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)

    def fence(self, engine: str, because: str, suspect: frozenset[str] | None) -> None:
        """It may not serve. What was suspect before is suspect still."""
        before = self.fences.get(engine)
        if before is not None and suspect is not None:
            suspect = None if before.suspect is None else suspect | before.suspect
        self.fences[engine] = Fence(because, suspect)

    def confirm(self, engine: str, instance_id: str, verified: Mapping[str, str], wanted: Mapping[str, int]) -> None:
        """This instance has acknowledged everything it was sent, and may serve.

        Args:
            engine: its name.
            instance_id: who it is.
            verified: content group to how it was verified now.
            wanted: content group to the version that it holds. What was verified of others is forgotten.
        """
        before = self.verified.get(engine, {}) if self.confirmed.get(engine) == instance_id else {}
        kept = {group: known for group, known in before.items() if wanted.get(group) == known[0]}
        self.fences.pop(engine, None)
        self.confirmed[engine] = instance_id
        self.verified[engine] = kept | {group: (wanted[group], how) for group, how in verified.items()}
