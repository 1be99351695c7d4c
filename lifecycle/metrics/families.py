"""Every metric that there is: its name, what tells its values apart, and what it says. docs/metrics.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.

    Attributes:
        name: what it is called in a flat dict; with ``adapter_lifecycle_`` before it, in Prometheus.
        kind: a counter only grows while the trainer lives.
        labels: what tells its values apart, besides model and rank. Each has few values: no adapter is a label.
        says: in a sentence.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    says: str


STATE: Final = Family("state", "gauge", ("state",), "1 for the state that the trainer is in, 0 for the others.")
TRANSITIONS: Final = Family("transitions_total", "counter", ("event", "edge"), "Events that were committed.")
UNCHANGED: Final = Family("unchanged_total", "counter", ("event",), "Events whose result held already.")
REFUSALS: Final = Family(
    "refusals_total", "counter", ("event", "guard"), "Refused events and calls, one for each guard that did not hold."
)
FAILURES: Final = Family(
    "failures_total", "counter", ("event", "effect"), "Events of which an effect failed, undone or not."
)
HELD: Final = Family(
    "held_bytes", "gauge", ("place", "part"), "Bytes that are held, by place and by what they are part of."
)
MOVED: Final = Family("moved_bytes_total", "counter", ("event", "kind"), "Bytes that were copied.")
SECONDS: Final = Family("event_seconds", "histogram", ("event",), "Seconds from decision to commit.")
LAST: Final = Family("event_last_seconds", "gauge", ("event",), "The same of the last one; update_weights is a sync.")
BEHIND: Final = Family(
    "engine_versions_behind", "gauge", ("engine",), "Versions that an engine is behind in its oldest content group."
)
PENDING: Final = Family(
    "engine_pending_pushes", "gauge", ("engine",), "Content groups that an engine lacks, or holds and should not."
)
IN_DOUBT: Final = Family(
    "engine_in_doubt", "gauge", ("engine",), "1 for an engine that is fenced or unknown since a push or a look at it."
)

FAMILIES: Final = (
    STATE, TRANSITIONS, UNCHANGED, REFUSALS, FAILURES, HELD, MOVED, SECONDS, LAST, BEHIND, PENDING, IN_DOUBT,
)  # fmt: skip
