"""A full log goes on in a new file: nothing is lost or written over, whatever ends when."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lifecycle.audit.changes import RecordedFacts
from lifecycle.audit.expand import is_whole
from lifecycle.audit.log import AuditLog
from lifecycle.audit.read import Record, log_files, placed_lines, read_log
from lifecycle.audit.rotation import rotated, tidy
from lifecycle.audit.verify import verify_chain
from lifecycle.errors import AuditError, ConfigError
from states import Facts

SMALL = 1500


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log is written."""
    return tmp_path / "audit.jsonl"


def turn(log: AuditLog, number: int) -> None:
    """One transition: two records, with facts."""
    facts = RecordedFacts(Facts(device_free_bytes=number))
    log.write("lifecycle.began", {"transition": number, "facts": facts})
    log.write("lifecycle.moved", {"transition": number})


def written(path: Path, turns: int, **settings: Any) -> list[Record]:
    """What a log that had so many turns says."""
    with AuditLog(path, max_bytes=SMALL, **settings) as log:
        for number in range(turns):
            turn(log, number)
    return read_log(path)


def free(records: list[Record]) -> list[int]:
    """What the facts of the records say."""
    return [one["facts"]["local"]["device_free_bytes"] for one in records if "facts" in one]  # type: ignore[index]


def names(path: Path) -> list[str]:
    """The files of the log, in order."""
    return [one.name for one in log_files(path)]


@pytest.mark.parametrize("compress", [False, True])
def test_a_full_file_is_put_aside_and_the_chain_goes_on(path: Path, *, compress: bool) -> None:
    """In numbered files, oldest first; each begins with a record that names the file and the hash before it."""
    records = written(path, 6, compress=compress)
    ending = ".gz" if compress else ""

    assert names(path) == [*(f"audit.jsonl.{n}{ending}" for n in range(1, 6)), "audit.jsonl"]
    assert [one["sequence"] for one in records] == list(range(1, len(records) + 1))
    assert verify_chain(records) == []
    assert free(records) == list(range(6))
    opened = [number for number, one in enumerate(records) if one["event"] == "lifecycle.opened"]
    for number, file in zip(opened[1:], range(1, 6), strict=True):
        one = records[number]
        assert (one["continues"], one["restart"]) == (f"audit.jsonl.{file}", False)
        assert one["last_hash"] == records[number - 1]["hash"]


@pytest.mark.parametrize("compress", [False, True])
def test_a_file_that_was_put_aside_is_read_for_itself(path: Path, *, compress: bool) -> None:
    """Its facts are whole, its chain begins where the file before it ends, and it holds both records of a turn."""
    written(path, 4, compress=compress)

    for file in log_files(path)[:-1]:
        records = read_log(file)
        assert verify_chain(records) == []
        assert all(is_whole(one["facts"]) for one in records if "facts" in one)
        assert [one["event"] for one in records].count("lifecycle.began") == 1
        assert records[-1]["event"] == "lifecycle.moved"


def test_files_that_are_put_aside_are_their_owners_alone(path: Path) -> None:
    """0600, compressed or not."""
    written(path, 3, compress=True)
    written(path, 3)

    assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}


def test_only_the_newest_files_are_kept_where_that_is_asked_for(path: Path) -> None:
    """Numbers go on; what is left is read and verified from where it begins."""
    records = written(path, 8, keep=2)

    assert names(path) == ["audit.jsonl.6", "audit.jsonl.7", "audit.jsonl"]
    assert verify_chain(records) == []
    assert free(records) == [5, 6, 7]
    records[0]["last_hash"] = "0" * 64
    assert len(verify_chain(records)) == 1


def test_a_file_of_somebody_else_keeps_its_name_and_bytes(path: Path) -> None:
    """A number that is taken is left out."""
    taken = path.with_name("audit.jsonl.3.gz")
    taken.write_bytes(gzip.compress(b""))
    before = taken.read_bytes()
    written(path, 3)

    assert names(path) == ["audit.jsonl.3.gz", "audit.jsonl.4", "audit.jsonl.5", "audit.jsonl"]
    assert taken.read_bytes() == before


def test_a_file_system_without_links_renames(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is nobody's, so nothing is written over."""

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)

    assert free(written(path, 4)) == [0, 1, 2, 3]
    assert len(log_files(path)) == 4


