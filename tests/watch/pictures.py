"""Pictures that no log was needed for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lifecycle.report.model import FailedVerdict, Lane, Outcome, Transition
from lifecycle.watch.picture import AdapterSeen, EngineSeen, Picture, RankSeen, Serving
from states import TrainerState

NOW_S = 1_772_366_400.0
"""2026-03-01 12:00:00 UTC."""
MIB = 1024**2
HELD = {"device": {"actor/base": 15_000 * MIB, "actor/adapters": 300 * MIB}, "saver_host": {"engine/weights": 9 * MIB}}


def transition(**changes: Any) -> Transition:
    """An offload that ended two seconds ago."""
    told: dict[str, Any] = {
        "outcome": Outcome.MOVED,
        "sequence": 12,
        "number": 6,
        "trigger": "offload",
        "edge": "offloads-to-cpu",
        "source": TrainerState.SLEEPING,
        "target": TrainerState.OFFLOADED_CPU,
        "began_s": NOW_S - 3.5,
        "ended_s": NOW_S - 2,
        "duration_s": 1.5,
        "held": HELD,
        "moved": {"backup": 15_300 * MIB},
        "versions": {},
        "loaded": (),
        "sent": {},
        "failed": (),
        "problem": "",
    }
    return Transition(**(told | changes))


def refused(because: str = "reader holds a lease", remedy: str = "close it first") -> Transition:
    """The same, refused."""
    verdict = FailedVerdict("no-lease-over-live-weights", because, remedy)
    return transition(outcome=Outcome.REFUSED, target=TrainerState.SLEEPING, failed=(verdict,), moved={})


def rank(number: int = 0, /, **changes: Any) -> RankSeen:
    """A rank in which all is well."""
    told: dict[str, Any] = {
        "whose": Lane(number, "grpo-7", number, "actor", f"run/audit.rank{number}.jsonl"),
        "state": TrainerState.OFFLOADED_CPU,
        "since_s": NOW_S - 2,
        "last": transition(),
        "recent": (transition(),),
        "held": HELD,
        "moved_before": {"backup": 15_300 * MIB, "sync": 300 * MIB},
        "adapters": (AdapterSeen("math", 1_883_282_232_836_102, 7, NOW_S - 8, {"engine-0": 1, "engine-1": None}),),
        "adapters_count": 1,
        "engines": (
            EngineSeen("engine-0", Serving.BEHIND, 1, 2, "", NOW_S - 61),
            EngineSeen("engine-1", Serving.CURRENT, 0, 0, "", NOW_S - 61),
        ),
        "syncs_s": (0.8, 0.9),
        "number": 6,
        "records": 4_210,
        "records_per_s": 1.25,
        "seen_s": NOW_S - 2,
        "longest_silence_s": 40.0,
    }
    return RankSeen(**(told | changes))


def picture(*ranks: RankSeen, **changes: Any) -> Picture:
    """Those ranks, now; of none that are named one in which all is well."""
    return Picture(NOW_S, ranks or (rank(),), **changes)


def sample() -> Picture:
    """The picture of docs/watch.md: four ranks in a push, one of which is late, after a refusal."""
    push = {"trigger": "update_weights", "edge": "sends", "source": TrainerState.OFFLOADED_CPU, "number": 7}
    running = transition(**push, outcome=Outcome.UNFINISHED, began_s=NOW_S - 6.2)
    recent = (
        transition(trigger="trained", edge="commits", number=3, source=TrainerState.AWAKE, target=TrainerState.AWAKE,
                   duration_s=2.5, ended_s=NOW_S - 12, moved={}),
        transition(trigger="sleep", edge="quiesces", number=4, source=TrainerState.AWAKE,
                   target=TrainerState.SLEEPING, duration_s=0.1, ended_s=NOW_S - 11, moved={}),
        refused(),
        transition(number=6, ended_s=NOW_S - 7.1),
    )  # fmt: skip
    engines = (EngineSeen("engine-0", Serving.BEHIND, 1, 2, "", NOW_S - 61),)
    common = {
        "recent": (*recent[:2], replace(recent[2], number=5, ended_s=NOW_S - 9), recent[3]),
        "since_s": NOW_S - 7.1,
        "seen_s": NOW_S - 6.2,
        "engines": engines,
        "held": {
            "device": {"engine/weights": 15_250 * MIB},
            "saver_host": {"actor/base": 15_000 * MIB, "actor/adapters": 300 * MIB, "actor/optimizer": 600 * MIB},
        },
        "moved_before": {"backup": 15_900 * MIB, "sync": 300 * MIB, "restore": 15_900 * MIB},
        "adapters": (
            AdapterSeen("math", 1_883_282_232_836_102, 7, NOW_S - 12, {"engine-0": 1}),
            AdapterSeen("code", 1_883_282_232_836_090, 5, NOW_S - 74, {"engine-0": 0}),
        ),
        "adapters_count": 2,
    }
    ranks = [rank(number, **common, number=7, running=running, usual_s=0.9) for number in range(3)]
    return picture(*ranks, rank(3, **common, number=6))
