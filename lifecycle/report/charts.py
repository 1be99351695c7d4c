"""What the charts of the page draw, as plain values of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lifecycle.report.human import bytes_text
from lifecycle.report.lanes import IN_TRANSITION, MEMORIES, Drawn, Held, HeldCell
from lifecycle.report.model import Lane
from lifecycle.report.summary import Report
from states import TrainerState

SERIES_MOST: Final = 10
"""Series of a chart; what is smaller is drawn as one."""
OTHERS: Final = "others"
STATES: Final = (*(str(state) for state in TrainerState), IN_TRANSITION)
_FULL: Final = 9
"""How high a bar is that fills its bucket."""

HATCHES_SVG: Final = (
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="hatch1" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="hatch" d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"/></pattern>'
    '<pattern id="hatch2" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<path class="hatch" d="M0 2.5H5"/></pattern>'
    '<pattern id="hatch3" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="hatch" d="M1.5 3H4.5M3 1.5V4.5"/></pattern></defs></svg>'
)
"""Hatches of series, besides their colours. The script fills with them by these names."""

Json = dict[str, object]


def names(lanes: Iterable[Lane]) -> dict[Lane, str]:
    """What each lane is called: its rank, and what else tells it apart from the others."""
    known = list(lanes)
    parts = {
        lane: [f"rank {lane.rank}"]
        + ([lane.model] if len({one.model for one in known}) > 1 else [])
        + ([f"run {lane.run}"] if len({one.run for one in known}) > 1 else [])
        for lane in known
    }
    told = [tuple(one) for one in parts.values()]
    return {
        lane: ", ".join([*one, f"{lane.file} ({lane.index + 1})"] if told.count(tuple(one)) > 1 else one)
        for lane, one in parts.items()
    }


def charts(report: Report) -> Json:
    """Everything that is drawn. Buckets are counted from the first of all lanes."""
    width_s = report.lanes[0].width_s
    first = int(report.began_s // width_s)
    called = names(one.lane for one in report.lanes)
    return {
        "states": list(STATES),
        "width": width_s,
        "count": count(report),
        "lanes": [_lane(one, called[one.lane], first) for one in report.lanes],
    }


def count(report: Report) -> int:
    """How many buckets lie side by side."""
    width_s = report.lanes[0].width_s
    return int(report.ended_s // width_s) - int(report.began_s // width_s) + 1


def _lane(drawn: Drawn, name: str, first: int) -> Json:
    end = max(0, int(drawn.ended_s // drawn.width_s) + 1 - first)
    held = {memory: _held(memory, cells, first, end) for memory, cells in drawn.held.items()}
    moved = _series(
        {at: dict(cell) for at, cell in drawn.moved.items()}, first, end, "Bytes copied, by kind.", stays=False
    )
    buckets = sorted(drawn.states)
    return {
        "name": name,
        "told": f"States of {name} over time. {_shares(drawn)}",
        "first": buckets[0] - first if buckets else 0,
        "states": {
            state: "".join(_share(drawn, at, state) for at in range(buckets[0], buckets[-1] + 1))
            for state in STATES
            if any(state in cell for cell in drawn.states.values())
        },
        "amounts": {**held, "moved": moved},
    }


def _share(drawn: Drawn, bucket: int, state: str) -> str:
    """0 to 9. What was there for a moment is seen."""
    lasted_s = drawn.states.get(bucket, {}).get(state, 0.0)
    return str(max(1, min(_FULL, round(lasted_s / drawn.width_s * _FULL)))) if lasted_s else "0"


def _shares(drawn: Drawn) -> str:
    spent = {state: sum(cell.get(state, 0.0) for cell in drawn.states.values()) for state in STATES}
    all_s = sum(lasted_s for state, lasted_s in spent.items() if state != IN_TRANSITION) or 1.0
    return ", ".join(f"{state} {lasted_s / all_s:.1%}" for state, lasted_s in spent.items() if lasted_s) + "."


def _held(memory: str, cells: Mapping[int, HeldCell], first: int, end: int) -> Json:
    """At the moment of the most in each bucket; what was held stays until something else is."""
    points: dict[int, dict[str, float]] = {}
    before: Mapping[tuple[str, str], int] = {}
    one_place = len(MEMORIES[memory]) == 1
    for at, cell in cells.items():
        peak, last = cell.peak or {}, cell.last or {}
        most = max((before, peak), key=lambda one: sum(one.values()))
        points[at], points[at + 1] = _named(most, one_place=one_place), _named(last, one_place=one_place)
        before = last
    return _series(points, first, end, f"Bytes held, {memory}, by place and tag.", stays=True)


def _named(held: Held, *, one_place: bool) -> dict[str, float]:
    return {tag if one_place else f"{place}: {tag}": size for (place, tag), size in held.items()}


def _series(points: Mapping[int, Mapping[str, float]], first: int, end: int, what: str, *, stays: bool) -> Json:
    """The largest series, the rest as one. Of what stays, a point that is as the one before it is left out."""
    most: dict[str, float] = {}
    for point in points.values():
        for name, size in point.items():
            most[name] = max(size, most.get(name, 0))
    by_size = sorted(most, key=lambda name: (-most[name], name))
    few = by_size if len(by_size) <= SERIES_MOST else by_size[: SERIES_MOST - 1]
    told = ", ".join(f"{name} {bytes_text(most[name])}" for name in few)
    rows: list[list[float]] = []
    for at, point in sorted(points.items()):
        row = [int(point.get(name, 0)) for name in few]
        if len(few) < len(by_size):
            row.append(int(sum(size for name, size in point.items() if name not in few)))
        if not (stays and rows and rows[-1][1:] == row):
            rows.append([at - first, *row])
    return {
        "names": few + ([OTHERS] if len(few) < len(by_size) else []),
        "told": f"{what} The most of each: {told or 'nothing'}.",
        "end": end,
        "points": rows,
    }
