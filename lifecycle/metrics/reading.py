"""All numbers of one moment, and the values of every metric that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lifecycle.lag import Lag
from lifecycle.ledger import Held
from lifecycle.metrics import families
from lifecycle.metrics.families import Family
from lifecycle.metrics.seconds import Seconds
from lifecycle.places import BASE_FILE, KEPT_GRADIENTS, SNAPSHOTS, TRANSPORT
from lifecycle.tally import Tally
from states import ACTOR, TrainerState
from states.placement import CONTENTS

OTHER: Final = "other"
"""What is no part that the trainer itself has: of other tenants, of a framework, of models that a user has named."""

_PARTS: Final = frozenset(CONTENTS.values())
_MODELS: Final = frozenset({ACTOR, "ref", "teacher", "old_actor"})

Value = tuple[Family, tuple[str, ...], float]
"""A metric, the values of its labels, and its own."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one moment.

    Attributes:
        state: of the trainer.
        tally: how its events ended.
        held: bytes by place and part, see :func:`parts_of`.
        moved: bytes by event and kind.
        seconds: event to how long it took.
        lags: engine to how far it is behind.
    """

    state: TrainerState
    tally: Tally
    held: Mapping[tuple[str, str], int]
    moved: Mapping[tuple[str, str], int]
    seconds: Mapping[str, Seconds]
    lags: Mapping[str, Lag]

    def values(self) -> Iterator[Value]:
        """Every value but those of the histogram, in the order of the table."""
        for state in TrainerState:
            yield families.STATE, (state.value,), int(state is self.state)
        yield from ((families.TRANSITIONS, key, count) for key, count in self.tally.moved.items())
        yield from ((families.UNCHANGED, (event,), count) for event, count in self.tally.unchanged.items())
        yield from ((families.REFUSALS, key, count) for key, count in self.tally.refused.items())
        yield from ((families.FAILURES, key, count) for key, count in self.tally.failed.items())
        yield from ((families.HELD, key, size_bytes) for key, size_bytes in self.held.items())
        yield from ((families.MOVED, key, size_bytes) for key, size_bytes in self.moved.items())
        yield from ((families.LAST, (event,), one.last_s) for event, one in self.seconds.items())
        for engine, lag in self.lags.items():
            if lag.versions_behind is not None:
                yield families.BEHIND, (engine,), lag.versions_behind
            yield families.PENDING, (engine,), lag.pending_pushes
            yield families.IN_DOUBT, (engine,), int(lag.is_in_doubt)

    def flat(self, prefix: str) -> dict[str, float]:
        """Every value under ``PREFIX + NAME/LABEL/LABEL``; of a histogram its ``sum`` and ``count``."""
        found = {f"{prefix}{'/'.join((family.name, *labels))}": float(value) for family, labels, value in self.values()}
        for event, one in self.seconds.items():
            name = f"{prefix}{families.SECONDS.name}/{event}"
            found |= {f"{name}/sum": one.sum_s, f"{name}/count": float(sum(one.counts))}
        return found


def parts_of(held: Held, model: str) -> dict[tuple[str, str], int]:
    """Bytes by place and part.

    Args:
        held: bytes by place and tag.
        model: prefix of the trainer's own tags.

    Returns:
        (place, part) to bytes. Parts are few: those of :data:`states.placement.CONTENTS`, the models that have a
        name of the project's own, and ``other``.
    """
    found: dict[tuple[str, str], int] = {}
    for place, tags in held.by_place().items():
        for tag, size_bytes in tags.items():
            key = place, _part(place, tag, model)
            found[key] = found.get(key, 0) + size_bytes
    return found


def _part(place: str, tag: str, model: str) -> str:
    if place == SNAPSHOTS:
        return tag if tag in _MODELS else OTHER
    if place == BASE_FILE:
        return CONTENTS["frozen-base"]
    if place == KEPT_GRADIENTS:
        return CONTENTS["gradients"]
    if place == TRANSPORT:
        return "receivers"
    part = tag.removeprefix(f"{model}/")
    return part if part != tag and part in _PARTS else OTHER