def test_a_rotation_that_fails_leaves_the_log_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is refused as any that cannot be written, and the next one tries again."""
    with AuditLog(path, max_bytes=SMALL) as log:
        turn(log, 0)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(AuditError, match="No space left"):
                turn(log, 1)
        assert names(path) == ["audit.jsonl"]
        turn(log, 2)

    records = read_log(path)
    assert free(records) == [0, 2]
    assert verify_chain(records) == []
    assert names(path) == ["audit.jsonl.1", "audit.jsonl"]


def test_compressing_that_fails_loses_nothing_and_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record matters more than the room."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with AuditLog(path, max_bytes=SMALL, compress=True) as log:
        turn(log, 0)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "copyfileobj", full)
            turn(log, 1)
        assert names(path) == ["audit.jsonl.1", "audit.jsonl"]
        turn(log, 2)

    assert names(path) == ["audit.jsonl.1.gz", "audit.jsonl.2.gz", "audit.jsonl"]
    assert free(read_log(path)) == [0, 1, 2]


CALLS = (("os", "open"), ("os", "write"), ("os", "link"), ("os", "fsync"), ("Path", "rename"), ("Path", "unlink"))


def dies_in(path: Path, moment: int, *, links: bool, before: int, keep: int) -> int:
    """Some turns and one more, a rotation before it, in a process that ends just before its call of this number."""
    log = AuditLog(path, max_bytes=SMALL, keep=keep, compress=True, fsync=True)
    for number in range(before):
        turn(log, number)
    made = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            if made == moment:
                os._exit(9)
            return call(*args, **more)

        return run

    if not links:
        os.link = lambda *_: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted"))  # type: ignore[assignment]
    for where, name in CALLS:
        owner: Any = {"os": os, "Path": Path}[where]
        setattr(owner, name, counted(getattr(owner, name)))
    turn(log, before)
    os._exit(made)


def ended(path: Path, moment: int, **how: Any) -> int:
    """How the process that dies at this moment ended: 9 when it died, else the number of its calls plus 100."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(100 + dies_in(path, moment, **how))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("links", "before", "keep"), [(True, 1, 3), (False, 1, 3), (True, 3, 1), (False, 4, 2)])
def test_a_crash_at_any_moment_of_a_rotation_leaves_every_record_readable(
    tmp_path: Path, *, links: bool, before: int, keep: int
) -> None:
    """And a log that goes on from there, with every record once; but for those of files that are not to be kept."""
    died = 0
    for moment in range(1, 60):
        path = tmp_path / str(moment) / "audit.jsonl"
        if ended(path, moment, links=links, before=before, keep=keep) != 9:
            break
        died += 1
        records = read_log(path)
        assert verify_chain(records) == []
        found = free(records)
        assert found == list(range(found[0], found[-1] + 1))
        assert found[-1] in {before - 1, before}
        assert found[0] <= max(0, before - keep)
        hashes = [one["hash"] for one in records]
        with AuditLog(path, max_bytes=SMALL, compress=True) as log:
            turn(log, 2)
            turn(log, 3)
        again = read_log(path)
        assert verify_chain(again) == []
        assert [one["hash"] for one in again][: len(hashes)] == hashes
        assert free(again)[-2:] == [2, 3]
        assert len({one.name.removesuffix(".gz") for one in log_files(path)}) == len(log_files(path))

    assert died >= 8


def test_two_processes_of_one_log_do_not_rotate_twice(path: Path) -> None:
    """After a fork: whoever comes second finds the new file, and both go on in one chain."""
    log = AuditLog(path, max_bytes=SMALL)
    children = []
    for worker in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for number in range(20):
                    log.write("lifecycle.refused", {"transition": number, "worker": worker, "text": "x" * 300})
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children] == [0, 0, 0]
    log.write("lifecycle.noted", {"note": "parent"})

    records = read_log(path)
    assert verify_chain(records) == []
    assert [sum(one.get("worker") == worker for one in records) for worker in range(3)] == [20, 20, 20]
    assert records[-1]["note"] == "parent"
    sizes = [one.stat().st_size for one in log_files(path)]
    assert all(SMALL <= size < SMALL + 700 for size in sizes[:-1])


def test_a_forked_process_waits_for_the_lock_of_the_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open file that a fork shares is one lock for both: the child opens the log for itself."""
    log, lock = AuditLog(path), fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: lock(fd, how | fcntl.LOCK_NB))
    with log._file.locked():
        child = os.fork()
        if child == 0:
            try:
                log.write("lifecycle.noted", {})
            except AuditError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_log_whose_file_in_use_is_gone_goes_on_after_those_that_were_put_aside(path: Path) -> None:
    """As after a crash between two renames: numbers and chain continue, the restart says where."""
    written(path, 3)
    path.unlink()
    before = read_log(path)
    AuditLog(path).close()

    records = read_log(path)
    assert verify_chain(records) == []
    assert records[-1]["continues"] == "audit.jsonl.2"
    assert (records[-1]["restart"], records[-1]["sequence"]) == (True, len(before) + 1)


@pytest.mark.parametrize("how", ["removed", "its folder removed", "moved away"])
def test_a_log_that_was_removed_is_an_error_and_no_silence(path: Path, how: str) -> None:
    """Records would go to a file without a name."""
    folder = path.parent / "run"
    log = AuditLog(folder / "audit.jsonl")
    log.write("lifecycle.noted", {})
    if how == "removed":
        log.path.unlink()
    elif how == "moved away":
        log.path.rename(path)
    else:
        shutil.rmtree(folder)

    for _ in range(2):
        with pytest.raises(AuditError, match="removed or moved away"):
            log.write("lifecycle.noted", {})


def test_another_file_in_the_place_of_a_log_is_not_written_to(path: Path) -> None:
    """One that lacks records of this log is somebody else's."""
    log = AuditLog(path)
    turn(log, 0)
    path.unlink()
    AuditLog(path).close()
    before = path.read_bytes()

    with pytest.raises(AuditError, match="another file is in its place"):
        log.write("lifecycle.noted", {})
    assert path.read_bytes() == before


