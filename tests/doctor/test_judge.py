"""What is said of each thing that may be found: every status of every check, and what to do about it."""

from __future__ import annotations

import pytest

from lifecycle.doctor.findings import UNLIMITED, AuditFolder, Cuda, Device, Gloo, Hook, Memory, Package, Room
from lifecycle.doctor.judge import (
    GIB,
    audit_line,
    cuda_line,
    disk_line,
    gloo_line,
    hook_line,
    is_older,
    memory_lines,
    package_line,
    segments_line,
    shared_memory_line,
)
from lifecycle.doctor.lines import Line, Status

H200 = Device("NVIDIA H200", 140 * GIB, 139 * GIB)


def _is(line: Line, status: Status, found: str = "", todo: str = "") -> bool:
    """Whether a line says so; where nothing is to be done it says nothing of it."""
    assert bool(line.todo) is bool(todo), line
    return line.status is status and found in line.found and todo in line.todo


@pytest.mark.parametrize(
    ("package", "status", "found", "todo"),
    [
        (Package("peft", "0.15", ("peft",), "0.21.2"), Status.OK, "0.21.2", ""),
        (Package("numpy", "", ("peft",), "2.0"), Status.OK, "2.0", ""),
        (Package("peft", "0.15", ("peft",), "0.9"), Status.BROKEN, "0.15 or later", "pip install 'peft>=0.15'"),
        (Package("peft", "", ("peft", "demo"), None), Status.MISSING, "for peft, demo", "install -e '.[peft]'"),
        (Package("torch", "2.6", (), None), Status.BROKEN, "nothing works", "pip install 'torch'"),
        (Package("peft", "0.15", ("peft",), "0.21", "ImportError: x"), Status.BROKEN, "ImportError: x", "install it"),
    ],
)
def test_a_package_is_there_new_enough_and_importable(package: Package, status: Status, found: str, todo: str) -> None:
    """One of an extra may be missing; one of the library itself may not."""
    assert _is(package_line(package), status, found, todo)


@pytest.mark.parametrize(
    ("version", "wanted", "older"),
    [
        ("0.9", "0.15", True),
        ("0.15", "0.15", False),
        ("0.15.0", "0.15", False),
        ("0.15", "0.15.0", False),
        ("2.13.0+cpu", "2.6", False),
        ("2.5.1+cu124", "2.6", True),
        ("0.0.9", "0.0.10", True),
        ("10.0", "9", False),
        ("unknown", "1.0", False),
        ("1.0", "", False),
    ],
)
def test_releases_are_compared_number_by_number(version: str, wanted: str, older: bool) -> None:  # noqa: FBT001
    """What follows the release does not count, and what cannot be read is not said to be old."""
    assert is_older(version, wanted) is older


@pytest.mark.parametrize(
    ("cuda", "status", "found", "todo"),
    [
        (Cuda("2.13", "13.0", "580.1", "13.0", (H200,), 1), Status.OK, "NVIDIA H200 (139.0 of 140.0 GiB free)", ""),
        (Cuda("2.13", "12.9", "580.1", "13.0", (H200,), 1), Status.OK, "for CUDA 12.9", ""),
        (Cuda("2.13", "13.0", "580.1", "", (H200,), 1), Status.OK, "580.1", ""),
        (Cuda("2.13", "13.0", "570.1", "12.8", (H200,), 1), Status.BROKEN, "CUDA 12.8 at most", "driver for CUDA 13.0"),
        (Cuda("2.13+cpu", ""), Status.MISSING, "no NVIDIA driver", "HostArena"),
        (Cuda("2.13", "13.0"), Status.MISSING, "no NVIDIA driver", "HostArena"),
        (Cuda("2.13+cpu", "", "580.1", "13.0", (H200,)), Status.BROKEN, "has no CUDA", "build of torch with CUDA"),
        (Cuda("2.13", "13.0", "580.1", "13.0"), Status.MISSING, "no device", "pass a GPU"),
        (Cuda("2.13", "13.0", "580.1", "13.0", (H200,), 0, ""), Status.BROKEN, "DEVICES='' hides them", "unset CUDA_V"),
        (Cuda("2.13", "13.0", "580.1", "13.0", (H200,)), Status.BROKEN, "can use none", "torch.cuda.init()"),
        (Cuda("2.13", "13.0", why="it did not end within 1 s"), Status.BROKEN, "did not end within 1 s", "see what"),
    ],
)
def test_cuda_needs_a_build_a_driver_and_a_device(cuda: Cuda, status: Status, found: str, todo: str) -> None:
    """What lacks is named, and HostArena where one can do without."""
    assert _is(cuda_line(cuda), status, found, todo)


@pytest.mark.parametrize(
    ("hook", "status", "found", "todo"),
    [
        (Hook(True, "/tms.so", loads=True, preloaded=True), Status.OK, "this process has it", ""),
        (Hook(True, "/tms.so", loads=True), Status.OK, "was started without it", "configure_subprocess()"),
        (Hook(False), Status.MISSING, "not installed", "install -e '.[tms]'"),
        (Hook(True, "/tms.so", why="libcuda.so.1: cannot open"), Status.MISSING, "libcuda.so.1", "HostArena"),
        (Hook(True, why="RuntimeError: could not detect CUDA runtime"), Status.MISSING, "detect CUDA", "HostArena"),
        (Hook(True, "/tms.so", why="undefined symbol: x"), Status.BROKEN, "undefined symbol", "this torch's CUDA"),
    ],
)
def test_the_hook_loads_or_it_is_said_what_it_needs(hook: Hook, status: Status, found: str, todo: str) -> None:
    """Without a driver and a runtime it is missing what it needs; anything else is broken."""
    assert _is(hook_line(hook), status, found, todo)


