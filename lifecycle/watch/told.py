"""The picture as JSON, for programs: texts as they stand in the log, times in ISO 8601 and UTC, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lifecycle.report.model import Transition
from lifecycle.watch.attention import Notice, is_well
from lifecycle.watch.picture import Picture, RankSeen


def told(picture: Picture, found: Sequence[Notice]) -> dict[str, object]:
    """An object of JSON.

    Args:
        picture: the run.
        found: what is to be looked at.
    """
    return {
        "time": _time(picture.now_s),
        "well": is_well(found),
        "notices": [
            {"concern": one.concern, "level": one.level, "who": one.who, "says": one.says} for one in found
        ],
        "ranks": [_rank(one, picture.now_s) for one in picture.ranks],
        "unseen": [{"file": one.file, "why": one.why} for one in picture.unseen],
        "gone": list(picture.gone),
    }  # fmt: skip


def _rank(rank: RankSeen, now_s: float) -> dict[str, object]:
    return {
        "file": rank.whose.file,
        "run": rank.whose.run,
        "rank": rank.whose.rank,
        "model": rank.whose.model,
        "state": rank.state,
        "since": _time(rank.since_s),
        "running": _transition(rank.running),
        "last": _transition(rank.last),
        "recent": [_transition(one) for one in rank.recent],
        "refused": [
            {"times": one.times, "settled": one.is_settled, **(_transition(one.transition) or {})}
            for one in rank.refused
        ],
        "died_in": _transition(rank.died_in),
        "held_bytes": {place: dict(tags) for place, tags in (rank.held or {}).items()},
        "moved_bytes": dict(rank.moved),
        "moved_before_bytes": None if rank.moved_before is None else dict(rank.moved_before),
        "adapters_count": rank.adapters_count,
        "adapters": [
            {"name": one.name, "version": one.version, "changes": one.changes, "changed": _time(one.changed_s),
             "versions_behind": dict(one.behind)} for one in rank.adapters
        ],
        "engines": [
            {"name": one.name, "serving": one.serving, "versions_behind": one.versions_behind, "lacks": one.lacks,
             "because": one.because, "pushed": _time(one.pushed_s)} for one in rank.engines
        ],
        "syncs_s": list(rank.syncs_s),
        "transition": rank.number,
        "records": rank.records,
        "records_per_s": round(rank.records_per_s, 3),
        "written": _time(rank.seen_s),
        "age_s": None if rank.seen_s is None else round(max(0.0, now_s - rank.seen_s), 3),
        "unreadable": rank.unreadable,
        "unfinished_bytes": rank.unfinished_bytes,
        "restarts": rank.restarts,
    }  # fmt: skip


def _transition(one: Transition | None) -> dict[str, object] | None:
    if one is None:
        return None
    return {
        "outcome": one.outcome,
        "transition": one.number,
        "trigger": one.trigger,
        "edge": one.edge,
        "source": one.source,
        "target": one.target,
        "began": _time(one.began_s),
        "ended": _time(one.ended_s),
        "duration_s": one.duration_s,
        "moved_bytes": dict(one.moved),
        "failed": [{"guard": v.guard, "because": v.because, "remedy": v.remedy} for v in one.failed],
        "problem": one.problem,
    }


def _time(time_s: float | None) -> str | None:
    return None if time_s is None else datetime.fromtimestamp(time_s, UTC).isoformat()
