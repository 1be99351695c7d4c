"""No log makes watching fail: whatever stands in its records, it is shown or counted as unreadable."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from lifecycle.watch import RunWatch, notices
from lifecycle.watch.draw import draw
from lifecycle.watch.lines import line_of, notice_line
from lifecycle.watch.told import told
from tests.report.logs import Log
from tests.report.test_untrusted import ANY, JSON, RIGHT

ENGINE = st.dictionaries(st.sampled_from(("name", "stale", "fenced", "unknown", "weights_resident")), JSON, max_size=4)
CONTENT = st.dictionaries(st.sampled_from(("group", "version", "live", "copies")), JSON, max_size=3)
ROWS = st.lists(ENGINE | CONTENT, max_size=2) | JSON
FACTS = st.fixed_dictionaries(
    {"shared": st.fixed_dictionaries({"contents": ROWS, "engines": ROWS}), "local": JSON},
    optional={"since": st.integers(0, 9)},
)
OUTCOME = st.dictionaries(st.sampled_from(("committed", "sent", "unloaded", "error")), JSON, max_size=4)
PUSHED = st.dictionaries(st.text(max_size=3), OUTCOME | JSON, max_size=2)
OURS = st.one_of(
    st.tuples(st.just("facts"), FACTS | JSON),
    st.tuples(st.just("checkpoint"), st.dictionaries(st.text(max_size=3), st.integers(0, 9)) | JSON),
    st.tuples(st.just("details"), st.fixed_dictionaries({"engines": PUSHED})),
    st.tuples(st.just("engines"), PUSHED),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), RIGHT | ANY | OURS), max_size=8), st.binary(max_size=30))
def test_whatever_a_log_says_it_is_shown(changes: Sequence[tuple[int, tuple[str, Any]]], garbage: bytes) -> None:
    """As a picture, as lines and as JSON: text alone, and no error from inside."""
    log = Log()
    log.opened()
    log.turn(0)
    log.refused()
    log.turn(1)
    log.opened(restart=True)
    log.turn(2)
    log.began("offload", "offloads-to-cpu", "awake", "offloaded-cpu")
    for at, (field, value) in changes:
        log.records[1 + at % (len(log.records) - 1)][field] = value  # the first one says that it is a log
    with TemporaryDirectory() as folder, RunWatch([Path(folder) / "audit.jsonl"]) as run:
        path = log.write(Path(folder) / "audit.jsonl")
        with path.open("ab") as file:
            file.write(garbage)
        lines = [line_of(one.happening, "rank 0") for one in run.poll()]
        picture = run.picture()
    found = notices(picture)
    console = Console(file=io.StringIO(), width=100)
    console.print(draw(picture, found, 100))

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().replace("\n", "").isprintable()
    assert all(line is None or line.isprintable() for line in lines)
    assert all(notice_line(one, picture.now_s).isprintable() for one in found)
    json.dumps(told(picture, found), allow_nan=False)


def _facts(**shared: object) -> dict[str, object]:
    return {"shared": {"contents": [], "engines": [], **shared}, "local": {}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("facts", _facts(engines=["E0"])),
        ("facts", _facts(engines={"name": "E0"})),
        ("facts", _facts(engines=[{"name": 3}])),
        ("facts", _facts(engines=[{"name": "E0", "stale": [3]}])),
        ("facts", _facts(engines=[{"name": "E0", "unknown": ["x"]}])),
        ("facts", _facts(contents=[3])),
        ("facts", _facts(contents=[{"group": "buffers", "version": "1"}])),
        ("facts", {"shared": 3, "local": {}}),
        ("checkpoint", {"buffers": None}),
        ("checkpoint", [3]),
        ("details", {"engines": {"E0": 3}}),
        ("details", {"engines": {"E0": {"sent": "adapter/a"}}}),
        ("details", {"engines": {"E0": {"error": 3}}}),
        ("details", {"engines": ["E0"]}),
    ],
)
def test_a_field_of_another_kind_makes_its_record_unreadable(tmp_path: Path, field: str, value: object) -> None:
    """It is counted, and what comes after it is seen."""
    log = Log()
    log.opened()
    log.turn(0)
    pushed = next(
        one for one in log.records if one["event"] == "lifecycle.moved" and one["trigger"] == "update_weights"
    )
    pushed[field] = value
    with RunWatch([log.write(tmp_path / "audit.jsonl")]) as run:
        list(run.poll())
        (rank,) = run.picture().ranks

    assert (rank.unreadable, rank.state, rank.records) == (1, "awake", log.sequence)


@pytest.mark.parametrize(("field", "value"), [("rank", None), ("run", 3), ("model", ["actor"])])
def test_a_new_session_that_does_not_say_whose_it_is_is_unreadable(tmp_path: Path, field: str, value: object) -> None:
    """The log stays whose it was, and what comes after it is seen."""
    log = Log()
    log.opened()
    log.opened(restart=True)
    log.records[-1][field] = value
    log.turn(0)
    with RunWatch([log.write(tmp_path / "audit.jsonl")]) as run:
        list(run.poll())
        (rank,) = run.picture().ranks

    assert (rank.unreadable, rank.restarts, rank.records) == (1, 1, log.sequence)
    assert (rank.whose.rank, rank.whose.model) == (0, "actor")
