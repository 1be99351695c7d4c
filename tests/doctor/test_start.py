"""The command line begins where packages are broken, as far as ``doctor`` and a clear error need it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = "from lifecycle.cli.start import main; main()"
ROOT = Path(__file__).parents[2]


def _run(folder: Path, *arguments: str, program: str = MAIN) -> subprocess.CompletedProcess[str]:
    """The command line, with modules of this folder in the place of packages."""
    where = os.pathsep.join((str(folder), str(ROOT)))
    command = [sys.executable, "-c", program, *arguments]
    env = {**os.environ, "PYTHONPATH": where}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("raises", ["OSError('libcudart.so.13: cannot open')", "ImportError('libcudart.so.13')"])
def test_without_torch_a_command_says_what_is_broken_and_who_says_more(tmp_path: Path, raises: str) -> None:
    """On two lines, with exit code 1: no traceback."""
    (tmp_path / "torch.py").write_text(f"raise {raises}")

    done = _run(tmp_path, "demo", "--out", str(tmp_path / "out"))

    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: a package cannot be imported: ")
    assert "libcudart.so.13" in first
    assert second == "adapter-lifecycle doctor says which, and why"


def test_an_error_that_is_of_no_import_is_a_traceback_as_ever(tmp_path: Path) -> None:
    """It is a fault of ours, and nobody is sent to the doctor with it."""
    program = f"""
import lifecycle.cli.app
lifecycle.cli.app.app = lambda: 1 / 0
{MAIN}
"""
    done = _run(tmp_path, "audit", program=program)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ZeroDivisionError")


@pytest.mark.timeout(300)
def test_the_doctor_runs_where_torch_is_broken(tmp_path: Path) -> None:
    """It says so of torch and of what needs it, and of nothing else; a requirement that is not met is an exit code."""
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.13: cannot open')")

    done = _run(tmp_path, "doctor", "--json", "--require", "torch", "--disk-dir", str(tmp_path))

    lines = {one["check"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 1
    assert "libcudart.so.13" in lines["cuda"]["found"]
    assert "libcudart.so.13" in lines["torch"]["found"]
    assert {lines[one]["status"] for one in ("disk_dir", "typer", "structlog", "expandable_segments")} == {"ok"}


def test_the_doctor_imports_nothing_that_may_hang(tmp_path: Path) -> None:
    """Torch is asked in other processes alone, which are ended after a time."""
    program = f"""
import sys
import lifecycle.doctor
lifecycle.doctor.examine = lambda asked: []
sys.argv[1:] = ["doctor", "--json"]
try:
    {MAIN.replace("; ", chr(10) + "    ")}
finally:
    print({{"torch", "transitions", "structlog", "msgspec"}} & set(sys.modules))
"""
    assert _run(tmp_path, program=program).stdout.split() == ["[]", "set()"]


def test_a_check_that_there_is_not_is_said_without_a_traceback(tmp_path: Path) -> None:
    """Whichever way the command was begun."""
    program = f"import lifecycle.doctor as d; d.examine = lambda asked: []\n{MAIN}"

    done = _run(tmp_path, "doctor", "--require", "rai", program=program)

    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no check 'rai'")


def test_other_commands_run_as_ever(tmp_path: Path) -> None:
    """With their errors."""
    assert {"explain", "doctor", "audit"} <= set(_run(tmp_path, "--help").stdout.split())
    done = _run(tmp_path, "clean", str(tmp_path / "none"))
    assert (done.returncode, done.stderr[:7]) == (1, "error: ")


@pytest.mark.timeout(300)
def test_whatever_a_page_imports_from_may_be_imported_first() -> None:
    """Public names come when they are used, so that no order of imports may be the only one that works."""
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
    named = {name for page in pages for name in re.findall(r"(?:from|import) (lifecycle[\w.]+)", page.read_text())}
    program = f"""
import os, sys
import torch
for name in {sorted(named)!r}:
    child = os.fork()
    if child == 0:
        __import__(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)

    assert len(named) > 10
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["doctor", "clean"])
def test_what_cannot_be_written_is_an_error_of_the_system(command: str, tmp_path: Path) -> None:
    """A full disk, or a reader that is gone: one line and exit code 2, also where the doctor begins alone."""
    program = f"""
import lifecycle.doctor as d, sys
d.examine = lambda asked: []
sys.stdout = open('/dev/full', 'w')
{MAIN}
"""
    done = _run(tmp_path, command, *([str(tmp_path)] if command == "clean" else []), program=program)

    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: [Errno 28] No space left on device"]


@pytest.mark.parametrize("command", ["report", "diagram", "clean", "audit"])
def test_an_error_of_any_command_is_no_command_to_the_terminal(command: str, tmp_path: Path) -> None:
    """Whatever is in it: names of files, and what stands in them."""
    done = _run(tmp_path, command, "a\x1b]0;b\x07")

    assert done.returncode in {1, 2}
    assert r"a\x1b]0;b\x07" in done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())


def test_the_doctor_spells_what_a_terminal_cannot_show(tmp_path: Path) -> None:
    """Names that are no ASCII, where the terminal knows nothing else."""
    program = f"""
import lifecycle.doctor as d
d.examine = lambda asked: [d.Line("engine", d.Status.OK, "a\\u20acb\\x1bc")]
{MAIN}
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    words = [sys.executable, "-c", program, "doctor"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)

    assert (done.returncode, done.stderr) == (0, "")
    assert r"a\u20acb\x1bc" in done.stdout


@pytest.mark.parametrize("command", ["doctor", "audit"])
def test_an_interrupt_while_packages_are_imported_is_no_traceback(command: str, tmp_path: Path) -> None:
    """That takes seconds; a command that runs ends in the same way."""
    program = f"""
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name in ("lifecycle.cli.app", "lifecycle.cli.doctor"):
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
{MAIN}
"""
    done = _run(tmp_path, command, program=program)

    assert (done.returncode, done.stderr) == (130, "")
