"""``adapter-lifecycle doctor``: its table, its JSON and its exit code, made up and for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lifecycle.doctor as package
from lifecycle.cli.app import app
from lifecycle.doctor import Asked, Line, Status
from lifecycle.errors import ConfigError

RUNNER = CliRunner()
LINES = [
    Line("cuda", Status.OK, "one device"),
    Line("ray", Status.MISSING, "not installed", "pip install it"),
    Line("gloo", Status.BROKEN, "[red]no loopback[/red]", "mend it"),
    Line("disk_dir", Status.WARNING, "in memory", "name a disk"),
    Line("engine", Status.BROKEN, "nobody answers", "start it"),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What the command asked for; it is answered with :data:`LINES`."""
    seen: list[Asked] = []

    def examine(one: Asked) -> list[Line]:
        seen.append(one)
        return LINES

    monkeypatch.setattr(package, "examine", examine)
    return seen


def _run(*arguments: str) -> Any:
    return RUNNER.invoke(app, ["doctor", *arguments], env={"COLUMNS": "160", "ADAPTER_LIFECYCLE_ENGINE_TOKEN": "t"})


def test_what_is_broken_and_nobody_asked_for_does_not_fail(asked: list[Asked]) -> None:
    """Every line is in the table, as it is."""
    result = _run()

    assert result.exit_code == 0
    for line in LINES:
        assert all(text in result.stdout for text in (line.check, line.status, line.found, line.todo))


def test_a_narrow_terminal_cuts_no_remedy_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is longer than its column goes on in the next line: what to do has to be whole in a pipe, too."""
    remedy = "install-" + "x" * 60 + "-end"
    monkeypatch.setattr(package, "examine", lambda _: [Line("ray", Status.MISSING, "f" * 90, remedy)])

    printed = RUNNER.invoke(app, ["doctor"], env={"COLUMNS": "60"}).stdout

    assert "\N{HORIZONTAL ELLIPSIS}" not in printed
    assert printed.count("x") == remedy.count("x")


def test_what_others_say_gives_the_terminal_no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine's version, say, is shown with its control characters as escapes."""
    line = Line("engine", Status.OK, "vLLM \x1b]0;mine\x07 \u202e", "\x1b[2J")
    monkeypatch.setattr(package, "examine", lambda _: [line])

    result = _run()

    assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout)
    assert r"vLLM \x1b]0;mine\x07 \u202e" in result.stdout


def test_json_is_a_list_of_lines(asked: list[Asked]) -> None:
    """And nothing else is printed."""
    assert json.loads(_run("--json").stdout) == [line.told() for line in LINES]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--require", "cuda,disk_dir"], 0),
        (["--require", "cuda, ray"], 1),
        (["--require", "gloo"], 1),
        (["--disk-dir", "/d"], 0),
        (["--engine-url", "http://127.0.0.1:1"], 1),
    ],
)
def test_what_was_asked_for_and_cannot_be_used_fails(arguments: list[str], code: int, asked: list[Asked]) -> None:
    """Required by name, or named as an engine or a directory."""
    assert _run(*arguments).exit_code == code


def test_what_is_named_is_handed_on_with_the_token(asked: list[Asked]) -> None:
    """Which stands in the environment, not on the command line."""
    _run("--engine-url", "u", "--disk-dir", "d", "--audit-dir", "a")

    assert asked == [Asked("u", "t", "d", "a")]


def test_a_check_that_there_is_not_is_an_error_of_the_library(asked: list[Asked]) -> None:
    """A spelling mistake is not a requirement that is met; the checks are named."""
    result = _run("--require", "rai")

    assert isinstance(result.exception, ConfigError)
    assert "cuda, disk_dir, engine, gloo, ray" in str(result.exception)


@pytest.mark.timeout(300)
def test_the_real_one_looks_at_everything(tmp_path: Path) -> None:
    """In a process of its own, as a user runs it: every line is whole, and what the tests need is usable."""
    program = "from lifecycle.cli.app import main; main()"
    command = [sys.executable, "-c", program, "doctor", "--json", "--disk-dir", str(tmp_path)]
    done = subprocess.run([*command, "--require", "gloo,peft"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = {one["check"]: one for one in json.loads(done.stdout)}
    assert {"cuda", "torch_memory_saver/hook", "pinned_memory", "disk_dir", "torch", "megatron-core"} <= set(lines)
    for line in lines.values():
        assert list(line) == ["check", "status", "found", "todo"]
        assert line["status"] in set(Status)
        assert line["found"]
        assert line["todo"] or line["status"] == "ok"
        assert "could not be looked at" not in line["found"]
