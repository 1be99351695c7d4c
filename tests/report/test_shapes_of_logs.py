"""Logs as they come: crashed, of one record, of minutes or months, of many ranks and adapters, rotated, old."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lifecycle.report import Level, Outcome, Outputs, Report, findings, write_report
from lifecycle.report.charts import charts, count
from lifecycle.report.summary import BUCKETS_MOST, BUCKETS_OF_ALL, SHOWN_MOST
from tests.report.logs import AWAKE_HELD, Log
from tests.report.test_page import Page
from tests.report.test_summary import run

PAGE_BYTES_MAX = 1_000_000


@dataclass(frozen=True)
class Written:
    """A report, and where it lies."""

    report: Report
    folder: Path

    @property
    def page(self) -> str:
        """The page."""
        return (self.folder / "report.html").read_text()

    @property
    def bad(self) -> list[str]:
        """What went wrong."""
        return [one.text for one in findings(self.report) if one.level is Level.BAD]


Write = Callable[..., Written]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the report of logs: a page that is whole, in bounds, a trace and tables."""

    def written(*logs: Log, files: Sequence[Path] = ()) -> Written:
        paths = [*files, *(log.write(tmp_path / f"audit.rank{at}.jsonl") for at, log in enumerate(logs))]
        outputs = Outputs(tmp_path / "report.html", tmp_path / "trace.json", tmp_path / "csv")
        made = Written(write_report(paths, outputs), tmp_path)
        assert Page(made.page).open == []
        assert len(made.page) < PAGE_BYTES_MAX
        assert count(made.report) <= BUCKETS_MOST + 1
        return made

    return written


def test_a_crashed_run_says_in_what_it_crashed(write: Write) -> None:
    """The last transition of the log has no end; the last line is torn."""
    crashed = run(3)
    crashed.began("offload", "offloads-to-cpu", "sleeping", "offloaded-cpu")

    made = write(crashed, run(3, rank=1))

    (told,) = made.bad
    assert "At the end of the log: rank 0 in offload from sleeping to offloaded-cpu" in told
    assert "Something went wrong" in made.page


def test_a_run_of_one_record_is_drawn(write: Write) -> None:
    """Nothing has happened; the page says so."""
    log = Log()
    log.opened()

    made = write(log)

    assert made.report.records == 1
    assert "The logs tell of no state." in made.page
    assert "The logs tell of no bytes." in made.page


def test_a_run_in_which_nothing_moved_is_drawn(write: Write) -> None:
    """Refusals alone."""
    log = Log()
    log.opened()
    log.refused()

    made = write(log)

    assert (made.bad, made.report.refused, made.report.kinds) == ([], 1, {})
    assert "No transition copied anything." in made.page


def test_64_ranks_have_fewer_moments_each(write: Write) -> None:
    """So the page stays a page."""
    made = write(*(run(4, rank) for rank in range(64)))

    data: Any = charts(made.report)
    assert len(data["lanes"]) == 64
    assert data["count"] <= BUCKETS_OF_ALL // 64 + 1 < BUCKETS_MOST
    assert made.report.refusals[0].times == 64


def test_1000_adapters_are_counted_and_300_shown(write: Write) -> None:
    """Also where each is pushed to each of many engines."""
    log = Log()
    names = [f"a{number}" for number in range(1000)]
    what = log.began("reconcile_adapters", "reads-saver-backup", "awake", "awake")
    loaded = {"versions": {f"adapter/{name}": 1 for name in names}, "details": {"loaded": names}}
    held = {"held": {"device": {f"adapter/{name}": 5 for name in names}}}
    log.add("moved", 1.0, transition=1, **what, **loaded, **held, duration_s=1.0)
    what = log.began("update_weights", "sends", "awake", "awake")
    sent = {f"engine-{at}": {"committed": True, "sent": [f"adapter/{name}" for name in names]} for at in range(64)}
    log.add("moved", 1.0, transition=2, **what, details={"engines": sent}, duration_s=1.0)

    made = write(log)

    assert (made.report.lived, len(made.report.lives)) == (1000, SHOWN_MOST)
    assert "700 earlier ones are in adapters.csv" in made.page
    assert "engine-7 and 56 more" in made.page
    assert "700 more, which hold less." in made.page


