"""The command: how it stands now, a line for each thing that happens, a terminal that is redrawn, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lifecycle import AuditLog, LifecycleError
from lifecycle.cli.app import app
from tests.watch.live import Live
from tests.watch.terminal import ROOT, WAIT_S, Terminal, command

ALT_SCREEN, MAIN_SCREEN, SHOWN_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A trainer with a log, after a turn."""
    with Live(tmp_path / "audit.jsonl") as live:
        live.turn()
        yield live


def run(*words: object) -> tuple[int, str, str]:
    """Exit code, output and standard error of the command."""
    done = CliRunner().invoke(app, ["watch", *map(str, words)], env={"COLUMNS": "120"})
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.stdout, done.stderr


def test_once_prints_how_it_stands_and_ends_with_0(live: Live) -> None:
    """Without a command to the terminal."""
    code, out, err = run("--once", live.log.path)

    assert (code, err) == (0, "")
    assert out.startswith("WELL  actor, 1 rank, run r  ")
    assert "awake" in out
    assert "\x1b" not in out


def test_once_ends_with_1_where_a_trainer_is_faulted(live: Live) -> None:
    """Of any rank."""
    live.fault()

    code, out, _ = run("--once", live.log.path)

    assert code == 1
    assert " FAULTED  every event is refused until recover(): offload: " in out


def test_once_ends_with_1_where_the_last_transition_failed(live: Live) -> None:
    """And with 0 again after the next one that moved."""
    live.world.train("A")
    live.engine.fails_at = "commit"
    with pytest.raises(LifecycleError):
        live.world.trainer.update_weights([live.engine])
    failed = run("--once", live.log.path)
    live.engine.fails_at = ""
    live.turn()

    assert failed[0] == 1
    assert " FAILED  update_weights failed and was undone" in failed[1]
    assert run("--once", live.log.path)[0] == 0


def test_once_ends_with_1_where_the_log_is_older_than_asked(live: Live) -> None:
    """For a check that runs every minute."""
    assert run("--once", "--max-age", 3600, live.log.path)[0] == 0
    code, out, _ = run("--once", "--max-age", 0, live.log.path)

    assert code == 1
    assert "OLD" in out


@pytest.mark.parametrize("held", [None, b"", b"some text\n"])
def test_once_ends_with_2_where_a_log_cannot_be_read(live: Live, tmp_path: Path, held: bytes | None) -> None:
    """Not there, empty or no log: nobody waits, and the error names it."""
    path = tmp_path / "other.jsonl"
    if held is not None:
        path.write_bytes(held)

    code, out, err = run("--once", live.log.path, path)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: audit log {path}: ")


def test_json_says_the_same_for_programs(live: Live) -> None:
    """Texts as they are, sizes in bytes."""
    live.fault()

    code, out, _ = run("--once", "--json", live.log.path)

    told = json.loads(out)
    (rank,) = told["ranks"]
    assert (code, told["well"], told["notices"][0]["concern"]) == (1, False, "faulted")
    assert (rank["state"], rank["rank"], rank["file"]) == ("faulted", 0, str(live.log.path))
    assert rank["held_bytes"] == live.world.trainer.ledger.held.by_place()
    assert {one["name"]: one["versions_behind"] for one in rank["adapters"]} == {"A": {"E0": 0}, "B": {"E0": 0}}
    assert rank["last"]["outcome"] == "failed"


def test_json_without_once_is_refused(live: Live) -> None:
    """As any command that is used otherwise than it says."""
    assert run("--json", live.log.path)[0] == 2


