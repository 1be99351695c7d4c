"""docs/watch.md is true: its sample is what is drawn, its program runs, and it explains every word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lifecycle.watch.attention import LEVELS, Concern
from tests.watch.live import Live
from tests.watch.pictures import sample
from tests.watch.test_draw import written

PAGE = Path(__file__).parents[2] / "docs" / "watch.md"


def block(language: str) -> str:
    """The first block in that language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]


def test_the_sample_is_what_is_drawn() -> None:
    """To the letter, in a terminal of 100 columns."""
    drawn = "".join(f"{line.rstrip()}\n" for line in written(sample(), 100).splitlines())

    assert block("text") == drawn


def test_every_word_is_explained_with_its_level() -> None:
    """In the order in which they are shown."""
    rows = re.findall(r"^\| `([A-Z]+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert rows == [(one.upper(), LEVELS.get(one, "warning")) for one in Concern]


def test_the_program_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over the log of a real trainer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with Live(tmp_path / "run" / "audit-0.jsonl") as live:
        live.turn()
        exec(compile(block("python"), str(PAGE), "exec"), {})  # noqa: S102 - the page's own example

    assert capsys.readouterr().out == "0 awake {'E0': 'current'}\n"
