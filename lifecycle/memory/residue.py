"""What stays in use on the device after each offload, beyond what the saver's books know."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from states import residue_is_steady

READINGS_KEPT: Final = 64
"""How many cycles are remembered; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Residue:
    """What was measured after the last offloads.

    Attributes:
        readings: bytes in use beyond the books, the oldest first. Other tenants of the device are in it.
        growing: whether it grew without a break for three readings or more, by more than a margin.
        because: the numbers, in words.
    """

    readings: tuple[int, ...]
    growing: bool
    because: str


class ResidueHistory:
    """The readings of one trainer, bounded."""

    def __init__(self) -> None:
        self._readings: deque[int] = deque(maxlen=READINGS_KEPT)

    def with_reading(self, residue_bytes: int) -> Residue:
        """What the history would say with this reading; it is not remembered yet."""
        return _judged((*self._readings, residue_bytes))

    def remember(self, residue_bytes: int) -> None:
        """Add a reading."""
        self._readings.append(residue_bytes)

    def report(self) -> Residue:
        """What the history says."""
        return _judged(tuple(self._readings))


def _judged(readings: tuple[int, ...]) -> Residue:
    verdict = residue_is_steady(readings)
    return Residue(readings, not verdict.holds, verdict.because)
