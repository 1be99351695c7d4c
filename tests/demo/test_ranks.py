"""The demo on many processes: one log a rank, and all say the same; whatever ends one rank ends them all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from lifecycle.audit.read import read_log
from lifecycle.audit.verify import verify_chain
from lifecycle.demo.errors import RankEnded
from lifecycle.demo.options import DemoOptions, Training
from lifecycle.demo.ranks import compare_logs, run_ranks
from lifecycle.demo.report import LOGPROB_TOLERANCE
from lifecycle.demo.run import run_demo
from lifecycle.errors import ConfigError

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
PROGRAM = "from lifecycle.cli.app import main; main()"
LOGS = [f"audit.rank{rank}.jsonl" for rank in range(4)]
SMALL = Training(prompts=2, prompt_tokens=4, new_tokens=4, inner_steps=1)


def command(*arguments: object) -> subprocess.Popen[str]:
    """The command as a process of its own."""
    # A shell's background jobs ignore the interrupt and hand that down; this one is to hear it wherever it runs.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    return subprocess.Popen(
        [sys.executable, "-c", f"{listen}; {PROGRAM}", "demo", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run of four ranks."""
    return tmp_path_factory.mktemp("four")


@pytest.fixture(scope="module")
def four(out: Path) -> dict[str, Any]:
    """What the command prints after three turns on four ranks."""
    running = command("--ranks", 4, "--turns", 3, "--json", "--out", out)
    printed, errors = running.communicate(timeout=280)
    assert running.returncode == 0, errors
    found: dict[str, Any] = json.loads(printed)
    return found


def test_the_logs_of_all_ranks_have_the_same_projection(four: dict[str, Any], out: Path) -> None:
    """One log a rank, each whole; every transition of the run is in what was compared."""
    logs = [read_log(out / name) for name in LOGS]
    moved = [one["trigger"] for one in logs[0] if one["event"] == "lifecycle.moved"]

    assert (four["ranks"]["count"], four["ranks"]["difference"]) == (4, None)
    assert four["ranks"]["audits"] == [str(out / name) for name in LOGS]
    assert sorted(one.name for one in out.iterdir()) == LOGS
    assert [verify_chain(one) for one in logs] == [[]] * 4
    assert [{one["rank"] for one in log} for log in logs] == [{0}, {1}, {2}, {3}]
    assert [moved.count(event) for event in ("sleep", "offload", "update_weights", "wake_up")] == [3] * 4
    assert four["ranks"]["records"] == 2 * len(moved)


def test_four_ranks_see_the_rollouts_of_one_process(four: dict[str, Any], tmp_path: Path) -> None:
    """The batch is the same, whoever samples which of its rows: the first turn's mean rewards are equal."""
    alone = run_demo(DemoOptions(turns=1, out=tmp_path), lambda *_: None)

    assert four["turns"][0]["rewards"] == alone.turns[0].rewards
    assert four["turns"][0]["host_bytes"] > 3 * alone.turns[0].host_bytes
    assert max(turn["logprob_diff"] for turn in four["turns"]) <= LOGPROB_TOLERANCE
    assert min(turn["logprob_diff"] for turn in four["turns"]) > 0


def test_a_log_that_was_written_otherwise_is_found(four: dict[str, Any], out: Path, tmp_path: Path) -> None:
    """The comparison looks at this run's records of every rank, and says where the first log parts."""
    run = str(read_log(out / LOGS[0])[0]["run"])
    for name in LOGS:
        text = (out / name).read_text()
        changed = text.replace('"trigger":"offload"', '"trigger":"wake_up"') if name == LOGS[2] else text
        (tmp_path / name).write_text(changed)
    found = compare_logs(tmp_path, 4, run)

    assert compare_logs(out, 4, run).difference is None
    assert found.difference is not None
    assert found.difference.startswith("of ranks 0 and 2: record ")
    assert found.difference.endswith("trigger: 'offload' and 'wake_up'")
    assert "4 ranks: projections differ, of ranks 0 and 2" in str(found)


def test_a_rank_that_has_other_options_is_named(tmp_path: Path) -> None:
    """The ranks find it out before the first transition acts; the error is the one that all of them raise."""
    options, before = DemoOptions(ranks=2, turns=2, training=SMALL, out=tmp_path), psutil.Process().children()
    differs = r"^ranks disagree at .*, nothing was done: .*; strategy: rank 0 'lean', rank 1 'duplicate'"
    with pytest.raises(RankEnded, match=differs) as error:
        run_ranks(options, lambda *_: None, unlike={1: replace(options, strategy="duplicate")})

    assert error.value.said_by_all
    assert set(psutil.Process().children()) <= set(before)


def test_what_no_rank_can_work_with_is_a_bad_option(tmp_path: Path) -> None:
    """The rank's own words, once, and no file."""
    options = DemoOptions(ranks=2, model=tmp_path / "nowhere", out=tmp_path / "out")
    with pytest.raises(ConfigError, match=r"^--model \S*nowhere is no model directory"):
        run_ranks(options, lambda *_: None)

    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A long run of two ranks with files on disk, in the middle of it, and the processes of its ranks."""
    found = command("--ranks", 2, "--turns", 1000, "--offload-target", "disk", "--out", tmp_path)
    log = tmp_path / LOGS[0]
    while found.poll() is None and not (log.exists() and log.read_text().count('"wake_up"') >= 2):
        time.sleep(0.05)
    ranks = psutil.Process(found.pid).children() if found.poll() is None else []
    try:
        yield found, ranks
    finally:
        found.kill()
        found.communicate()
        for one in ranks:
            if one.is_running():
                one.kill()


def _nothing_is_left(ranks: list[psutil.Process], folder: Path) -> bool:
    """No process, and of the files only the logs."""
    _, alive = psutil.wait_procs(ranks, timeout=30)
    return len(ranks) == 2 and alive == [] and sorted(one.name for one in folder.iterdir()) == LOGS[:2]


def test_a_rank_that_is_killed_ends_the_run(
    running: tuple[subprocess.Popen[str], list[psutil.Process]], tmp_path: Path
) -> None:
    """The error says which rank, and how; not what the others made of it."""
    run, ranks = running
    ranks[1].kill()
    output, errors = run.communicate(timeout=60)

    assert (run.returncode, output) == (1, ""), errors
    assert errors.startswith("error: rank 1: it was ended by signal 9 (SIGKILL)")
    assert len(errors.splitlines()) == 1
    assert _nothing_is_left(ranks, tmp_path)


def test_an_interrupt_ends_every_rank(
    running: tuple[subprocess.Popen[str], list[psutil.Process]], tmp_path: Path
) -> None:
    """One line, which names the log of rank 0; what ranks had on disk goes with them."""
    run, ranks = running
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=60)

    assert (run.returncode, output) == (130, ""), errors
    assert errors == f"interrupted; what was done is in {tmp_path / LOGS[0]}\n"
    assert _nothing_is_left(ranks, tmp_path)


def test_no_rank_outlives_a_command_that_was_killed(
    running: tuple[subprocess.Popen[str], list[psutil.Process]], tmp_path: Path
) -> None:
    """Each notices that nobody holds its pipe any more, wherever it waits, and takes its files along."""
    run, ranks = running
    run.kill()
    run.wait(30)

    assert _nothing_is_left(ranks, tmp_path)
