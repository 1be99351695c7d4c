"""Several processes and one directory: one write, killed writers, held files, shared memory."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest

from lifecycle.base_file import BaseFileStore
from lifecycle.weights.digests import digest
from tests.base_file.world import base, big_base, end, line_of, names, obtain, opened, start

OBTAIN = """
tensors = big_base(mib)
known = digest(tensors)
print("ready", flush=True)
release_signal()
file = BaseFileStore(directory).obtain(tensors, known)
print(os.stat(file.path).st_ino, file.written_bytes, flush=True)
release_signal()
file.close()
"""


RANKS = """
tensors = big_base(mib)
known = digest(tensors)
gate, opener = os.pipe()
for _ in range(int(sys.argv[3])):
    if os.fork() == 0:
        os.close(opener)
        os.read(gate, 1)
        file = BaseFileStore(directory).obtain(tensors, known)
        os.write(1, f"{os.stat(file.path).st_ino} {file.written_bytes}\\n".encode())  # whole lines: the pipe is shared
        release_signal()
        os._exit(0)
os.close(opener)
release_signal()
for _ in range(int(sys.argv[3])):
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""


def _ranks(directory: Path, count: int) -> list[tuple[int, int]]:
    """Inode and bytes written, as processes say it that obtain the same base at once and hold it together."""
    ranks = start(RANKS, directory, 64, str(count))
    found = [line_of(ranks).split() for _ in range(count)]
    end(ranks)
    return [(int(inode), int(written)) for inode, written in found]


def test_processes_that_start_at_once_share_one_file_that_one_of_them_wrote(tmp_path: Path) -> None:
    """One inode, one write: the others wait for it."""
    found = _ranks(tmp_path, 8)
    (path,) = tmp_path.iterdir()

    assert {inode for inode, _ in found} == {path.stat().st_ino}
    assert sorted(written for _, written in found) == [*[0] * 7, path.stat().st_size]


def test_processes_that_find_a_corrupt_file_at_once_replace_it_once(tmp_path: Path) -> None:
    """None of them takes the others, which are comparing it too, for users."""
    obtain(tmp_path, big_base(64)).close()
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    found = _ranks(tmp_path, 4)

    assert {inode for inode, _ in found} == {path.stat().st_ino}
    assert sorted(written for _, written in found) == [0, 0, 0, path.stat().st_size]


KILLED = """
tensors = big_base(mib)
known = digest(tensors)
print("ready", flush=True)
held = BaseFileStore(directory).obtain(tensors, known)
print("done", flush=True)
release_signal()
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_writer_killed_at_any_point_leaves_a_clean_restart(seed: int, tmp_path: Path) -> None:
    """SIGKILL: what it left is taken over or compared, and files that others hold are untouched."""
    delay = random.Random(seed).uniform(0, 0.4)  # noqa: S311 - a point in time, no secret
    with opened(tmp_path, base()) as held:
        content = held.path.read_bytes()
        writer = start(KILLED, tmp_path, 64)
        assert line_of(writer) == "ready"
        time.sleep(delay)
        writer.kill()
        writer.communicate()
        left = names(tmp_path)
        print(f"killed after {delay:.3f} s: {[name[-12:] for name in left]}")

        tensors = big_base(64)
        with opened(tmp_path, tensors) as file:
            assert names(tmp_path) == sorted([held.path.name, file.path.name])
            assert digest({name: file.tensor(name) for name in tensors}) == file.digest
        assert held.is_untouched()
        assert held.path.read_bytes() == content


STOPPED_WRITE = """
from lifecycle.base_file import disk
write, count = disk.write_all, 0
def slow(descriptor, data, offset):
    global count
    write(descriptor, data, offset)
    count += 1
    if count == int(sys.argv[3]):
        print("writing", flush=True)
        release_signal()
