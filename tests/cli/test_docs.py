"""``adapter-lifecycle docs`` writes the generated pages, and says when they are out of date."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from typer.testing import CliRunner

from lifecycle.cli.app import app
from lifecycle.cli.docs import pages

RUNNER = CliRunner()


def test_docs_writes_the_pages(tmp_path: Path) -> None:
    """Into a directory that it makes."""
    result = RUNNER.invoke(app, ["docs", "--out", str(tmp_path / "new" / "docs")])

    assert result.exit_code == 0
    made = tmp_path / "new" / "docs"
    written = {one.relative_to(made).as_posix(): one.read_text() for one in made.rglob("*") if one.is_file()}
    assert written == pages()


def test_check_passes_on_pages_that_were_just_written(tmp_path: Path) -> None:
    """And writes nothing."""
    RUNNER.invoke(app, ["docs", "--out", str(tmp_path)])

    assert RUNNER.invoke(app, ["docs", "--out", str(tmp_path), "--check"]).exit_code == 0


def test_check_names_a_stale_and_a_missing_page(tmp_path: Path) -> None:
    """With the command that mends it."""
    (tmp_path / "states.md").write_text("old")

    result = RUNNER.invoke(app, ["docs", "--out", str(tmp_path), "--check"])

    assert result.exit_code == 1
    assert f": {', '.join(pages())}. Run: adapter-lifecycle docs" in result.stderr
    assert (tmp_path / "states.md").read_text() == "old"


def test_a_directory_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """No traceback."""
    (tmp_path / "file").write_text("")

    result = RUNNER.invoke(app, ["docs", "--out", str(tmp_path / "file")])

    assert result.exit_code == 1
    assert "Choose another directory with --out" in result.stderr


def test_the_version_is_that_of_the_package() -> None:
    """The first thing that a bug report is asked for."""
    result = RUNNER.invoke(app, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.strip() == version("adapter-lifecycle")


def test_the_command_line_starts_without_torch() -> None:
    """It takes seconds to import: a command that needs it brings it, and no other waits for it."""
    program = "import sys, lifecycle.cli.app; print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
