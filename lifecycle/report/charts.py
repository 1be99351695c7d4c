"""What the charts of the page draw, as plain values of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lifecycle.report.human import bytes_text
from lifecycle.report.lanes import FAILED, IN_TRANSITION, MEMORIES, REFUSED, Drawn, Held, HeldCell
from lifecycle.report.named import names
from lifecycle.report.summary import Report
from states import TrainerState

SERIES_MOST: Final = 10
"""Series of a chart; what is smaller is drawn as one."""
OTHERS: Final = "others"
COLOURS_MOST: Final = 20
"""Colours and hatches that are told apart."""
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


def charts(report: Report) -> Json:
    """Everything that is drawn. Buckets are counted from the first of all lanes."""
    width_s = report.lanes[0].width_s
    first = int(report.began_s // width_s)
    called = names(one.lane for one in report.lanes)
    lanes = [_lane(one, called[one.lane], first) for one in report.lanes]
    return {
        "states": list(STATES),
        "width": width_s,
        "lasted": report.ended_s - report.began_s,
        "count": count(report),
        "colours": _colours(report),
        "lanes": lanes,
    }


def _colours(report: Report) -> dict[str, int]:
    """A number to each tag, the same in every chart: a base is the same colour on the device and on the host."""
    most: dict[str, int] = {}
    for drawn in report.lanes:
        for (_, tag), size in drawn.peaks.items():
            most[tag] = max(size, most.get(tag, 0))
    by_size = sorted(most, key=lambda tag: (-most[tag], tag))
    return {tag: at for at, tag in enumerate(by_size[:COLOURS_MOST])}


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
        "marks": {
            mark: [[at - first, int(cell[mark])] for at, cell in sorted(drawn.marks.items()) if cell.get(mark)]
            for mark in (REFUSED, FAILED)
            if any(cell.get(mark) for cell in drawn.marks.values())
        },
        "amounts": {**held, "moved": moved},
    }


def _share(drawn: Drawn, bucket: int, state: str) -> str:
    """0 to 9. What was there for a moment is seen."""
    lasted_s = drawn.states.get(bucket, {}).get(state, 0.0)
    return str(max(1, min(_FULL, round(lasted_s / drawn.width_s * _FULL)))) if lasted_s else "0"


def shares(lanes: Sequence[Drawn]) -> dict[str, float]:
    """State to its share of the time of which the state is known; of being in transition too, which is in others."""
    spent = {state: sum(cell.get(state, 0.0) for one in lanes for cell in one.states.values()) for state in STATES}
    all_s = sum(lasted_s for state, lasted_s in spent.items() if state != IN_TRANSITION) or 1.0
    return {state: lasted_s / all_s for state, lasted_s in spent.items() if lasted_s}


def _shares(drawn: Drawn) -> str:
    return ", ".join(f"{state} {share:.1%}" for state, share in shares([drawn]).items()) + "."


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
        "most": [int(most[name]) for name in few],
        "told": f"{what} The most of each: {told or 'nothing'}.",
        "end": end,
        "points": rows,
    }