Piped = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def piped() -> Iterator[Piped]:
    """The command with a pipe instead of a terminal; it is ended at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object, **environment: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                command("watch", *map(str, words)),
                cwd=ROOT,
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        for stream in (one.stdout, one.stderr):
            assert stream is not None
            stream.close()


def lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """Lines of the output up to the first in which that stands."""
    assert process.stdout is not None
    found: list[str] = []
    for line in process.stdout:
        found.append(line.rstrip("\n"))
        if wanted in line:
            return found
    raise AssertionError(found)


def test_into_a_pipe_each_event_is_a_line(tmp_path: Path, piped: Piped) -> None:
    """From a file that is not there yet on; with why and what to do; no control codes, even if colours are forced."""
    path = tmp_path / "audit.jsonl"
    process = piped(path, FORCE_COLOR="1")
    waiting = lines_until(process, "WAITING")
    with Live(path) as live:
        live.turn()
        live.world.trainer.sleep()
        with live.world.trainer.weights("reader"), pytest.raises(LifecycleError):
            live.world.trainer.offload()
        live.world.trainer.wake_up()
        live.fault()
        lines = lines_until(process, "FAULTED: ")
    process.send_signal(signal.SIGINT)

    assert process.wait(WAIT_S) == 130
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert f"{path} WAITING: " in waiting[-1]
    assert all(line.isprintable() for line in lines)
    text = "\n".join(lines)
    for wanted in (
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} sleep \(quiesces\): awake -> sleeping in \d+\.\d ms$",
        r"update_weights \(sends\): offloaded-cpu in .* ms, sync .* KiB, to E0: \d+ groups$",
        r"offload REFUSED in sleeping: no-lease-over-live-weights: .*reader.*; to do: .+$",
        r"offload FAILED in sleeping, now faulted: .*ZeroDivisionError",
    ):
        assert re.search(wanted, text, re.MULTILINE), wanted


def test_a_pipe_that_is_closed_ends_it_without_a_traceback(tmp_path: Path, piped: Piped) -> None:
    """As where `head` has seen enough."""
    with AuditLog(tmp_path / "audit.jsonl") as log:
        process = piped(log.path)
        lines_until(process, "begins")
        assert process.stdout is not None
        process.stdout.close()
        for number in range(3):
            log.write("lifecycle.noted", {"note": f"note {number}"})
        process.wait(WAIT_S)

    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_a_terminal_is_redrawn_and_given_back_as_it_was(tmp_path: Path) -> None:
    """A run that begins, goes on and is interrupted: code 130, and the last picture stays."""
    path = tmp_path / "audit.jsonl"
    with Terminal(["watch", str(path)], columns=90, lines=40) as terminal:
        terminal.until(lambda text: "NOTHING YET" in text and "waiting for it" in text)
        with Live(path) as live:
            live.turn()
            terminal.until(lambda text: "at rest" in text and "engine" in text)
            live.world.trainer.sleep()
            terminal.until(lambda text: "sleeping" in text)
            live.fault_asleep()
            terminal.until(lambda text: "NOT WELL" in text)
            terminal.type("\x03")
            code = terminal.end()
    drawn, _, after = terminal.written.rpartition(MAIN_SCREEN)

    assert code == 130
    assert drawn.startswith(ALT_SCREEN)
    assert SHOWN_CURSOR in terminal.written[terminal.written.rindex("\x1b[?25l") :]
    assert "FAULTED" in after
    assert "Traceback" not in terminal.text
    assert "Aborted" not in terminal.text


def test_a_terminal_is_given_back_when_it_is_asked_to_end(live: Live) -> None:
    """SIGTERM: code 143."""
    with Terminal(["watch", str(live.log.path)]) as terminal:
        terminal.until(lambda text: "WELL" in text)
        terminal.process.terminate()
        code = terminal.end()

    assert code == 143
    assert MAIN_SCREEN in terminal.written


def test_no_colour_is_written_where_none_is_wanted(live: Live) -> None:
    """NO_COLOR; and no line is longer than the terminal is wide."""
    with Terminal(["watch", "--once", str(live.log.path)], columns=60, NO_COLOR="1") as terminal:
        code = terminal.end()

    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7])m", terminal.written)
    assert max(len(line) for line in terminal.text.splitlines()) <= 60


def test_colours_are_written_where_they_are_seen(live: Live) -> None:
    """The state has one."""
    with Terminal(["watch", "--once", str(live.log.path)]) as terminal:
        terminal.end()

    assert re.search(r"\x1b\[32mawake", terminal.written)


def test_a_terminal_that_knows_ascii_alone_gets_it(live: Live) -> None:
    """What it cannot show is spelled, and stops nothing."""
    words = command("watch", "--once", str(live.log.path))
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "120"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "\\u2026" in done.stdout


def test_an_error_commands_no_terminal(tmp_path: Path) -> None:
    """Neither does the name of a file."""
    code, _, err = run("--once", tmp_path / "a\x1b]0;b")

    assert code == 2
    assert err.rstrip("\n").isprintable()
