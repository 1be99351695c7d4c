"""How long events took, in buckets."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, Self

BOUNDS_S: Final = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets; what took longer is in the last one, which has none."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """The durations of one event. Frozen: adding makes another, so that it can be read while events go on.

    Attributes:
        counts: how many were in each bucket, one more than there are bounds.
        sum_s: all of them together.
        last_s: the last one.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0
    last_s: float = 0.0

    def plus(self, duration_s: float) -> Self:
        """One more."""
        at = bisect_left(BOUNDS_S, duration_s)
        counts = tuple(count + (bucket == at) for bucket, count in enumerate(self.counts))
        return type(self)(counts, self.sum_s + duration_s, duration_s)
