"""The trace: what the trace event format asks for, which Perfetto reads."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lifecycle.report import Outputs, write_report
from tests.report.logs import AWAKE_HELD, ENGINE, Log
from tests.report.test_page import evil_log
from tests.report.test_summary import run

PHASES = {
    "X": {"ph", "name", "cat", "ts", "dur", "pid", "tid", "args"},
    "C": {"ph", "name", "ts", "pid", "tid", "args"},
    "i": {"ph", "s", "name", "cat", "ts", "pid", "tid", "args"},
    "M": {"ph", "name", "ts", "pid", "tid", "args"},
}
"""Kinds of events, and the keys that each has."""
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}


def trace_of(tmp_path: Path, *logs: Log) -> list[dict[str, Any]]:
    """The events of the trace of these logs."""
    paths = [log.write(tmp_path / f"audit.rank{at}.jsonl") for at, log in enumerate(logs)]
    write_report(paths, Outputs(trace=tmp_path / "trace.json"))
    whole: dict[str, Any] = json.loads((tmp_path / "trace.json").read_text())
    assert set(whole) == {"traceEvents", "displayTimeUnit"}
    assert whole["displayTimeUnit"] in {"ms", "ns"}
    events: list[dict[str, Any]] = whole["traceEvents"]
    return events


def broken() -> Log:
    """Everything that is no plain run."""
    log = run(1)
    log.began("sleep", "quiesces", "awake", "sleeping")
    log.opened(restart=True)
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("failed", 2.0, transition=log.transition, **what, effect="clear-caches", error="OSError: no")
    log.add("noted", transition=9, note="a hand-over was planned")
    return log


@pytest.mark.parametrize("log", [run(12), broken(), evil_log()], ids=["run", "broken", "evil"])
def test_every_event_has_the_keys_of_its_phase(tmp_path: Path, log: Log) -> None:
    """Times are whole microseconds, counters are numbers, names are texts, instants have a scope."""
    for event in trace_of(tmp_path, log):
        assert set(event) == PHASES[event["ph"]]
        assert isinstance(event["name"], str)
        assert event["name"]
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("ts", "pid", "tid"))
        if event["ph"] == "X":
            assert type(event["dur"]) is int
            assert event["dur"] >= 0
        elif event["ph"] == "C":
            assert event["args"]
            assert all(type(size) is int for size in event["args"].values())
        elif event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        else:
            assert METADATA[event["name"]] in event["args"]


def test_a_rank_is_a_process_with_a_name(tmp_path: Path) -> None:
    """In the order in which the logs were given."""
    events = trace_of(tmp_path, run(1, rank=3), run(1, rank=5))

    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert named == {1: "rank 3 · actor", 2: "rank 5 · actor"}
    assert {event["pid"] for event in events} == {1, 2}


def without_beginnings() -> Log:
    """Transitions that say that they took longer than there was time since the one before."""
    log = Log()
    what = {"trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "sleeping"}
    for number in range(3):
        log.add("moved", 1.0, transition=number, **what, duration_s=5.0)
    return log


@pytest.mark.parametrize("log", [run(12), broken(), without_beginnings()], ids=["run", "broken", "without beginnings"])
def test_slices_of_a_track_come_in_order_and_do_not_overlap(tmp_path: Path, log: Log) -> None:
    """Perfetto would nest or drop them."""
    slices = [(one["ts"], one["ts"] + one["dur"]) for one in trace_of(tmp_path, log) if one["ph"] == "X"]

    assert slices
    assert all(ended <= began for (_, ended), (began, _) in pairwise(slices))


def test_a_transition_is_a_slice_of_its_time(tmp_path: Path) -> None:
    """With what it did; a refusal takes no time."""
    log = Log()
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("moved", 2.0, transition=1, **what, moved={"backup": 7}, duration_s=1.9)
    log.refused("somebody reads")

    events = trace_of(tmp_path, log)

    (found,) = [one for one in events if one["ph"] == "X"]
    assert (found["name"], found["dur"], found["args"]["moved_bytes"]) == ("sleep", 2_000_000, {"backup": 7})
    (refused,) = [one for one in events if one["ph"] == "i"]
    assert refused["name"] == "offload refused"
    assert refused["args"]["no-lease-over-live-weights"] == "somebody reads"


def test_what_failed_is_seen_by_its_name(tmp_path: Path) -> None:
    """Among slices that are called as their event; what has no end too."""
    names = [one["name"] for one in trace_of(tmp_path, broken()) if one["ph"] == "X"]

    assert [name for name in names if name.startswith("sleep")] == ["sleep", "sleep unfinished", "sleep failed"]


def test_a_counter_is_written_when_it_changes(tmp_path: Path) -> None:
    """What is held after most transitions is what was held before."""
    counters = [one for one in trace_of(tmp_path, run(1)) if one["ph"] == "C"]

    assert [one["name"] for one in counters] == ["device bytes"] * 2 + ["saver_host bytes"] + [
        "device bytes",
        "saver_host bytes",
    ]


def test_a_counter_of_a_tag_that_is_gone_is_zero(tmp_path: Path) -> None:
    """It would stay as it was."""
    log = Log()
    what = {"trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "sleeping"}
    log.add("moved", transition=1, **what, held=AWAKE_HELD, duration_s=0.0)
    log.add("moved", 1.0, transition=2, **what, held={"device": {"engine/weights": ENGINE}}, duration_s=0.0)
    log.add("moved", 1.0, transition=3, **what, held={}, duration_s=0.0)

    counters = [one["args"] for one in trace_of(tmp_path, log) if one["ph"] == "C"]

    gone = dict.fromkeys(AWAKE_HELD["device"], 0)
    assert counters == [AWAKE_HELD["device"], {**gone, "engine/weights": ENGINE}, {"engine/weights": 0}]
