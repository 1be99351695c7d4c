"""SIGKILL at random points of a trainer's cycles: the next process starts cleanly in the same directory (FB-20)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lifecycle.audit.log import AuditLog
from tests.lifecycle.faulted_events import readable_bytes
from tests.lifecycle.forked import SETTINGS, Forked, live, restart, trainer

KILLS = 10
POINTS = ("starts", "sleeps", "offloads", "wakes", "loads", "loads")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Those that a failed test has not killed."""
    yield
    for one in tuple(Forked.living):
        one.kill()


def content(folder: Path, names: list[str]) -> dict[str, tuple[int, bytes]]:
    """Inode and bytes of files."""
    return {name: ((folder / name).stat().st_ino, (folder / name).read_bytes()) for name in names}


def kill_one(name: str, folder: Path, draw: random.Random) -> str:
    """Kill a trainer somewhere in its cycles. Says where, and which files it has left."""
    point, delay = draw.choice(POINTS), draw.uniform(0, 0.06)
    victim = Forked(partial(live, name, folder, 1000))
    victim.wait_for(point)
    time.sleep(delay)
    victim.kill()
    left = sorted(f"{path.stem[:9]}{path.suffix}" for path in folder.iterdir() if path.is_file())
    return f"killed {delay:.3f} s after it said {point!r}; files: {left}"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_trainer_killed_anywhere_in_its_cycles_leaves_a_clean_restart_and_its_neighbours_files_alone(
    name: str, tmp_path: Path
) -> None:
    """Also within the write of a base file or a backup: leftovers go, right bytes come, held files stay as they are."""
    draw = random.Random(name)  # noqa: S311 - points in time, no secret
    right = readable_bytes(trainer(name, tmp_path / "undisturbed"))
    folder = tmp_path / "shared"
    neighbour = Forked(partial(live, "reference on disk, trainable", folder, 1))
    held = neighbour.wait_for("is done")["files"]
    theirs = content(folder, held)
    for _ in range(KILLS):
        print(kill_one(name, folder, draw))
        successor = Forked(partial(restart, name, folder, held))
        found = successor.wait_for("is right")["bytes"]
        successor.kill()
        assert found == right
        assert content(folder, held) == theirs
    neighbour.kill()
    last = Forked(partial(restart, name, folder, []))

    assert last.wait_for("is right")["bytes"] == right
    last.kill()


def test_the_log_of_a_killed_trainer_is_continued_and_says_what_was_under_way(tmp_path: Path) -> None:
    """A began without an end is the evidence, and the next session says so."""
    log, kills = tmp_path / "audit" / "log.jsonl", 6
    for delay_ms in range(kills):
        victim = Forked(partial(live, "lean on disk", tmp_path, 1000))
        victim.wait_for("loads")
        victim.wait_for("offloads")
        time.sleep(delay_ms / 1000)
        victim.kill()
    AuditLog(log).close()
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    unfinished = [one["trigger"] for one in records[-1]["unfinished"]]

    print(f"under way when it was killed: {unfinished}")
    assert records[-1]["restart"]
    assert len(unfinished) <= kills
    assert [one["sequence"] for one in records] == list(range(1, len(records) + 1))
    assert set(unfinished) <= {"offload", "wake_up", "begin_step", "trained", "sleep"}
