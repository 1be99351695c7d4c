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


def test_every_table_is_named() -> None:
    """With what a row of it is."""
    told = re.findall(r"^\| `(\w+\.csv)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert set(told) == set(COLUMNS)
