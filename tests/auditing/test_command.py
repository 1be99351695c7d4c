"""The command: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lifecycle.auditing import Kind
from lifecycle.cli.app import app
from tests.auditing.logs import good_log

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A good log."""
    return good_log(tmp_path / "audit.jsonl")


def spoil(log: Path) -> None:
    """Change one line."""
    log.write_bytes(log.read_bytes().replace(b'"time":"2', b'"time":"1', 1))


def test_a_good_log_ends_with_0(log: Path) -> None:
    """And says how many records there were."""
    done = CliRunner().invoke(app, ["audit", str(log)])

    assert (done.exit_code, done.stdout) == (0, "47 records, 0 violations\n")


def test_violations_end_with_1(log: Path) -> None:
    """Each is one line that names its file, line and kind."""
    spoil(log)

    done = CliRunner().invoke(app, ["audit", str(log)])

    first, last = done.stdout.splitlines()
    assert done.exit_code == 1
    assert first.startswith(f"{log}:1: chain: it does not follow")
    assert last == "47 records, 1 violation"


def test_json_says_the_same(log: Path) -> None:
    """With these keys and no others."""
    spoil(log)

    done = CliRunner().invoke(app, ["audit", "--json", str(log)])

    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert set(told) == {"records", "violations"}
    assert told["records"] == 47
    assert [{**one, "message": ""} for one in told["violations"]] == [
        {"kind": "chain", "file": str(log), "line": 1, "message": ""}
    ]


def test_a_log_that_is_cut_off_is_said_to_be(log: Path) -> None:
    """On the standard error, beside what was found before."""
    log.write_bytes(log.read_bytes()[:-20])

    done = CliRunner().invoke(app, ["audit", str(log)])

    assert "47: the last line is cut off; everything before it was read" in done.stderr
    assert "46 records" in done.stdout


@pytest.mark.parametrize("held", [None, b'{"event": "lifecycle.opened"}\n'])
def test_what_cannot_be_read_ends_with_2(tmp_path: Path, held: bytes | None) -> None:
    """A log that is not there, or of another format, and no traceback."""
    path = tmp_path / "audit.jsonl"
    if held is not None:
        path.write_bytes(held)

    done = CliRunner().invoke(app, ["audit", str(path)])

    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


def test_without_a_log_it_ends_with_2() -> None:
    """As any command that is used otherwise than it says."""
    assert CliRunner().invoke(app, ["audit"]).exit_code == 2


def test_the_page_explains_every_kind() -> None:
    """One row each, in the order of the enumeration."""
    rows = [line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert rows == [one.value for one in Kind]
