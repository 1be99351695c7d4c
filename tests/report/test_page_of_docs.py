"""docs/report.md is true: its code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lifecycle.report.sheets import COLUMNS
from tests.report.test_summary import run

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_program_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over the logs of two ranks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for rank in range(2):
        run(2, rank).write(tmp_path / "run" / f"audit-{rank}.jsonl")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    exec(compile(code, str(PAGE), "exec"), {})  # noqa: S102 - the page's own example

    assert capsys.readouterr().out.endswith("refused by {'no-lease-over-live-weights': 2}\n")
    assert (tmp_path / "report.html").exists()


def test_every_table_is_named_with_its_columns() -> None:
    """In their order; those that all have are told before them."""
    text = PAGE.read_text(encoding="utf-8")
    told = {
        file: tuple(re.findall(r"`(\w+)`", columns))
        for file, columns in re.findall(r"^\| `(\w+\.csv)` \|[^|]*\|([^|]*)\|", text, re.MULTILINE)
    }

    assert told == {file: columns[4:] for file, columns in COLUMNS.items()}
    assert {columns[:4] for columns in COLUMNS.values()} == {("file", "run", "rank", "model")}
    assert "`file`, `run`, `rank` and\n`model`" in text
