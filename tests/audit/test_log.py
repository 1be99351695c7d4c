"""A record is on disk when write returns, is numbered and chained, and belongs to its owner alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lifecycle.audit import log as module
from lifecycle.audit.log import NAMES, AuditLog, MemoryAudit
from lifecycle.audit.read import read_log
from lifecycle.audit.tail import unfinished
from lifecycle.audit.verify import verify_chain
from lifecycle.errors import AuditError, EngineError, TransitionFailed
from states import Effect
from tests.lifecycle.world import FakeEngine, make_world

BEGAN = {"transition": 1, "trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "sleeping"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log is written."""
    return tmp_path / "audit.jsonl"


def _names(path: Path) -> list[str]:
    return [str(record["event"]) for record in read_log(path)]


def test_a_record_is_one_json_line_with_the_keys_of_the_contract(path: Path) -> None:
    """schema, sequence, run, rank, model, time, what the caller says, and the hash, in this order."""
    with AuditLog(path, run="r1", rank=3, model="critic") as log:
        log.write("lifecycle.began", BEGAN)

    record = json.loads(path.read_text().splitlines()[-1])
    assert list(record) == ["event", "schema", "sequence", "run", "rank", "model", "time", *BEGAN, "hash"]
    assert {key: record[key] for key in ("schema", "sequence", "run", "rank", "model")} == {
        "schema": 2,
        "sequence": 2,
        "run": "r1",
        "rank": 3,
        "model": "critic",
    }
    assert record["time"].endswith("+00:00")


def test_a_session_begins_with_a_record_of_its_own(path: Path) -> None:
    """``lifecycle.opened`` says that nothing came before."""
    AuditLog(path).close()

    (opened,) = read_log(path)
    assert (opened["event"], opened["restart"], opened["last_hash"]) == ("lifecycle.opened", False, "")


