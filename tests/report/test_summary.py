"""The whole run in little."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lifecycle.errors import AuditError
from lifecycle.report import Outputs, Report, ReportError, write_report
from lifecycle.report.charts import STATES, charts
from lifecycle.report.lanes import TAGS_MOST
from lifecycle.report.model import Outcome, happenings, lane_of
from lifecycle.report.refused import GROUPS_MOST
from lifecycle.report.summary import KINDS_MOST, SHOWN_MOST, SLOWEST_MOST, Summary
from tests.report.logs import ADAPTERS, BASE, ENGINE, START, Log


def report_of(*logs: Log) -> Report:
    """The report of these logs, a lane each."""
    summary = Summary(len(logs))
    for index, log in enumerate(logs):
        lane = lane_of(index, f"audit.rank{log.rank}.jsonl", log.records[0])
        summary.begin(lane)
        for one in happenings(log.records):
            summary.take(lane, one)
        summary.end(lane, len(log.records))
    return summary.report()


def run(turns: int, rank: int = 0) -> Log:
    """A log of so many turns."""
    log = Log(rank)
    log.opened()
    for number in range(turns):
        log.turn(number)
    return log


def test_seconds_in_each_state_are_those_of_the_records() -> None:
    """A transition counts for its source, a reconcile for itself; between them the last target counts."""
    (drawn,) = report_of(run(1)).lanes

    spent = {state: sum(cell.get(state, 0.0) for cell in drawn.states.values()) for state in STATES}

    assert spent == pytest.approx(
        {
            "awake": 0.3 + 0.31 + 2.8 + 0.4,
            "sleeping": 0.2 + 0.3 + 1.5,
            "offloaded-cpu": 1.1 + 1.5,
            "offloaded-disk": 0.0,
            "adapter-reconciling": 0.4,
            "faulted": 0.0,
            "in transition": 0.4 + 0.01 + 2.5 + 0.1 + 1.5 + 0.8 + 1.2,
        }
    )


def test_the_most_bytes_of_each_place_and_tag_are_exact() -> None:
    """Whatever is drawn."""
    (drawn,) = report_of(run(3)).lanes

    assert drawn.peaks == {
        ("device", "actor/adapters"): ADAPTERS,
        ("device", "actor/base"): BASE,
        ("device", "actor/gradients"): ADAPTERS,
        ("device", "engine/weights"): ENGINE,
        ("saver_host", "actor/adapters"): ADAPTERS,
        ("saver_host", "actor/base"): BASE,
    }


def test_copies_are_counted_by_event_edge_and_kind() -> None:
    """Over all ranks."""
    kinds = report_of(run(3), run(2, rank=1)).kinds

    offload = kinds["offload", "offloads-to-cpu"]
    assert (offload.times, offload.most_bytes, dict(offload.moved)) == (
        5,
        BASE + ADAPTERS,
        {"backup": 5 * (BASE + ADAPTERS)},
    )
    assert kinds["begin_step", "opens"].moved == {}


def test_the_most_bytes_of_one_are_those_of_the_largest() -> None:
    """Whichever it was."""
    log = Log()
    what = {"source": "awake", "target": "awake", "trigger": "offload", "edge": "e"}
    for number, size in enumerate((5, 9, 7)):
        log.add("moved", transition=number, **what, moved={"backup": size, "other": 1}, duration_s=0.5)

    assert report_of(log).kinds["offload", "e"].most_bytes == 10


def test_the_slowest_transitions_come_slowest_first() -> None:
    """As many as the table has rows."""
    slow = run(SLOWEST_MOST)
    slow.turn(99, slower=3)

    slowest = report_of(slow).slowest

    durations = [placed.transition.duration_s for placed in slowest]
    assert durations[0] == pytest.approx(7.5)
    assert durations == sorted(durations, reverse=True)
    assert len(slowest) == SLOWEST_MOST


def test_refusals_that_are_alike_are_one_row() -> None:
    """With how often, on how many ranks, and when the first and the last one was."""
    logs = [Log(rank) for rank in range(3)]
    for log in logs:
        for _ in range(SHOWN_MOST):
            log.refused()
    logs[1].refused("another reason")

    report = report_of(*logs)

    alike, other = report.refusals
    assert (alike.times, len(alike.lanes), other.times, len(other.lanes)) == (3 * SHOWN_MOST, 3, 1, 1)
    assert alike.last_s - alike.first_s == pytest.approx(0.2 * (SHOWN_MOST - 1))
    assert (report.refused, report.guards) == (
        3 * SHOWN_MOST + 1,
        {"no-lease-over-live-weights": 3 * SHOWN_MOST + 1},
    )


def test_the_first_refusal_is_the_one_that_was_first() -> None:
    """Whichever log is read first: its rank and its time are told."""
    logs = [Log(rank) for rank in range(3)]
    for log, after_s in zip(logs, (50.0, 10.0, 30.0), strict=True):
        log.now += timedelta(seconds=after_s)
        log.refused()

    (alike,) = report_of(*logs).refusals

    assert (alike.lane.rank, alike.first_s) == (1, START.timestamp() + 10.2)
    assert alike.last_s == START.timestamp() + 50.2


def test_refusals_for_ever_new_reasons_are_counted() -> None:
    """A log may hold any texts; what is told apart has a bound."""
    log = Log()
    for number in range(GROUPS_MOST + 5):
        log.refused(f"reason {number}")

    report = report_of(log)

    assert (len(report.refusals), report.refused, report.refused_apart) == (GROUPS_MOST, GROUPS_MOST + 5, 5)


def test_a_failure_is_shown_however_much_was_refused() -> None:
    """It is what is looked for."""
    log = Log()
    for _ in range(SHOWN_MOST + 5):
        log.refused()
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("failed", 2.0, transition=log.transition, **what, effect="clear-caches", error="OSError: no")

    (failure,) = report_of(log).failures

    assert failure.transition.problem == "clear-caches: OSError: no"


def test_of_several_ranks_each_has_its_first_failures_shown() -> None:
    """In the order of their time."""
    logs = [Log(rank) for rank in range(3)]
    for log in logs:
        for _ in range(SHOWN_MOST):
            what = log.began("sleep", "quiesces", "awake", "sleeping")
            log.add("failed", 2.0, transition=log.transition, **what, effect="clear-caches", error="OSError: no")

    report = report_of(*logs)

    assert [placed.lane.rank for placed in report.failures] == [0, 1, 2] * (SHOWN_MOST // 3)
    assert max(placed.transition.number for placed in report.failures) == SHOWN_MOST // 3
    assert report.failed == 3 * SHOWN_MOST


def test_names_that_a_log_makes_up_are_counted_together() -> None:
    """Events, edges, guards and tags have a bound each, or a page would grow with the log."""
    log = Log()
    what = {"source": "awake", "target": "awake", "edge": "e"}
    for number in range(TAGS_MOST + 5):
        held = {"device": {f"tag{number}": number}}
        log.add("moved", transition=number, **what, trigger=f"event{number}", held=held, duration_s=0.5)
        verdict = {"name": f"guard{number}", "holds": False, "because": "", "remedy": ""}
        log.add("refused", transition=number, **what, trigger="offload", verdicts=[verdict])

    report = report_of(log)

    assert len(report.kinds) == KINDS_MOST + 1
    assert len(report.guards) == KINDS_MOST + 1
    assert sum(report.guards.values()) == TAGS_MOST + 5
    assert sum(kind.times for kind in report.kinds.values()) == TAGS_MOST + 5
    assert len(report.lanes[0].peaks) == TAGS_MOST + 1
    assert max(report.lanes[0].peaks.values()) == TAGS_MOST + 4


def test_an_adapter_lives_from_the_reconcile_that_loads_it_to_the_one_that_retires_it() -> None:
    """Changes are those of steps, pushes those of syncs; the first rank tells for all."""
    report = report_of(run(4), run(4, rank=1))

    assert [(one.adapter, one.end, one.changes, one.pushes) for one in report.lives] == [
        ("a0", "retired", 1, 2),
        ("a1", "retired", 1, 2),
        ("a2", "", 1, 2),
        ("a3", "", 1, 1),
    ]
    assert report.lives[0].engines == ("engine-0",)
    assert report.lived == 4


def test_of_many_lives_the_last_ones_are_shown() -> None:
    """Those that are still in a slot among them; all are counted."""
    report = report_of(run(SHOWN_MOST + 5))

    assert (report.lives[0].adapter, report.lives[-1].adapter) == ("a5", f"a{SHOWN_MOST + 4}")
    assert (len(report.lives), report.lived) == (SHOWN_MOST, SHOWN_MOST + 5)
    assert [one.end for one in report.lives[-2:]] == ["", ""]


def test_lives_end_with_their_session() -> None:
    """What is loaded again lives again."""
    log = run(1)
    log.opened(restart=True)
    log.turn(0)

    assert [(one.adapter, one.end) for one in report_of(log).lives] == [("a0", "session ended"), ("a0", "")]


def test_an_adapter_that_is_loaded_under_a_name_in_use_is_another_one() -> None:
    """As a successor takes the place of what it succeeds."""
    log = run(1)
    log.turn(0)

    assert [(one.adapter, one.end) for one in report_of(log).lives] == [("a0", "retired"), ("a0", "")]


def test_a_group_of_the_base_is_no_adapter_of_its_name() -> None:
    """An adapter may be called as one: what is sent of the base is not sent of it."""
    log = Log()
    log.opened()
    states = {"source": "awake", "target": "awake"}
    ends = [
        ("reconcile_adapters", {"versions": {"adapter/buffers": 1}, "details": {"loaded": ["buffers"]}}),
        ("trained", {"versions": {"buffers": 2}, "details": {}}),
        ("update_weights", {"versions": {}, "details": {"engines": {"E": {"committed": True, "sent": ["buffers"]}}}}),
    ]
    for number, (trigger, told) in enumerate(ends, start=1):
        log.add("moved", transition=number, trigger=trigger, edge="", **states, **told)
    (life,) = report_of(log).lives

    assert (life.adapter, life.changes, life.pushes, life.engines) == ("buffers", 0, 0, ())


def test_what_state_a_lane_is_in_between_sessions_is_not_known() -> None:
    """It is not counted for any, and nothing is held."""
    log = run(1)
    before_s = log.now.timestamp()
    log.add("opened", 1000.0, restart=True)
    log.turn(1)

    (drawn,) = report_of(log).lanes

    between = [at for at in drawn.states if before_s + 1 < at * drawn.width_s < before_s + 998]
    assert between == []
    data: Any = charts(report_of(log))
    device = data["lanes"][0]["amounts"]["device"]
    empty = [point for point in device["points"] if sum(point[1:]) == 0]
    assert empty[-1][0] * data["width"] == pytest.approx(before_s - drawn.began_s, abs=2 * data["width"])


def test_what_has_no_end_stands_with_what_failed() -> None:
    """With its outcome."""
    log = Log()
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("failed", 2.0, transition=1, **what, effect="clear-caches", error="OSError: no")
    log.began("sleep", "quiesces", "awake", "sleeping")

    report = report_of(log)

    assert [one.transition.outcome for one in report.failures] == [Outcome.FAILED, Outcome.UNFINISHED]
    assert report.outcomes == {Outcome.FAILED: 1, Outcome.UNFINISHED: 1}


def test_the_moment_of_the_most_memory_is_exact() -> None:
    """How much, when, and what that was."""
    (drawn,) = report_of(run(3)).lanes

    most = drawn.most["host"]

    assert (most.size_bytes, set(most.held)) == (
        BASE + ADAPTERS,
        {("saver_host", "actor/base"), ("saver_host", "actor/adapters")},
    )
    assert most.time_s - drawn.began_s == pytest.approx(0.7 + 0.31 + 2.8 + 0.4 + 0.2 + 1.8)


def test_a_turn_lasts_from_one_sleep_to_the_next() -> None:
    """The longest is known, and one that a restart cut off is none."""
    log = run(3)
    log.turn(3, slower=10.0)
    log.turn(4)
    log.opened(restart=True)
    log.turn(5)
    log.turn(6)

    (tally,) = report_of(log).tallies.values()

    slow_s = 10 * (0.1 + 1.5 + 0.8 + 1.2) + 0.4 + 0.01 + 2.5 + 7 * 0.3
    assert (tally.turns.times, tally.turns.longest_s) == (5, pytest.approx(slow_s, abs=1e-3))


def test_the_diagram_counts_every_rank() -> None:
    """Each edge as often as it was taken, and what was refused where."""
    counts = report_of(run(2), run(2, rank=1)).diagram

    assert counts.taken["awake", "sleep", "quiesces", "sleeping"] == 4
    assert counts.refused["sleeping", "offload"] == 2


def test_what_is_held_in_memory_does_not_grow_with_the_log() -> None:
    """Buckets, rows and lives have a bound each."""
    (drawn,) = report_of(run(400)).lanes

    assert max(drawn.states) - min(drawn.states) <= 1200
    assert max(drawn.held["device"]) - min(drawn.held["device"]) <= 1200


def test_lines_that_are_none_are_counted(tmp_path: Path) -> None:
    """Before the first record and after it; the rest is read."""
    log = run(1)
    path = log.write(tmp_path / "audit.jsonl")
    path.write_text("{torn\n" + path.read_text() + '{"event": torn again')

    report = write_report([path], Outputs())

    assert list(report.unreadable.values()) == [2]
    assert report.records == 16


def test_a_log_without_a_record_is_refused(tmp_path: Path) -> None:
    """And one that is not there."""
    empty = tmp_path / "audit.jsonl"
    empty.touch()

    with pytest.raises(ReportError, match="holds no record"):
        write_report([empty], Outputs(page=tmp_path / "report.html"))
    with pytest.raises(AuditError, match="cannot be read"):
        write_report([tmp_path / "none.jsonl"], Outputs())
    assert [one.name for one in tmp_path.iterdir()] == ["audit.jsonl"]


def test_a_log_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    """Under whatever name."""
    path = run(1).write(tmp_path / "audit.jsonl")

    assert len(write_report([path, tmp_path / "." / "audit.jsonl"], Outputs()).lanes) == 1
