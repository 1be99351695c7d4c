"""A run as a trace: Chrome's JSON format, which Perfetto opens. A process a rank, times in microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, TextIO

from lifecycle.report.model import Happening, Lane, Noted, Opened, Outcome, Transition

MICROSECONDS: Final = 1_000_000

Event = dict[str, object]


class Trace:
    """Writes events as they come.

    Args:
        file: where to, from its beginning.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._between = '{"displayTimeUnit":"ms","traceEvents":['
        self._free_us: dict[Lane, int] = {}
        self._counted: dict[Lane, dict[str, dict[str, int]]] = {}

    def begin(self, lane: Lane) -> None:
        """A log begins: its process and its thread get their names."""
        model = f" · {lane.model}" if lane.model else ""
        self._write(_named(lane, "process_name", {"name": f"rank {lane.rank}{model}"}))
        self._write(_named(lane, "process_sort_index", {"sort_index": lane.index}))
        self._write(_named(lane, "thread_name", {"name": "transitions"}))

    def take(self, lane: Lane, happening: Happening) -> None:
        """Add what happened."""
        if isinstance(happening, Transition):
            self._write(self._slice(lane, happening))
            for event in self._counters(lane, happening):
                self._write(event)
        elif isinstance(happening, Opened):
            name = "session begins" if happening.restarted else "log begins"
            self._write(_instant(lane, name, happening.time_s, {}))
        elif isinstance(happening, Noted) and happening.note:
            self._write(_instant(lane, happening.note, happening.time_s, {}))

    def close(self) -> None:
        """Write the end. A trace of nothing is one too."""
        self._file.write(f"{self._between if self._between != ',' else ''}\n]}}\n")

    def _write(self, event: Event) -> None:
        # As UTF-8: Perfetto shows the escapes of JSON as they stand in names of processes and threads.
        self._file.write(f"{self._between}\n{json.dumps(event, separators=(',', ':'), ensure_ascii=False)}")
        self._between = ","

    def _slice(self, lane: Lane, one: Transition) -> Event:
        """A complete event, or an instant of what took no effect. Slices of a track do not overlap."""
        args: dict[str, object] = {
            "outcome": str(one.outcome),
            "edge": one.edge,
            "source": str(one.source),
            "target": str(one.target),
            "transition": one.number,
            "sequence": one.sequence,
        }
        if one.outcome in {Outcome.REFUSED, Outcome.UNCHANGED}:
            args |= {verdict.guard: verdict.because for verdict in one.failed}
            return _instant(lane, f"{one.trigger} {one.outcome}", one.ended_s, args)
        began_us = max(_us(one.began_s), self._free_us.get(lane, 0))
        ended_us = max(_us(one.ended_s), began_us)
        self._free_us[lane] = ended_us
        args |= {"moved_bytes": dict(one.moved), "duration_s": one.duration_s}
        args |= {"problem": one.problem} if one.problem else {}
        return {
            "ph": "X",
            "name": one.trigger if one.outcome is Outcome.MOVED else f"{one.trigger} {one.outcome}",
            "cat": str(one.outcome),
            "ts": began_us,
            "dur": ended_us - began_us,
            **_track(lane),
            "args": args,
        }

    def _counters(self, lane: Lane, one: Transition) -> Iterator[Event]:
        """A counter a place that has changed, with a series a tag; one that holds nothing any more is zero, once."""
        if one.held is None:
            return
        known = self._counted.setdefault(lane, {})
        for place in {**known, **one.held}:
            before, tags = known.get(place, {}), dict(one.held.get(place, {}))
            values = {**dict.fromkeys(sorted(before), 0), **tags}
            known[place] = tags
            if tags != before:
                yield {"ph": "C", "name": f"{place} bytes", "ts": _us(one.ended_s), **_track(lane), "args": values}


def _us(time_s: float) -> int:
    return round(time_s * MICROSECONDS)


def _track(lane: Lane) -> Event:
    """The first thread of a process has its number, or a reader makes another one for it."""
    return {"pid": lane.index + 1, "tid": lane.index + 1}


def _named(lane: Lane, what: str, args: Event) -> Event:
    return {"ph": "M", "name": what, "ts": 0, **_track(lane), "args": args}


def _instant(lane: Lane, name: str, time_s: float, args: Event) -> Event:
    return {"ph": "i", "s": "t", "name": name, "cat": "note", "ts": _us(time_s), **_track(lane), "args": args}