def test_a_log_is_found_again_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the folder in which the log was opened."""
    monkeypatch.chdir(tmp_path)
    with AuditLog("audit.jsonl", max_bytes=SMALL) as log:
        turn(log, 0)
        monkeypatch.chdir("/")
        turn(log, 1)

    assert names(tmp_path / "audit.jsonl") == ["audit.jsonl.1", "audit.jsonl"]


@pytest.mark.parametrize("bounds", [{"max_bytes": 0}, {"keep": 0}, {"keep": -1}, {"max_bytes": 1.5}, {"keep": True}])
def test_a_bound_that_is_none_is_refused(path: Path, bounds: dict[str, Any]) -> None:
    """Before a file is made."""
    with pytest.raises(ConfigError, match=next(iter(bounds))):
        AuditLog(path, **bounds)
    assert not path.exists()


@pytest.mark.parametrize("damage", [b"", b"no gzip", None])
def test_a_compressed_file_that_is_damaged_is_our_error(path: Path, damage: bytes | None) -> None:
    """Also one that ends in the middle."""
    written(path, 2, compress=True)
    file = log_files(path)[0]
    file.write_bytes(file.read_bytes()[:-20] if damage is None else damage)

    if damage == b"":
        assert verify_chain(read_log(path)) == []  # nothing is in it; the next file says that it continues one
    else:
        with pytest.raises(AuditError, match="it cannot be read"):
            read_log(path)


def test_each_line_is_told_with_its_file_and_number(path: Path) -> None:
    """So that whoever finds something wrong can say where."""
    written(path, 2)

    found = [(file.name, number) for file, number, _ in placed_lines(path)]
    assert found == [("audit.jsonl.1", n) for n in (1, 2, 3)] + [("audit.jsonl", n) for n in (1, 2, 3)]


def test_a_reader_beside_a_rotation_loses_nothing(path: Path) -> None:
    """It has opened the file in use before it looks which others there are."""
    with AuditLog(path, max_bytes=SMALL) as log:
        turn(log, 0)
        turn(log, 1)
        lines = placed_lines(path)
        first = next(lines)
        turn(log, 2)
        records = [line for _, _, line in (first, *lines)]

    assert [one["sequence"] for one in records] == [1, 2, 3, 4, 5, 6]  # type: ignore[index]


def test_a_reader_finds_what_is_compressed_meanwhile(path: Path) -> None:
    """It comes to a file long after it has seen which there are."""
    with AuditLog(path, max_bytes=SMALL) as log:
        for number in range(4):
            turn(log, number)
        lines = placed_lines(path)
        first = next(lines)
        tidy(path, keep=None, compress=True)
        turn(log, 4)
        records = [line for _, _, line in (first, *lines)]

    assert [one["sequence"] for one in records] == list(range(1, 13))  # type: ignore[index]


def test_a_reader_says_what_the_log_has_removed_meanwhile(path: Path) -> None:
    """A gap that nobody made is none; what is removed before it began is as if it had never been there."""
    with AuditLog(path, max_bytes=SMALL) as log:
        for number in range(4):
            turn(log, number)
        lines = placed_lines(path)
        next(lines)
        tidy(path, keep=1, compress=False)

        with pytest.raises(AuditError, match="removed it while it was read; read it again"):
            list(lines)


def test_a_reader_sees_which_files_there_are_at_one_moment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rotations before and after it has opened the file in use: no record is read twice, or in another order."""
    with AuditLog(path, max_bytes=SMALL, compress=True) as log:
        turn(log, 0)
        due = [1, 2, 3]

        def rotating(where: Path) -> dict[int, Path]:
            if due:
                turn(log, due.pop(0))
            return rotated(where)

        monkeypatch.setattr("lifecycle.audit.read.rotated", rotating)
        records = read_log(path)

    assert [one["sequence"] for one in records] == list(range(1, 13))