@pytest.mark.parametrize(("slower", "least_s"), [(1.0, 0.03), (30_000.0, 1000.0)], ids=["minutes", "a month"])
def test_runs_of_minutes_and_of_months_are_drawn(write: Write, slower: float, least_s: float) -> None:
    """In buckets that are as wide as it takes."""
    log = Log()
    log.opened()
    for number in range(12):
        log.turn(number, slower)

    made = write(log)

    assert made.report.lanes[0].width_s > least_s
    assert ("27 d" in made.page) == (slower > 1)


def test_a_run_of_five_milliseconds_is_drawn(write: Write) -> None:
    """A bucket is about a millisecond."""
    log = Log()
    log.opened()
    for number in range(1, 6):
        what = {"trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "sleeping"}
        log.add("moved", 0.001, transition=number, **what, held=AWAKE_HELD, duration_s=0.001)

    made = write(log)

    assert 4 <= count(made.report) <= 7
    assert "5.0 ms" in made.page


def test_runs_that_are_days_apart_are_drawn_side_by_side(write: Write) -> None:
    """Each is seen, and the moments between them are not more than are drawn."""
    other = run(2)
    for record in other.records:
        record["run"] = "another"
        record["time"] = (log_time(record) + timedelta(days=400)).isoformat()

    made = write(run(2), other)

    data: Any = charts(made.report)
    assert [len(lane["states"]["awake"]) for lane in data["lanes"]] == [1, 1]
    assert data["lanes"][1]["first"] == data["count"] - 1


def log_time(record: dict[str, Any]) -> Any:
    """When a record was written."""
    return type(Log().now).fromisoformat(record["time"])


def test_what_was_restarted_again_and_again_is_one_lane(write: Write) -> None:
    """Each session that died in a transition is told."""
    log = run(1)
    for number in range(3):
        log.began("sleep", "quiesces", "awake", "sleeping")
        log.opened(restart=True)
        log.turn(number + 1)

    made = write(log)

    assert (made.report.outcomes[Outcome.UNFINISHED], made.bad[0][:29]) == (3, "3 transitions without an end:")
    assert "3 restarts: rank 0." in made.page


def test_records_of_the_first_version_are_drawn(write: Write) -> None:
    """They say nothing of what is held where."""
    log = run(3)
    for record in log.records:
        record["schema"] = 1
        record.pop("held", None)

    made = write(log)

    assert len(made.report.slowest) == 21
    assert "offloaded-cpu" in made.page


def test_what_was_put_aside_and_compressed_is_read_as_one(write: Write, tmp_path: Path) -> None:
    """Oldest first."""
    lines = list(run(9).lines())
    path = tmp_path / "audit.jsonl"
    with gzip.open(f"{path}.1.gz", "wt") as file:
        file.writelines(lines[:40])
    Path(f"{path}.2").write_text("".join(lines[40:90]))
    path.write_text("".join(lines[90:]))

    made = write(files=[path])

    assert made.report.records == len(lines)
    assert made.bad == []
    assert [one.adapter for one in made.report.lives] == [f"a{number}" for number in range(9)]


def test_names_that_are_endless_are_cut(write: Write) -> None:
    """Of places, tags, kinds, adapters and engines: a page does not grow with them."""
    endless = "x" * 400_000
    log = Log()
    what = log.began(endless, endless, "awake", "awake")
    held = {"held": {"device": {endless: 5}, endless: {"tag": 5}}, "moved": {endless: 5}}
    versions = {"versions": {f"adapter/{endless}": 1}}
    sent = {"engines": {endless: {"committed": True, "sent": [f"adapter/{endless}"]}}}
    log.add("moved", 1.0, transition=1, **what, **held, **versions, details=sent, duration_s=1.0)
    log.add("moved", 1.0, transition=2, **what, details=sent, duration_s=1.0)

    made = write(log)

    assert made.report.lives[0].pushes == 2
    texts = [made.page, *(one.read_text() for one in (made.folder / "csv").iterdir())]
    assert ["x" * 301 in one for one in texts] == [False] * 5