disk.write_all = slow
tensors = big_base(mib)
file = BaseFileStore(directory).obtain(tensors, digest(tensors))
print("written", file.written_bytes, flush=True)
release_signal()
"""


@pytest.mark.parametrize("writes", [1, 3, 5])
def test_a_writer_killed_between_two_writes_leaves_a_partial_file_that_the_next_one_takes_over(
    writes: int, tmp_path: Path
) -> None:
    """Never one under the final name."""
    writer = start(STOPPED_WRITE, tmp_path, 32, str(writes))
    assert line_of(writer) == "writing"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert [Path(name).suffix for name in names(tmp_path)] == [".partial"]

    with opened(tmp_path, big_base(32)) as file:
        assert names(tmp_path) == [file.path.name]


def test_a_file_that_is_being_written_is_neither_cleaned_nor_opened(tmp_path: Path) -> None:
    """And whoever needs it goes on when it is there."""
    writer = start(STOPPED_WRITE, tmp_path, 8, "1")
    assert line_of(writer) == "writing"
    (partial,) = names(tmp_path)
    assert BaseFileStore(tmp_path).clean().held == (partial,)
    waiter = start(OBTAIN, tmp_path, 8)
    assert line_of(waiter) == "ready"
    waiter.stdin.write("go\n")
    waiter.stdin.flush()
    time.sleep(0.1)
    assert names(tmp_path) == [partial]
    writer.stdin.write("go\n")
    writer.stdin.flush()

    assert line_of(waiter).split()[1] == "0"
    end(waiter)
    end(writer)


def test_a_waiter_takes_over_from_a_writer_that_dies(tmp_path: Path) -> None:
    """Its lock goes with it."""
    writer = start(STOPPED_WRITE, tmp_path, 8, "1")
    assert line_of(writer) == "writing"
    waiter = start(OBTAIN, tmp_path, 8)
    assert line_of(waiter) == "ready"
    waiter.stdin.write("go\n")
    waiter.stdin.flush()
    time.sleep(0.1)
    writer.kill()
    writer.communicate()

    assert int(line_of(waiter).split()[1]) > 0
    end(waiter)


def test_a_file_held_by_another_process_is_not_cleaned_until_that_ends(tmp_path: Path) -> None:
    """Killed or not, the lock goes with the process."""
    user = start(KILLED, tmp_path, 1)
    assert (line_of(user), line_of(user)) == ("ready", "done")
    (name,) = names(tmp_path)
    assert BaseFileStore(tmp_path).clean().held == (name,)
    assert names(tmp_path) == [name]
    user.kill()
    user.communicate()

    assert list(BaseFileStore(tmp_path).clean().removed) == [name]
    assert names(tmp_path) == []


FORKED = """
tensors = big_base(mib)
file = BaseFileStore(directory).obtain(tensors, digest(tensors))
child = os.fork()
if child == 0:
    held = BaseFileStore(directory).clean().held
    file.close()
    again = BaseFileStore(directory).clean().held
    os._exit(0 if held == again == (file.path.name,) else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), BaseFileStore(directory).clean().held == (file.path.name,), flush=True)
"""


def test_a_forked_child_does_not_remove_its_parents_file_nor_its_lock(tmp_path: Path) -> None:
    """They share the open file: the child closes its descriptor, and the parent's lock stays."""
    parent = start(FORKED, tmp_path, 1)

    assert end(parent) == "0 True"


LIMITED = """
import resource
tensors = big_base(mib)
known = digest(tensors)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
try:
    BaseFileStore(directory).obtain(tensors, known)
except BaseFileError as error:
    print(error.why, os.listdir(directory), flush=True)
"""


def test_a_file_that_may_not_grow_so_large_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """The real limit of the operating system, which also sends a signal."""
    said = end(start(LIMITED, tmp_path, 4))

    assert "File too large (4198400 bytes are needed" in said
    assert said.endswith(" []")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


WRITE_AND_MAP = """
tensors = big_base(mib)
known = digest(tensors)
before = pss_bytes()
file = BaseFileStore(directory).obtain(tensors, known)
mapped = [file.tensor(name) for name in file.names()]
total = sum(int(one.view(torch.int64).sum()) for one in mapped)
print("ready", total, file.written_bytes, flush=True)
release_signal()
print(pss_bytes() - before, flush=True)
release_signal()
"""


def test_writing_and_mapping_a_base_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    """FB-17: 256 MiB written and every page of them read."""
    writer = start(WRITE_AND_MAP, tmp_path, 256)
    written = int(line_of(writer).split()[2])
    added = int(end(writer))

    print(f"added by the writer: {added} bytes")
    assert written > 2**28
    assert added < 32 * 2**20


def test_four_processes_that_map_one_base_add_next_to_nothing_together(tmp_path: Path) -> None:
    """FB-17: less than 5 % of the base in anonymous and shared memory, when all four have read every page."""
    ranks = [start(WRITE_AND_MAP, tmp_path, 256) for _ in range(4)]
    said = [line_of(rank).split() for rank in ranks]
    for rank in ranks:
        rank.stdin.write("measure\n")
        rank.stdin.flush()
    added = [int(line_of(rank)) for rank in ranks]
    for rank in ranks:
        end(rank)

    print(f"added by each of four processes: {added} bytes")
    assert len({total for _, total, _ in said}) == 1
    assert [int(written) > 0 for _, _, written in said].count(True) == 1
    assert sum(added) < 0.05 * 256 * 2**20
