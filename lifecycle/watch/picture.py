"""What is shown of a run at one moment: frozen, and nothing in it knows of files or terminals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lifecycle.report.model import Lane, Transition
from states import TrainerState


class Serving(StrEnum):
    """What is known of an engine, from what was sent to it and what it said when it was asked."""

    CURRENT = "current"
    BEHIND = "behind"
    IN_DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """An engine, as the last push left it.

    Attributes:
        name: the engine.
        serving: whether it holds the trainer's newest versions.
        versions_behind: in the content group where it is furthest behind; None where that cannot be told,
            as of one in doubt.
        lacks: how many content groups it lacks or has in an old version, or holds and should not.
        because: why it is in doubt, empty where it is not.
        pushed_s: when it was last pushed to, seconds since 1970; None where no push was seen.
    """

    name: str
    serving: Serving
    versions_behind: int | None
    lacks: int
    because: str
    pushed_s: float | None


@dataclass(frozen=True, slots=True)
class AdapterSeen:
    """An adapter in a slot.

    Attributes:
        name: the adapter.
        version: id of its newest bytes.
        changes: how often it got another version since it was loaded, as far back as was read.
        changed_s: when it did last, or was loaded; seconds since 1970, None where that was not read.
        behind: engine to how many versions it is behind in this adapter; None where it does not hold it.
    """

    name: str
    version: int
    changes: int
    changed_s: float | None
    behind: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that is refused, and was not done since.

    Attributes:
        transition: the last time that it was refused.
        times: how often in a row, by the same guards.
        is_settled: the same was done afterwards.
    """

    transition: Transition
    times: int
    is_settled: bool


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One rank. Times are seconds since 1970, and those of its own clock.

    Attributes:
        whose: the rank and its log.
        state: the last one that it reached; None where none is known.
        since_s: when it reached it; None where that was not read.
        running: the transition that has begun and has no end.
        usual_s: how long the longest of the same event took before, None where none was seen.
        last: the last transition that moved or failed.
        recent: the last things that were asked and did something or were refused, oldest first.
        refused: by event and guards, newest first.
        died_in: the transition in which the session before ended, while nothing has moved since.
        held: bytes by place and tag, of the last record that told; None where none did.
        moved: bytes moved in this turn, so far, by kind.
        moved_before: the same of the turn before; None where no turn has ended.
        adapters: those in slots, the one that changed last first; as many as can be shown.
        adapters_count: how many there are.
        engines: by name.
        syncs_s: how long the last pushes took, oldest first; seconds.
        number: of the last decision, in its session.
        records: number of the last record: how many the log has.
        records_per_s: over the last minute before its last record.
        seen_s: time of the last record.
        longest_silence_s: the longest time between two records, as far as was read.
        unreadable: lines that are torn or no records, as far as was read.
        unfinished_bytes: size of a last line that has no end.
        restarts: sessions that began after others, as far as was read.
    """

    whose: Lane
    state: TrainerState | None = None
    since_s: float | None = None
    running: Transition | None = None
    usual_s: float | None = None
    last: Transition | None = None
    recent: tuple[Transition, ...] = ()
    refused: tuple[Refused, ...] = ()
    died_in: Transition | None = None
    held: Mapping[str, Mapping[str, int]] | None = None
    moved: Mapping[str, int] = field(default_factory=dict)
    moved_before: Mapping[str, int] | None = None
    adapters: tuple[AdapterSeen, ...] = ()
    adapters_count: int = 0
    engines: tuple[EngineSeen, ...] = ()
    syncs_s: tuple[float, ...] = ()
    number: int = 0
    records: int = 0
    records_per_s: float = 0.0
    seen_s: float | None = None
    longest_silence_s: float = 0.0
    unreadable: int = 0
    unfinished_bytes: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Unseen:
    """A log of which nothing can be told yet.

    Attributes:
        file: its path.
        why: such as ``waiting for it``.
    """

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A run at one moment.

    Attributes:
        now_s: the moment, seconds since 1970.
        ranks: in the order of their logs.
        unseen: logs without a record.
        gone: files that were followed and are not there any more.
    """

    now_s: float
    ranks: tuple[RankSeen, ...]
    unseen: tuple[Unseen, ...] = ()
    gone: tuple[str, ...] = ()
