"""The tables as CSV, and the files of a report."""

from __future__ import annotations

import csv
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lifecycle.cli.app import app
from lifecycle.errors import AuditError
from lifecycle.report import Outputs, ReportError, write_report
from tests.report.logs import ADAPTERS, BASE, Log
from tests.report.test_summary import run

RUNNER = CliRunner()


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file by column."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_table_holds_all_of_its_rows(tmp_path: Path) -> None:
    """Transitions, bytes by place and tag, adapters, and each verdict that failed."""
    log = run(3).write(tmp_path / "audit.jsonl")
    write_report([log], Outputs(sheets=tmp_path / "new" / "csv"))
    folder = tmp_path / "new" / "csv"

    transitions = rows(folder / "transitions.csv")
    assert len(transitions) == 3 * 7 + 1
    offload = next(one for one in transitions if one["event"] == "offload" and one["outcome"] == "moved")
    assert (offload["duration_s"], offload["moved_bytes"]) == ("1.5", str(BASE + ADAPTERS))
    held = [one for one in rows(folder / "bytes.csv") if one["sequence"] == offload["sequence"]]
    assert {(one["place"], one["tag"]) for one in held} == {
        ("saver_host", "actor/base"),
        ("saver_host", "actor/adapters"),
        ("device", "engine/weights"),
    }
    lives = {one["adapter"]: (one["end"], one["changes"], one["pushes"]) for one in rows(folder / "adapters.csv")}
    assert lives == {"a0": ("retired", "1", "2"), "a1": ("", "1", "2"), "a2": ("", "1", "1")}
    (refusal,) = rows(folder / "refusals.csv")
    assert (refusal["guard"], refusal["remedy"]) == ("no-lease-over-live-weights", "close it first")


@pytest.mark.parametrize(
    ("told", "written"),
    [
        ("=HYPERLINK(evil)", "'=HYPERLINK(evil)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "'\t'=1"),
        ("\uff1dcmd", "'\uff1dcmd"),
        ("harmless;=cmd|calc", "harmless;'=cmd|calc"),
        ("first\n=second", "first\n'=second"),
        ("a = b - c; d+e", "a = b - c; d+e"),
    ],
)
def test_a_text_of_a_log_is_no_formula_of_a_spreadsheet(tmp_path: Path, told: str, written: str) -> None:
    """It gets an apostrophe, also where a semicolon is what separates cells."""
    log = Log()
    log.refused(told)
    write_report([log.write(tmp_path / "audit.jsonl")], Outputs(sheets=tmp_path / "csv"))

    assert rows(tmp_path / "csv" / "refusals.csv")[0]["because"] == written


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    """Also where they take the place of others."""
    log = run(1).write(tmp_path / "audit.jsonl")
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "report.html").chmod(0o644)
    outputs = Outputs(tmp_path / "report.html", tmp_path / "trace.json", tmp_path / "csv")

    write_report([log], outputs)

    written = [tmp_path / "report.html", tmp_path / "trace.json", *(tmp_path / "csv").iterdir()]
    assert {stat.S_IMODE(one.stat().st_mode) for one in written} == {0o600}
    assert stat.S_IMODE((tmp_path / "csv").stat().st_mode) == 0o700
    assert len(written) == 6


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """Nothing half written, and no other file."""
    (tmp_path / "report.html").write_text("old")
    (tmp_path / "empty.jsonl").touch()

    with pytest.raises(ReportError):
        write_report([tmp_path / "empty.jsonl"], Outputs(page=tmp_path / "report.html"))

    assert (tmp_path / "report.html").read_text() == "old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["empty.jsonl", "report.html"]


@pytest.mark.parametrize("name", ["page", "trace"])
def test_a_log_is_never_overwritten(tmp_path: Path, name: str) -> None:
    """Nor what was put aside of it."""
    log = run(1).write(tmp_path / "audit.jsonl")
    aside = run(1).write(tmp_path / "audit.jsonl.1")
    before = log.read_bytes(), aside.read_bytes()

    for path in (log, aside):
        with pytest.raises(ReportError, match="it is a log that is read"):
            write_report([log], Outputs(**{name: path}))

    assert (log.read_bytes(), aside.read_bytes()) == before


def test_a_log_that_has_the_name_of_a_table_is_never_overwritten(tmp_path: Path) -> None:
    """Nothing else of the folder is touched either."""
    log = run(1).write(tmp_path / "bytes.csv")
    before = log.read_bytes()

    with pytest.raises(ReportError, match="it is a log that is read"):
        write_report([log], Outputs(sheets=tmp_path))
    assert log.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["bytes.csv"]


def test_a_file_that_somebody_else_has_put_in_the_way_is_not_written_into(tmp_path: Path) -> None:
    """It may be open for others: what is written on the way is a new file."""
    log = run(1).write(tmp_path / "audit.jsonl")
    other = tmp_path / f".report.html.{os.getpid()}"
    other.write_text("theirs")

    with pytest.raises(ReportError, match="Choose another path"):
        write_report([log], Outputs(page=tmp_path / "report.html"))
    assert other.read_text() == "theirs"
    assert not (tmp_path / "report.html").exists()


def test_links_that_lead_in_a_circle_are_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    """As a file to write they are replaced."""
    log, circle = run(1).write(tmp_path / "audit.jsonl"), tmp_path / "circle"
    circle.symlink_to(circle)

    with pytest.raises(AuditError, match="cannot be read"):
        write_report([circle], Outputs(page=tmp_path / "report.html"))
    write_report([log], Outputs(page=circle))
    assert circle.read_text().startswith("<!doctype html>")


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """It names the file, and what to do."""
    log = run(1).write(tmp_path / "audit.jsonl")
    (tmp_path / "file").touch()

    for outputs in (Outputs(page=tmp_path / "none" / "report.html"), Outputs(sheets=tmp_path / "file")):
        with pytest.raises(ReportError, match="Choose another") as caught:
            write_report([log], outputs)
        assert caught.value.path in {str(tmp_path / "none" / "report.html"), str(tmp_path / "file")}


def test_the_command_writes_a_page_where_nothing_else_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to where it was called, and says so."""
    monkeypatch.chdir(tmp_path)
    log = run(1).write(tmp_path / "audit.jsonl")

    result = RUNNER.invoke(app, ["report", str(log)])

    assert (result.exit_code, result.stdout) == (0, "16 records of 1 log: wrote report.html\n")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_the_command_writes_what_it_is_asked_for_and_says_what_it_left_out(tmp_path: Path) -> None:
    """No page where only a trace is asked for."""
    log = run(1).write(tmp_path / "audit.jsonl")
    log.write_text(log.read_text() + "{torn")

    result = RUNNER.invoke(app, ["report", str(log), "--trace", str(tmp_path / "t.json")])

    assert result.exit_code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["audit.jsonl", "t.json"]
    assert result.stderr == "Lines that are torn or no records, and left out: 1, of rank 0.\n"


def test_the_command_says_what_went_wrong_in_characters_that_a_terminal_prints(tmp_path: Path) -> None:
    """An error may be anything; it gives the terminal no command."""
    log = run(1)
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("failed", 2.0, transition=log.transition, **what, effect="clear-caches", error="\x1b]0;evil\x07 no room")

    result = RUNNER.invoke(app, ["report", str(log.write(tmp_path / "audit.jsonl")), "--out", str(tmp_path / "r.html")])

    assert result.exit_code == 0
    assert "1 transition failed" in result.stderr
    assert r"clear-caches: \x1b]0;evil\x07 no room" in result.stderr
    assert "\x1b" not in result.output
