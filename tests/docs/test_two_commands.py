"""The newcomer's way: `make demo`, then `make report`, which audits the log of the demo and draws it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.auditing.logs import good_log
from tests.docs.blocks import ROOT

MAIN = "import sys; sys.argv[0] = 'adapter-lifecycle'; from lifecycle.cli.app import main; main()"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make takes for an environment in which the project is installed: this one, under another name."""
    folder = tmp_path_factory.mktemp("venv")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text("")
    command = folder / "bin" / "adapter-lifecycle"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{MAIN}" "$@"\n')
    command.chmod(0o755)
    (folder / ".demo").touch()
    return folder


def make(*words: str) -> tuple[int, str]:
    """The exit code of make, and all that it says."""
    told = {"PYTHONPATH": str(ROOT)} | {name: one for name, one in os.environ.items() if not name.startswith("MAKE")}
    ended = subprocess.run(
        ["make", "-s", "-C", str(ROOT), *words],  # noqa: S607 - the make that the README asks for
        env=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def report(venv: Path, out: Path) -> tuple[int, str]:
    """``make report`` of what lies in this folder."""
    return make("report", f"VENV={venv}", f"DEMO_OUT={out}")


def test_a_report_says_what_the_audit_found_and_where_the_page_lies(venv: Path, tmp_path: Path) -> None:
    """Nothing, for a good log."""
    log = good_log(tmp_path / "audit.jsonl")

    code, said = report(venv, tmp_path)

    assert code == 0
    assert f"audit: {log}\n" in said
    assert ", 0 violations\n" in said
    assert f"file://{tmp_path}/report.html\n" in said
    assert (tmp_path / "report.html").is_file()


def test_a_violation_fails_the_command_and_the_page_is_drawn_all_the_same(venv: Path, tmp_path: Path) -> None:
    """Who looks for what went wrong needs the page the most."""
    log = good_log(tmp_path / "audit.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:20] + lines[21:]))

    code, said = report(venv, tmp_path)

    assert code != 0
    assert f"{log}:21: sequence: " in said
    assert (tmp_path / "report.html").is_file()


def test_the_logs_of_the_newest_run_are_taken(venv: Path, tmp_path: Path) -> None:
    """One a rank; an earlier run, or one with more ranks, may have left others beside them."""
    ranks = [good_log(tmp_path / f"audit.rank{rank}.jsonl") for rank in range(2)]
    old = good_log(tmp_path / "audit.jsonl")
    old.write_bytes(old.read_bytes().replace(b'"run":"good"', b'"run":"old"'))
    more = Path(shutil.copy(old, tmp_path / "audit.rank2.jsonl"))
    for path in (old, more):
        os.utime(path, (1, 1))

    _, said = report(venv, tmp_path)

    assert f"audit: {ranks[0]} {ranks[1]}\n" in said


def test_without_a_log_the_command_says_how_to_get_one(venv: Path, tmp_path: Path) -> None:
    """And writes nothing."""
    code, said = report(venv, tmp_path)

    assert code != 0
    assert f"there is no log in {tmp_path}: make demo writes one" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [("", "demo-out"), ("--turns 4 --out here", "here"), ("--out=there --ranks 4", "there"), ("--out a --out b", "b")],
)
def test_demo_and_report_mean_the_same_folder(venv: Path, arguments: str, folder: str) -> None:
    """Where the arguments of the demo say it, the last of them; and the demo says what to do next."""
    _, said = make("-n", "demo", f"VENV={venv}", f"DEMO_ARGS={arguments}")
    _, drawn = make("-n", "report", f"VENV={venv}", f"DEMO_ARGS={arguments}")

    assert f"adapter-lifecycle demo --out {folder} {arguments}".strip() in said
    assert "next: make report" + (f" DEMO_OUT={folder}" if folder != "demo-out" else "") in said
    assert f"--out {folder}/report.html" in drawn


@pytest.mark.parametrize("python", ["python3.99", "old-python"])
def test_a_python_that_is_missing_or_too_old_is_named(tmp_path: Path, python: str) -> None:
    """With what to do; and no half of an environment is left, which the next time would pass for a whole one."""
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    program = str(old) if python == old.name else python

    code, said = make(f"{tmp_path}/venv/bin/python", f"VENV={tmp_path}/venv", f"PYTHON={program}")

    assert code != 0
    assert f"{program} is not there, or older than Python 3.11: name another with make PYTHON=..." in said
    assert not (tmp_path / "venv").exists()


def test_an_environment_that_could_not_be_made_whole_is_removed(tmp_path: Path) -> None:
    """As where the package for environments is missing: python is there, and pip is not."""
    half = tmp_path / "half-python"
    half.write_text('#!/bin/sh\ntest "$1" = -c && exit 0\nmkdir -p "$3/bin"; touch "$3/bin/python"; exit 1\n')
    half.chmod(0o755)

    code, _ = make(f"{tmp_path}/venv/bin/python", f"VENV={tmp_path}/venv", f"PYTHON={half}")

    assert code != 0
    assert not (tmp_path / "venv").exists()
