"""``adapter-lifecycle clean``: what it prints, removes and leaves."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from lifecycle.cli.app import app
from tests.base_file.world import base, names, obtain, opened

RUNNER = CliRunner()


def test_clean_removes_what_nobody_holds_and_says_so(tmp_path: Path) -> None:
    """A file in use is named and stays."""
    with opened(tmp_path, base(1)) as held, opened(tmp_path, base(2)) as file:
        file.close()
        result = RUNNER.invoke(app, ["clean", str(tmp_path)])

        assert result.exit_code == 0
        assert f"removed {file.path.name} ({file.size_bytes} bytes)" in result.output
        assert f"held    {held.path.name}" in result.output
        assert f"1 removed, {file.size_bytes} bytes; 1 in use" in result.output
        assert names(tmp_path) == [held.path.name]


def test_clean_of_an_empty_directory_is_no_error(tmp_path: Path) -> None:
    """There is nothing to do."""
    result = RUNNER.invoke(app, ["clean", str(tmp_path)])

    assert result.exit_code == 0
    assert "0 removed, 0 bytes; 0 in use" in result.output


def test_clean_does_not_make_a_directory(tmp_path: Path) -> None:
    """A mistyped name is an error."""
    result = RUNNER.invoke(app, ["clean", str(tmp_path / "typo")])

    assert result.exit_code == 1
    assert "is no directory" in result.output
    assert names(tmp_path) == []


def test_clean_ends_with_an_error_when_something_is_in_the_way(tmp_path: Path) -> None:
    """A link with the name of a base file is named and stays."""
    obtain(tmp_path, base()).close()
    link = tmp_path / f"base-{'c' * 64}.safetensors"
    link.symlink_to(tmp_path / "elsewhere")
    result = RUNNER.invoke(app, ["clean", str(tmp_path)])

    assert result.exit_code == 1
    assert f"skipped {link.name}: it is a link" in result.output
    assert names(tmp_path) == [link.name]