def test_expandable_segments_do_not_go_with_the_saver() -> None:
    """Where the saver is not installed they are worth a warning; the variable is named."""
    variable = "PYTORCH_CUDA_ALLOC_CONF"

    assert _is(segments_line(None, has_saver=True), Status.OK, "not set")
    assert _is(segments_line(variable, has_saver=True), Status.BROKEN, variable, f"unset {variable}")
    assert _is(segments_line(variable, has_saver=False), Status.WARNING, variable, f"unset {variable}")


@pytest.mark.parametrize(
    ("room_bytes", "status", "found", "todo"),
    [
        (None, Status.OK, "16.0 GiB available, no tighter limit", ""),
        (2**63, Status.OK, "no tighter limit", ""),
        (4 * GIB, Status.OK, "a limit leaves 4.0 GiB", ""),
        (GIB // 2, Status.WARNING, "a limit leaves 0.5 GiB", "raise the container's memory limit"),
    ],
)
def test_the_host_has_what_its_container_leaves(room_bytes: int | None, status: Status, found: str, todo: str) -> None:
    """A limit above what there is limits nothing."""
    host, _ = memory_lines(Memory(16 * GIB, room_bytes, UNLIMITED))

    assert _is(host, status, found, todo)


@pytest.mark.parametrize(
    ("locked_bytes", "status", "found", "todo"),
    [
        (UNLIMITED, Status.OK, "unlimited", ""),
        (16 * GIB, Status.OK, "16.0 GiB", ""),
        (8 * 2**20, Status.WARNING, "8.0 MiB", "ulimit -l unlimited"),
    ],
)
def test_a_limit_of_pinned_memory_below_the_room_is_worth_a_warning(
    locked_bytes: int, status: Status, found: str, todo: str
) -> None:
    """With the command for a shell and for a container."""
    _, pinned = memory_lines(Memory(16 * GIB, None, locked_bytes))

    assert _is(pinned, status, found, todo)


def test_shared_memory_is_there_and_has_room() -> None:
    """A container gets 64 MiB of it if nobody says otherwise."""
    assert _is(shared_memory_line(Room("/dev/shm", "", False, 8 * GIB, 8 * GIB)), Status.OK, "8.0 of 8.0 GiB")  # noqa: S108
    low = shared_memory_line(Room("/dev/shm", "", False, 2**26, 2**26))  # noqa: S108
    assert _is(low, Status.WARNING, "0.1 of 0.1 GiB", "--shm-size")
    missing = shared_memory_line(Room("/dev/shm", "/dev/shm is not a directory"))  # noqa: S108
    assert _is(missing, Status.MISSING, "not a directory", "--ipc=host")


def test_a_disk_directory_is_a_real_disk_with_room() -> None:
    """One in memory takes what it was to give back."""
    assert _is(disk_line(Room("/d", "", True, 9 * GIB, 9 * GIB)), Status.OK, "9.0 of 9.0 GiB free")
    assert _is(disk_line(Room("/d", "", False, 9 * GIB, 9 * GIB)), Status.WARNING, "tmpfs", "directory on a disk")
    assert _is(disk_line(Room("/d", "", True, 9 * GIB, 2**20)), Status.WARNING, "0.0 of 9.0", "adapter-lifecycle clean")
    assert _is(disk_line(Room("/d", "", True, 9 * GIB, 10)), Status.BROKEN, "it is full", "adapter-lifecycle clean")
    assert _is(disk_line(Room("/d", "/d is not writable")), Status.BROKEN, "not writable", "may write")


@pytest.mark.parametrize(
    ("folder", "status", "found", "todo"),
    [
        (AuditFolder("/a", True), Status.OK, "mode 0700", ""),
        (AuditFolder("/a", False), Status.OK, "is made, 0700", ""),
        (AuditFolder("/a", True, "/a is not writable"), Status.BROKEN, "not writable", "may write"),
        (AuditFolder("/a", True, mode=0o777), Status.BROKEN, "0777: others may change", "chmod 700 /a"),
        (AuditFolder("/a", True, mode=0o770), Status.BROKEN, "0770: others may change", "chmod 700 /a"),
        (AuditFolder("/a", True, is_ours=False), Status.BROKEN, "another user's", "a folder of your own"),
        (AuditFolder("/tmp", True, mode=0o1777), Status.BROKEN, "1777: others may change", "a folder of your own"),  # noqa: S108
        (AuditFolder("/a", True, open_files=("r.jsonl",)), Status.WARNING, "read or write r.jsonl", "chmod 600"),
        (AuditFolder("/a", True, mode=0o755), Status.WARNING, "0755: others may list", "chmod 700 /a"),
    ],
)
def test_an_audit_directory_is_its_owners_alone(folder: AuditFolder, status: Status, found: str, todo: str) -> None:
    """Who may change logs may change the evidence."""
    assert _is(audit_line(folder), status, found, todo)


def test_gloo_comes_together_on_loopback_or_it_is_said_why() -> None:
    """With how long it took."""
    assert _is(gloo_line(Gloo(0.25)), Status.OK, "within 0.2 s")
    assert _is(gloo_line(Gloo(why="connect timeout")), Status.BROKEN, "connect timeout", "loopback is up")
