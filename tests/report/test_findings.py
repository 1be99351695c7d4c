"""Is all well? What a report says first."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lifecycle.report import Outputs, write_report
from lifecycle.report.judgement import Finding, Level, findings
from lifecycle.report.summary import SHOWN_MOST
from tests.report.logs import START, Log
from tests.report.test_summary import report_of, run


def of_level(level: Level, *logs: Log) -> list[str]:
    """What is found at this level."""
    return [one.text for one in findings(report_of(*logs)) if one.level is level]


def failing(log: Log, target: str = "sleeping", error: str = "OSError: no room") -> Log:
    """The log with a sleep that failed."""
    what = log.began("sleep", "quiesces", "awake", target)
    log.add("failed", 2.0, transition=log.transition, **what, effect="clear-caches", error=error)
    return log


def later(log: Log, seconds: float) -> Log:
    """The log by a clock that is ahead by so many seconds."""
    for record in log.records:
        at = START.fromisoformat(record["time"]) + timedelta(seconds=seconds)
        record["time"] = at.isoformat()
    return log


def test_a_run_in_which_nothing_failed_is_well() -> None:
    """Refusals change nothing, so they are noted and no more."""
    assert findings(report_of(run(3))) == (
        Finding(Level.GOOD, "No transition failed, and each has its end.", "states"),
        Finding(
            Level.NOTE,
            "1 event refused, most often by no-lease-over-live-weights. A refusal changes nothing.",
            "refused",
        ),
    )


def test_what_failed_is_named() -> None:
    """How many, and the first one, from which others follow."""
    (told,) = of_level(Level.BAD, failing(failing(run(1)), error="what came of it"))

    assert told.startswith(
        "2 transitions failed. The first: rank 0, sleep from awake to sleeping, begun 2026-03-01 12:00"
    )
    assert told.endswith("clear-caches: OSError: no room.")


def test_nothing_is_called_good_where_something_is_bad() -> None:
    """One sign, not two."""
    assert of_level(Level.GOOD, failing(run(1))) == []


def test_a_rank_that_is_faulted_at_the_end_is_named_first() -> None:
    """One that has recovered is not."""
    faulted = failing(run(1), "faulted")
    recovered = failing(run(1, rank=1), "faulted")
    what = recovered.began("recover", "recovers", "faulted", "awake")
    recovered.add("moved", 1.0, transition=recovered.transition, **what, duration_s=1.0)

    told = of_level(Level.BAD, faulted, recovered)[0]

    assert told == "Faulted at the end of the log: rank 0. What its memory holds is known after recover()."


def test_of_what_has_no_end_that_is_named_in_which_ranks_are() -> None:
    """There the run hangs, or has died; what a restart went on from is counted with it."""
    crashed = run(1)
    for _ in range(SHOWN_MOST):
        crashed.began("sleep", "quiesces", "awake", "sleeping")
        crashed.opened(restart=True)
    crashed.turn(1)
    waiting = run(1, rank=1)
    for log in (crashed, waiting):
        log.began("offload", "offloads-to-cpu", "sleeping", "offloaded-cpu")

    told = of_level(Level.BAD, crashed, waiting, run(1, rank=2))[0]

    assert told.startswith(f"{SHOWN_MOST + 2} transitions without an end")
    assert "At the end of the log: rank 0 in offload from sleeping to offloaded-cpu, begun 2026-03-01" in told
    assert ", rank 1 in offload from" in told
    assert "rank 2" not in told


def test_of_what_has_no_end_the_first_is_named_where_all_ranks_went_on() -> None:
    """After a restart. What failed is another finding, with its own first one."""
    log = run(1)
    log.began("wake_up", "wakes", "sleeping", "awake")
    log.opened(restart=True)
    log.turn(1)

    unfinished, failed = of_level(Level.BAD, failing(log))

    assert "The first: rank 0, wake_up from sleeping to awake, begun 2026-03-01" in unfinished
    assert "The first: rank 0, sleep from awake to sleeping" in failed


def test_a_rank_whose_log_ends_early_is_named() -> None:
    """By how much; ranks that end nearly together are not."""
    assert of_level(Level.WARN, run(3), run(20, rank=1)) == [
        "The log ends before the last rank's does, rank 0 by 2 min 27 s: it stopped, or its file is older."
    ]
    assert of_level(Level.WARN, run(20), run(20, rank=1)) == []


@pytest.mark.parametrize(("turns", "of", "is_early"), [(18, 20, True), (19, 20, False), (58, 60, False)])
def test_a_log_ends_early_by_seconds_and_by_a_share_of_the_run(turns: int, of: int, *, is_early: bool) -> None:
    """A turn of few, and two turns of many, are what ranks are apart anyway."""
    assert bool(of_level(Level.WARN, run(turns), run(of, rank=1))) is is_early


@pytest.mark.parametrize(("ahead_s", "told"), [(3600.0, "ahead by 60 min"), (-3600.0 * 24 * 365, "behind by 365 d")])
def test_clocks_that_differ_are_told_and_drawn_as_one(ahead_s: float, told: str) -> None:
    """The same transitions tell it. Lanes lie below each other as they were."""
    logs = run(5), later(run(5, rank=1), ahead_s)

    report = report_of(*logs)

    (finding,) = [one.text for one in findings(report) if one.level is Level.WARN]
    assert finding.startswith(f"Clocks differ from the first rank's: rank 1 {told}")
    first, second = report.lanes
    assert second.began_s == pytest.approx(first.began_s, abs=2 * first.width_s)
    assert report.ended_s - report.began_s == pytest.approx(first.ended_s - first.began_s, abs=2 * first.width_s)


def test_a_rank_that_is_slower_has_no_other_clock() -> None:
    """Its times go apart step by step, those of a clock are apart alike."""
    slow = Log(1)
    slow.opened()
    for number in range(5):
        slow.turn(number, slower=4.0)

    assert report_of(run(5), slow).clocks == {}


def test_restarts_and_lines_that_are_none_are_told(tmp_path: Path) -> None:
    """With the rank."""
    log = run(1)
    log.opened(restart=True)
    log.turn(1)
    path = log.write(tmp_path / "audit.jsonl")
    path.write_text(path.read_text() + "{torn")

    found = {one.level: one.text for one in findings(write_report([path], Outputs()))}

    assert found[Level.WARN] == "Lines that are torn or no records, and left out: 1, of rank 0."
    assert found[Level.NOTE] == "1 restart: rank 0."


def test_of_many_ranks_some_are_named_and_the_rest_counted() -> None:
    """A finding stays a sentence."""
    (told, *_) = of_level(Level.BAD, *(failing(run(1, rank), "faulted") for rank in range(20)))

    assert "rank 0, rank 1" in told
    assert "rank 7 and 12 more" in told
