"""What the operating system says about memory: a container's limit counts as much as the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle import Unchanged
from lifecycle.memory import cgroup, host
from tests.lifecycle.world import make_world

GIB = 1 << 30


def write(folder: Path, **files: object) -> None:
    """One control group with these files; a double underscore is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with control groups of version 2; this process is in the group ``job/rank``."""
    write(tmp_path, memory__max="max", memory__current=40 * GIB, membership="0::/job/rank")
    return tmp_path


def room(root: Path) -> int | None:
    """What the groups under *root* leave."""
    return cgroup.room_bytes(root, root / "membership")


def test_without_a_limit_there_is_none(root: Path) -> None:
    """``max`` is no number of bytes, and a group without the files has no limit of its own."""
    assert room(root) is None


def test_a_limit_leaves_what_is_not_used_yet(root: Path) -> None:
    """``memory.max`` less ``memory.current``."""
    write(root / "job/rank", memory__max=16 * GIB, memory__current=10 * GIB)

    assert room(root) == 6 * GIB


def test_the_tightest_group_above_counts(root: Path) -> None:
    """A group without a limit lies in one that has one."""
    write(root / "job/rank", memory__max=16 * GIB, memory__current=1 * GIB)
    write(root / "job", memory__max=20 * GIB, memory__current=18 * GIB)

    assert room(root) == 2 * GIB


def test_page_cache_that_is_dropped_first_is_room(root: Path) -> None:
    """A container that has read a checkpoint is full of it, and an offload must not be refused for that."""
    write(root / "job/rank", memory__max=16 * GIB, memory__current=16 * GIB)
    write(root / "job/rank", memory__stat=f"anon {4 * GIB}\ninactive_file {12 * GIB}")

    assert room(root) == 12 * GIB


def test_a_group_over_its_limit_has_no_room(root: Path) -> None:
    """A limit may be lowered below what is used; less than nothing is nothing."""
    write(root / "job/rank", memory__max=1 * GIB, memory__current=2 * GIB)

    assert room(root) == 0


def test_a_container_that_sees_the_hosts_path_finds_its_own_group_at_the_root(root: Path) -> None:
    """The path of the kernel's list does not exist there; the mount is the container's own group."""
    write(root, memory__max=8 * GIB, memory__current=5 * GIB, membership="0::/host/pod/container")

    assert room(root) == 3 * GIB


def test_version_1_is_read_too(root: Path) -> None:
    """Other names, a hierarchy of its own, and version 2 mounted beside it."""
    write(root, membership="9:cpu,memory:/job\n3:cpuset:/\n0::/")
    write(root / "memory/job", memory__limit_in_bytes=16 * GIB, memory__usage_in_bytes=12 * GIB)
    write(root / "memory/job", memory__stat=f"total_inactive_file {GIB}")

    assert room(root) == 5 * GIB


def test_a_system_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    """Nothing to read is no error."""
    assert room(tmp_path) is None


def test_a_backup_may_take_what_machine_container_and_budget_all_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least of the three; what is held counts against the budget alone."""
    monkeypatch.setattr(cgroup, "room_bytes", lambda: None)
    machine = host.host_free_bytes()
    monkeypatch.setattr(cgroup, "room_bytes", lambda: 4096)

    assert machine > 1 << 20
    assert host.host_free_bytes() == 4096
    assert host.host_free_bytes(8192, 0) == 4096
    assert host.host_free_bytes(4096, 1024) == 3072
    assert host.host_free_bytes(1024, 4096) == 0


def test_the_operating_system_is_asked_only_for_what_its_answer_could_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A need below that is held against the budget alone; from there on both count."""
    asked: list[int] = []
    monkeypatch.setattr(host, "host_free_bytes", lambda *_: asked.append(1) or 7)

    assert host.host_room_for(host.ASKED_FROM_BYTES - 1, None, 0) is None
    assert host.host_room_for(host.ASKED_FROM_BYTES - 1, 4096, 1024) == 3072
    assert host.host_room_for(1, 1024, 4096) == 0
    assert asked == []
    assert host.host_room_for(host.ASKED_FROM_BYTES, None, 0) == 7


def test_an_offload_that_was_done_asks_nobody_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one does."""
    world, asked = make_world(), list[int]()
    real = host.host_room_for
    monkeypatch.setattr(host, "host_room_for", lambda *given: asked.append(1) or real(*given))
    world.trainer.sleep(offload=True)
    before = len(asked)

    assert isinstance(world.trainer.offload(), Unchanged)
    assert before == len(asked) == 1
