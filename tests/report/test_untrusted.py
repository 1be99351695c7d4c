"""No log makes a report fail: whatever stands in the fields of its records, it is shown or left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle.report import Outputs, write_report
from tests.report.logs import Log
from tests.report.test_page import Page

TIMES = ("1970-01-01T00:00:00+00:00", "9999-12-31T23:59:58+00:00", "2026-03-01T12:00:01", "2026-03-01T12:00:01+14:00")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(TIMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
COUNTS = st.dictionaries(st.text(max_size=5), st.integers(0, 2**63 - 1), max_size=3)
FIELDS = {
    "time": st.sampled_from(TIMES),
    "held": st.dictionaries(st.sampled_from(("device", "saver_host", "x")), COUNTS),
    "moved": COUNTS,
    "versions": st.dictionaries(st.sampled_from(("adapter/a0", "adapter/", "buffers")), st.none() | st.integers(0, 9)),
    "duration_s": st.floats(0, 1e18),
    "restart": st.booleans(),
    "trigger": st.text(max_size=5),
}
"""Fields to values of the right kind."""
OTHERS = ("event", "source", "target", "details", "verdicts", "error", "transition", "note", "rank", "run", "model")
RIGHT = st.sampled_from(sorted(FIELDS)).flatmap(lambda name: st.tuples(st.just(name), FIELDS[name]))
ANY = st.tuples(st.sampled_from([*sorted(FIELDS), *OTHERS]), JSON)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), RIGHT | ANY), max_size=8))
def test_whatever_a_log_says_a_report_is_written(changes: Sequence[tuple[int, tuple[str, Any]]]) -> None:
    """A page that is whole, a trace that is JSON, and tables."""
    log = Log()
    log.opened()
    log.turn(0)
    log.turn(1)
    log.opened(restart=True)
    log.turn(2)
    for at, (field, value) in changes:
        log.records[at % len(log.records)][field] = value
    with TemporaryDirectory() as name:
        folder = Path(name)
        outputs = Outputs(folder / "report.html", folder / "trace.json", folder / "csv")

        report = write_report([log.write(folder / "audit.jsonl")], outputs)

        assert report.records > 0
        assert Page((folder / "report.html").read_text()).open == []
        assert json.loads((folder / "trace.json").read_text())["traceEvents"]
