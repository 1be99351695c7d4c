"""Programs that are asked may do what they like: an answer, or why there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from threading import Barrier, Lock

import pytest

from lifecycle.doctor import asking
from lifecycle.doctor.asking import ask


def _program(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    return "program"


def test_the_last_line_is_the_answer(tmp_path: Path) -> None:
    """Whatever a package prints before; arguments and environment are passed on."""
    name = _program(tmp_path, 'import json, os, sys\nprint("noise")\nprint(json.dumps({sys.argv[1]: os.environ["X"]}))')

    assert ask(name, "a", env={"X": "b"}, folder=tmp_path).said == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os; os._exit(3)", "its process ended with 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process was ended by SIGSEGV"),
        ("raise ImportError('no such thing')", "its process ended with 1: ImportError: no such thing"),
        ("raise OSError('http://a:hunter2@host/')", "its process ended with 1: OSError: http://[redacted]@host/"),
        ("print('no answer')", "it gave no answer"),
        ("print(1)", "it gave no answer"),
        ("", "it gave no answer"),
    ],
)
def test_a_program_that_says_nothing_says_why(text: str, why: str, tmp_path: Path) -> None:
    """Ended by a signal, by itself or by an error, of which the last line counts, without secrets."""
    answer = ask(_program(tmp_path, text), folder=tmp_path)

    assert (answer.said, answer.why) == ({}, why)


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    """After its time."""
    name = _program(tmp_path, "import time\ntime.sleep(600)")

    assert ask(name, timeout_s=0.2, folder=tmp_path).why == "it did not end within 0.2 s"


def test_a_process_that_cannot_be_started_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as without an interpreter."""
    monkeypatch.setattr(asking.sys, "executable", "/no/such/python")

    assert ask("gloo").why.startswith("no process could be started: ")


def test_what_lies_beside_a_program_is_not_what_it_imports(tmp_path: Path) -> None:
    """A program has the name of what it asks, such as ``cuda``, which is a package too."""
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    name = _program(tmp_path, 'import json\nprint(json.dumps({"x": 1}))')

    assert ask(name, folder=tmp_path).said == {"x": 1}


def test_no_more_than_two_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may import what takes gigabytes."""
    running, most, seen, both = 0, 0, Lock(), Barrier(2)

    def run(*_: object) -> CompletedProcess[bytes]:
        nonlocal running, most
        with seen:
            running += 1
            most = max(most, running)
        both.wait(timeout=60)  # two have to be here together; a third would be counted
        with seen:
            running -= 1
        return CompletedProcess([], 0, b"{}", b"")

    monkeypatch.setattr(asking, "_run", run)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, ["gloo"] * 8))

    assert most == 2
    assert {one.why for one in answers} == {"it gave no answer"}
