"""The trace in Perfetto itself: what it reads of a run is what the run was."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from lifecycle.report import Outputs, write_report
from tests.browser.chromium import Chromium
from tests.browser.perfetto import opened
from tests.report.logs import ADAPTERS, BASE, ENGINE, TURN, Log, write_run
from tests.report.test_page import evil_log
from tests.report.test_summary import run
from tests.report.test_trace import broken

LONG = 100_000
TRACE_BYTES_MAX = 250
"""Of a record of the log."""
COMPLAINTS = "select name, value from stats where value != 0 and severity != 'info'"


def trace_of(folder: Path, *logs: Log) -> Path:
    """The trace of these logs."""
    paths = [log.write(folder / f"audit.rank{at}.jsonl") for at, log in enumerate(logs)]
    write_report(paths, Outputs(trace=folder / "trace.json"))
    return folder / "trace.json"


def test_perfetto_finds_the_ranks_the_transitions_and_the_bytes_of_a_run(
    chromium: Chromium, tmp_path: Path, screenshots: Path
) -> None:
    """Names, nanoseconds, one level, and what was held by place and tag."""
    turns = 3
    with opened(chromium, trace_of(tmp_path, run(turns), run(turns, rank=1))) as perfetto:
        assert perfetto.rows(COMPLAINTS) == []
        assert perfetto.rows("select pid, name from process where pid > 0 order by pid") == [
            [1, "rank 0 · actor"],
            [2, "rank 1 · actor"],
        ]
        assert perfetto.rows("select distinct name from thread where tid > 0") == [["transitions"]]
        slices = perfetto.rows("select name, count(*), sum(dur), max(depth) from slice where dur > 0 group by name")
        lasted = {trigger: lasts_s for trigger, _, _, _, lasts_s, *_ in TURN}
        assert {name: (times, round(dur / 1e9, 6), depth) for name, times, dur, depth in slices} == {
            name: (2 * turns, pytest.approx(2 * turns * lasts_s), 0) for name, lasts_s in lasted.items()
        }
        held = "select t.name, min(c.value), max(c.value) from counter c join counter_track t on c.track_id = t.id"
        assert perfetto.rows(f"{held} group by 1 order by 1") == [
            ["device bytes actor/adapters", 0, ADAPTERS],
            ["device bytes actor/base", 0, BASE],
            ["device bytes actor/gradients", 0, ADAPTERS],
            ["device bytes engine/weights", 0, ENGINE],
            ["saver_host bytes actor/adapters", 0, ADAPTERS],
            ["saver_host bytes actor/base", 0, BASE],
        ]
        picture = perfetto.tab.ask("Page.captureScreenshot", format="png")
        (screenshots / "perfetto.png").write_bytes(base64.b64decode(picture["data"]))


@pytest.mark.parametrize("log", [broken(), evil_log()], ids=["broken", "evil"])
def test_perfetto_takes_whatever_a_log_says(chromium: Chromium, tmp_path: Path, log: Log) -> None:
    """Transitions without an end, restarts and any text."""
    with opened(chromium, trace_of(tmp_path, log)) as perfetto:
        assert perfetto.rows(COMPLAINTS) == []
        assert perfetto.rows("select count(*) from slice") != [[0]]


def test_perfetto_opens_the_trace_of_100000_records(chromium: Chromium, tmp_path: Path) -> None:
    """Whose size is in proportion to the log's."""
    path = tmp_path / "trace.json"
    records = write_report(write_run(tmp_path, ranks=4, records=LONG), Outputs(trace=path)).records
    size_bytes = path.stat().st_size
    print(f"{records} records: a trace of {size_bytes / 2**20:.1f} MiB")

    with opened(chromium, path) as perfetto:
        assert perfetto.rows(COMPLAINTS) == []
        (found,) = perfetto.rows("select count(*) from slice where dur > 0")

    assert found[0] > 0.48 * records
    assert size_bytes < TRACE_BYTES_MAX * records