def test_file_and_new_directories_are_for_the_owner_alone(tmp_path: Path) -> None:
    """0600 for the file, 0700 for every directory that had to be made."""
    path = tmp_path / "runs" / "today" / "audit.jsonl"
    AuditLog(path).close()

    modes = [one.stat().st_mode & 0o777 for one in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_what_was_written_before_the_process_ends_at_once_is_on_disk(path: Path) -> None:
    """The native layer ends the process with no finally and no flush; the began record is then the evidence."""
    program = (
        "import os, sys; from lifecycle.audit.log import AuditLog; log = AuditLog(sys.argv[1]);"
        "log.write('lifecycle.began', {'transition': 1, 'trigger': 'offload'}); os._exit(1)"
    )

    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 1
    records = read_log(path)
    assert _names(path) == ["lifecycle.opened", "lifecycle.began"]
    assert [one["trigger"] for one in unfinished(records)] == ["offload"]
    assert verify_chain(records) == []


def test_a_log_is_continued_by_a_new_session(path: Path) -> None:
    """Numbers and chain go on; the opened record names the last hash and the transition that never ended."""
    with AuditLog(path) as log:
        log.write("lifecycle.began", BEGAN)
    before = read_log(path)
    with AuditLog(path) as log:
        log.write("lifecycle.noted", {"note": "again"})

    records = read_log(path)
    assert verify_chain(records) == []
    assert [one["sequence"] for one in records] == [1, 2, 3, 4]
    assert records[2]["restart"] is True
    assert records[2]["last_hash"] == before[-1]["hash"]
    assert records[2]["unfinished"] == [{"sequence": 2, "trigger": "sleep", "edge": "quiesces", "source": "awake"}]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_torn_last_line_is_kept_ended_and_reported(path: Path, cut: int) -> None:
    """A crash in the middle of a record loses that record and nothing else."""
    with AuditLog(path) as log:
        log.write("lifecycle.began", BEGAN)
        log.write("lifecycle.moved", BEGAN)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    torn = len(whole[:-cut].splitlines()[-1]) if cut > 1 else 0

    with AuditLog(path) as log:
        log.write("lifecycle.noted", {"note": "after"})

    records = read_log(path)
    assert verify_chain(records) == []
    assert records[-2]["torn_bytes"] == torn
    assert [one.size_bytes for one in records.torn] == ([torn] if torn else [])


def test_a_log_whose_very_first_line_is_torn_can_be_continued(path: Path) -> None:
    """A beginning of a record is a log; nothing is overwritten."""
    path.write_bytes(b'{"event":"life')

    AuditLog(path).close()

    assert path.read_bytes().startswith(b'{"event":"life\n')
    assert verify_chain(read_log(path)) == []


def test_a_file_that_is_no_log_is_left_alone(path: Path) -> None:
    """A wrong path must not grow records at the end of somebody's file."""
    path.write_bytes(b"\x00weights\n")

    with pytest.raises(AuditError, match="something else than an audit log"):
        AuditLog(path)

    assert path.read_bytes() == b"\x00weights\n"


@pytest.mark.parametrize(
    ("told", "otherwise"), [(b'"schema":2', b'"schema":3'), (b'"sequence":1,', b'"sequence":true,')]
)
def test_a_log_of_a_later_version_is_left_alone(path: Path, told: bytes, otherwise: bytes) -> None:
    """Records of two versions would follow each other the wrong way round; a number that is none goes on nowhere."""
    AuditLog(path).close()
    later = path.read_bytes().replace(told, otherwise)
    assert otherwise in later
    path.write_bytes(later)

    with pytest.raises(AuditError, match="of another format, of a development or a later version"):
        AuditLog(path)
    assert path.read_bytes() == later


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_a_path_that_is_no_regular_file_is_refused(path: Path, make: object) -> None:
    """Neither hangs nor raises somebody else's error."""
    make(path)

    with pytest.raises(AuditError, match="cannot be opened"):
        AuditLog(path)


def test_a_device_is_refused() -> None:
    """A device swallows records."""
    with pytest.raises(AuditError, match="no regular file"):
        AuditLog("/dev/null")


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The error names the path."""
    (tmp_path / "file").write_text("")

    with pytest.raises(AuditError, match="cannot be opened") as raised:
        AuditLog(tmp_path / "file" / "audit.jsonl")

    assert raised.value.path.endswith("audit.jsonl")


def test_a_write_that_fails_half_way_leaves_the_record_before_as_the_last(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: the error is ours, the file ends whole, and the next record follows without a gap."""
    log = AuditLog(path)
    log.write("lifecycle.began", BEGAN)
    write, calls = os.write, iter([10, None])

    def half(fd: int, data: bytes) -> int:
        size = next(calls)
        if size is None:
            raise OSError(28, "No space left on device")
        return write(fd, data[:size])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(AuditError, match="No space left"):
            log.write("lifecycle.moved", BEGAN)
    log.write("lifecycle.moved", BEGAN)

    records = read_log(path)
    assert [one["sequence"] for one in records] == [1, 2, 3]
    assert records.torn == []
    assert verify_chain(records) == []


def test_a_disk_that_is_full_leaves_whole_records(path: Path) -> None:
    """For real, by a limit of the system: what fits in part is taken back, and the log goes on once there is room."""
    program = """
import resource, signal, sys
from lifecycle.audit.log import AuditLog
from lifecycle.errors import AuditError, EngineError, TransitionFailed
from states import Effect
from tests.lifecycle.world import FakeEngine, make_world
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = AuditLog(sys.argv[1])
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (log._size + 100, limits[1]))
try:
    log.write("lifecycle.noted", {"note": "x" * 500})
except AuditError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
log.write("lifecycle.noted", {"note": "there is room again"})
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)

    records = read_log(path)
    assert "a record could not be written: [Errno 27] File too large" in done.stdout
    assert [one.get("note") for one in records] == [None, "there is room again"]
    assert records.torn == []
    assert verify_chain(records) == []


def test_records_are_on_the_disk_where_that_is_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each before its call returns, and the names of new files; otherwise the disk is not waited for."""
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with AuditLog(path.with_name("other.jsonl")) as log:
        log.write("lifecycle.noted", {})
    assert synced == []
    with AuditLog(path, fsync=True, max_bytes=700) as log:
        assert synced == [path.parent.name, "audit.jsonl"]
        log.write("lifecycle.noted", {"note": "x" * 400})
        assert synced[2:] == ["audit.jsonl"]
        log.write("lifecycle.noted", {})
        assert synced[3:] == [".audit.jsonl.new", path.parent.name, "audit.jsonl"]

    assert verify_chain(read_log(path)) == []


def test_a_record_that_does_not_reach_the_disk_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken back like one that could not be written, and the next one follows without a gap."""
    with AuditLog(path, fsync=True) as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
            with pytest.raises(AuditError, match="Input/output error"):
                log.write("lifecycle.began", BEGAN)
        log.write("lifecycle.began", BEGAN)

    records = read_log(path)
    assert [one["sequence"] for one in records] == [1, 2]
    assert verify_chain(records) == []


def test_who_shares_a_log_reads_only_what_the_other_added(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or two processes that write in turns would read all of it for each record."""
    log, child = AuditLog(path, run="r"), AuditLog(path, run="r")
    log.write("lifecycle.noted", {"note": "parent"})
    monkeypatch.setattr(module, "read_tail", lambda _: pytest.fail("all of the log was read"))
    for number in range(3):
        child.write("lifecycle.noted", {"note": f"child {number}"})
        child.write("lifecycle.noted", {"note": f"child again {number}"})
        log.write("lifecycle.noted", {"note": f"parent {number}"})
    monkeypatch.undo()

    records = read_log(path)
    assert verify_chain(records) == []
    assert len(records) == 12


@pytest.mark.parametrize("other", [{"run": "r", "rank": 1}, {"run": "s"}, {"run": "r", "model": "critic"}])
def test_a_log_that_another_rank_or_run_writes_too_is_an_error_at_the_next_record(
    path: Path, other: dict[str, Any]
) -> None:
    """And not a log of two lives that nobody can replay; what the other has written stays."""
    log = AuditLog(path, run="r")
    AuditLog(path, **other).write("lifecycle.began", BEGAN)
    before = path.read_bytes()

    for _ in range(2):
        with pytest.raises(
            AuditError, match=r"somebody else writes it too .*; give each rank and run a path of its own"
        ):
            log.write("lifecycle.began", BEGAN)
    assert path.read_bytes() == before


def test_a_began_is_read_by_others_before_the_first_effect(path: Path) -> None:
    """In another process, while the effect runs: it may be the last that is heard of this one."""
    world, seen = make_world(), list[str]()
    world.trainer._runner.recorder._audit = AuditLog(path)
    program = "import sys; print(open(sys.argv[1]).read().splitlines()[-1])"

    def look(*_: object) -> None:
        command = [sys.executable, "-c", program, str(path)]
        seen.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    world.trainer._runner.effects[Effect.KEEP_GRADIENTS] = look  # type: ignore[assignment]
    world.trainer.sleep()

    assert json.loads(seen[0])["event"] == "lifecycle.began"
    assert json.loads(seen[0])["trigger"] == "sleep"


@pytest.mark.parametrize(
    "text",
    [
        "token=hunter2",
        '{"api_key": "hunter2"}',
        "http://u:hunter2@h/",
        "Authorization: Basic hunter2",
        "Bearer hunter2",
    ],
)
def test_what_an_engine_says_of_secrets_is_not_in_the_log(path: Path, text: str) -> None:
    """An error that repeats the request is told without them, as is everything else of the record."""
    world, engine = make_world(), FakeEngine()
    world.trainer._runner.recorder._audit = AuditLog(path)

    def refuse() -> None:
        raise EngineError("E0", f"it said: {text}")

    engine.begin_update = refuse  # type: ignore[method-assign]
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights([engine])

    assert "lifecycle.failed" in path.read_text()
    assert "hunter2" not in path.read_text()


@pytest.mark.parametrize("added", [b"torn", b"no record\n", b'{"sequence": "7", "hash": ""}\n', b"[1]\n"])
def test_what_does_not_end_in_a_record_is_read_from_its_beginning(path: Path, added: bytes) -> None:
    """Another writer that died in a record leaves what the next one still ends and goes on after."""
    log = AuditLog(path)
    with path.open("ab") as file:
        file.write(added)
    log.write("lifecycle.noted", {"note": "after"})

    records = read_log(path)
    assert [one["sequence"] for one in records] == [1, 2]
    assert len(records.torn) == 1


def test_a_write_in_pieces_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system may take less than it is given."""
    log = AuditLog(path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    log.write("lifecycle.began", BEGAN)

    assert verify_chain(read_log(path)) == []


def test_an_interrupt_between_write_and_count_breaks_no_chain(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C just after the line was written: the next record looks at the file and goes on from there."""
    log = AuditLog(path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log._chain, "kept", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.write("lifecycle.began", BEGAN)
    log._size = 0
    log.write("lifecycle.moved", BEGAN)

    assert verify_chain(read_log(path)) == []


def test_two_writers_of_one_file_share_one_chain(path: Path) -> None:
    """As after a fork: whoever finds the file longer than it left it goes on from its end."""
    log = AuditLog(path, run="r")
    with AuditLog(path, run="r") as child:
        child.write("lifecycle.noted", {"note": "child"})
        log.write("lifecycle.noted", {"note": "parent"})
        child.write("lifecycle.noted", {"note": "child again"})

    records = read_log(path)
    assert [one.get("note") for one in records] == [None, None, "child", "parent", "child again"]
    assert verify_chain(records) == []


def test_threads_write_whole_lines_in_one_chain(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads, one log, and another thread's turn before each write: no record is lost, none is interleaved."""
    log = AuditLog(path)
    write = os.write

    def slowly(fd: int, data: bytes) -> int:
        time.sleep(0.001)
        return write(fd, data)

    monkeypatch.setattr(os, "write", slowly)
    threads = [
        threading.Thread(target=lambda: [log.write("lifecycle.noted", {"n": n}) for n in range(20)]) for _ in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    records = read_log(path)
    assert len(records) == 81
    assert verify_chain(records) == []


def test_a_closed_log_refuses_records(path: Path) -> None:
    """Closing twice is harmless; writing afterwards is an error that says so."""
    log = AuditLog(path)
    log.close()
    log.close()

    with pytest.raises(AuditError, match="closed"):
        log.write("lifecycle.noted", {})


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_only_known_names_and_keys_of_ones_own_are_written(path: Path, kind: str) -> None:
    """Other programs parse the log: the names are a closed set, and nobody writes the log's own keys."""
    log = AuditLog(path) if kind == "file" else MemoryAudit()

    with pytest.raises(AuditError, match=r"no record is called 'lifecycle\.opened'"):
        log.write("lifecycle.opened", {})
    with pytest.raises(AuditError, match="the log writes event, hash itself"):
        log.write("lifecycle.noted", {"event": "sleep", "hash": ""})

    assert sorted(NAMES) == [
        "lifecycle.began",
        "lifecycle.failed",
        "lifecycle.moved",
        "lifecycle.noted",
        "lifecycle.refused",
        "lifecycle.unchanged",
    ]


def test_the_memory_log_keeps_what_a_file_would_hold(path: Path) -> None:
    """Same records, same chain; no opened record, as nothing is opened."""
    memory = MemoryAudit(run="r")
    memory.write("lifecycle.began", {"at": Path("x"), "n": float("nan")})

    (record,) = memory.records
    assert json.loads(json.dumps(record)) == record
    assert verify_chain(memory.records) == []
