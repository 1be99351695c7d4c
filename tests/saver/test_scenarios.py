"""One table of scenarios, on the compiled torch_memory_saver 0.0.10 and on the host arena: they do the same."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from torch import Tensor

from lifecycle.saver.arena_port import ArenaPort
from tests.saver.play import ENDS, Player, calls_of, disk_with_room_again
from tests.saver.proc import PAGE_BYTES, run_child, writable
from tests.saver.real_port import Host
from tests.saver.real_scenarios import HOSTS
from tests.saver.scenarios import SCENARIOS

REAL = [(name, host) for name, scenario in SCENARIOS.items() for host in HOSTS if host in scenario.hosts]
FATAL = [name for name, scenario in SCENARIOS.items() if scenario.fatal]


class ArenaStage(ArenaPort):
    """The arena as a stage."""

    def __init__(self, capacity_bytes: int | None, folder: Path) -> None:
        self.host_is_full = False
        super().__init__(capacity_bytes, str(folder), faults=self.fault)

    def fault(self, operation: str, tag: str) -> None:
        """The host has no memory for a backup."""
        if self.host_is_full and operation == "backup_write":
            raise OSError(errno.ENOMEM, "Cannot allocate memory")

    def mapped(self, allocation: Tensor) -> bool:
        return writable(allocation.data_ptr())

    def use_host(self, host: Host) -> None:
        """The arena has one kind of host memory."""

    def fill_host(self) -> None:
        self.host_is_full = True


def play_on_the_arena(name: str, folder: Path) -> tuple[list[str], str]:
    """What is seen, and the picture at the end."""
    stage = ArenaStage(SCENARIOS[name].device_bytes, folder)
    try:
        with disk_with_room_again():
            player = Player(stage, folder, PAGE_BYTES)
            return list(player.play(SCENARIOS[name])), player.picture()
    finally:
        stage.close()


@pytest.fixture(scope="module")
def real(stub: Path) -> dict[tuple[str, str], dict[str, object]]:
    """What the real library does in every scenario."""
    child = run_child("from tests.saver.real_scenarios import main; import sys; main(sys.argv[1])", str(stub))
    assert child.returncode == 0, child.stdout + child.stderr
    rows = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    return {(row["name"], row["host"]): row for row in rows}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_arena_does_what_the_table_says(name: str, tmp_path: Path) -> None:
    """Bytes, mapped memory, backups, files and refusals, call by call."""
    seen, _ = play_on_the_arena(name, tmp_path)

    assert seen == [picture for _, picture in calls_of(SCENARIOS[name])]


@pytest.mark.parametrize(("name", "host"), REAL)
def test_the_real_library_does_what_the_table_says(
    name: str, host: str, real: dict[tuple[str, str], dict[str, object]]
) -> None:
    """The same pictures, hence the same as the arena; where the arena refuses, the process has ended (FB-13)."""
    assert real[name, host]["seen"] == [picture for _, picture in calls_of(SCENARIOS[name])]


@pytest.mark.parametrize("name", FATAL)
def test_what_ends_the_process_changes_nothing_on_the_arena(name: str, tmp_path: Path) -> None:
    """After the refusal the picture is the one before it."""
    seen, after = play_on_the_arena(name, tmp_path)

    assert seen[-1] == ENDS
    assert after == seen[-2]


def test_the_library_leaves_its_files_behind_and_the_arena_does_not(
    tmp_path: Path, real: dict[tuple[str, str], dict[str, object]]
) -> None:
    """The one difference at the end of a process that lived: a disk backup of the real library outlives it."""
    name = "the file stays after resume and is written again"
    play_on_the_arena(name, tmp_path)

    assert real[name, "pinned"]["left"] == 2
    assert list(tmp_path.iterdir()) == []
