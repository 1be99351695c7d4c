"""A log is followed: every record once, in order, whatever happens to its files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle import AuditError, AuditLog
from lifecycle.audit import read_log
from lifecycle.audit.read import Torn
from lifecycle.watch import follow, start
from lifecycle.watch.follow import Anew, Follower, Line, Standing

ROOT = Path(__file__).parents[2]


Follow = Callable[[Path], Follower]


@pytest.fixture
def follow_at() -> Iterator[Follow]:
    """Followers of logs at paths; all are closed at the end."""
    with ExitStack() as closing:
        yield lambda path: closing.enter_context(Follower(path))


def numbers(lines: Iterable[Line]) -> list[object]:
    """Numbers of records, and the names of what is none."""
    return [one["sequence"] if isinstance(one, dict) else type(one).__name__ for one in lines]


def note(log: AuditLog, times: int = 1, text: str = "x") -> None:
    """Records that a transition has nothing to do with."""
    for _ in range(times):
        log.write("lifecycle.noted", {"note": text})


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path, follow_at: Follow) -> None:
    """Also one that is empty; then it is followed from its first record."""
    path = tmp_path / "audit.jsonl"
    follower = follow_at(path)
    assert (numbers(follower.poll()), follower.standing) == ([], Standing.WAITING)
    path.touch()
    assert (numbers(follower.poll()), follower.standing) == ([], Standing.WAITING)

    with AuditLog(path) as log:
        note(log)

        assert (numbers(follower.poll()), follower.standing) == ([1, 2], Standing.FOLLOWED)


def test_what_was_read_is_not_read_again(tmp_path: Path, follow_at: Follow) -> None:
    """Each call gives what was written since."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        found = [numbers(follower.poll())]
        for times in (0, 3, 0, 1):
            note(log, times)
            found.append(numbers(follower.poll()))

    assert found == [[1], [], [2, 3, 4], [], [5]]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([None, 1, 50]),
)
def test_every_record_is_seen_once_over_any_number_of_rotations(
    written: list[int],
    compress: bool,  # noqa: FBT001 - drawn
    keep: int | None,
) -> None:
    """Looked at rarely or often, with files compressed meanwhile; what is removed before it is seen is not."""
    with TemporaryDirectory() as folder:
        follower, seen = Follower(Path(folder) / "audit.jsonl"), []
        with AuditLog(follower.path, max_bytes=700, compress=compress, keep=keep) as log:
            for times in written:
                note(log, times)
                seen += numbers(follower.poll())
                seen += numbers(follower.poll())  # a rotation that the first call has met
        last = read_log(follower.path)[-1]["sequence"]
        follower.close()

    if keep != 1:
        assert seen == list(range(1, int(str(last)) + 1))
    assert seen == sorted(set(seen))
    assert seen[-1] == last


class BusyPath(type(Path())):  # type: ignore[misc]
    """A path of which something happens to the file just before it is asked for."""

    meanwhile: ClassVar[list[Callable[[], None]]] = []

    def stat(self, **options: bool) -> os.stat_result:
        while self.meanwhile:
            self.meanwhile.pop()()
        return super().stat(**options)


def test_what_is_written_just_before_a_rotation_is_read(tmp_path: Path, follow_at: Follow) -> None:
    """Between the look at the open file and the one at what is in its place; also where it is removed at once."""
    follower = follow_at(BusyPath(tmp_path / "audit.jsonl"))
    with AuditLog(tmp_path / "audit.jsonl", max_bytes=2_000) as log:
        seen = numbers(follower.poll())
        BusyPath.meanwhile += [(tmp_path / "audit.jsonl.1").unlink, lambda: note(log, 12)]  # the last one first
        seen += numbers(follower.poll())
        seen += numbers(follower.poll())

    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 13


def test_a_file_that_a_network_file_system_has_forgotten_is_opened_again(
    tmp_path: Path, follow_at: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotated by another machine; any other error ends it."""
    follower = follow_at(tmp_path / "audit.jsonl")
    number = errno.ESTALE

    def forgotten(_: int) -> os.stat_result:
        monkeypatch.undo()
        raise OSError(number, os.strerror(number))

    with AuditLog(tmp_path / "audit.jsonl", max_bytes=2_000) as log:
        seen = numbers(follower.poll())
        note(log, 12)
        monkeypatch.setattr(os, "fstat", forgotten)
        seen += numbers(follower.poll())
        seen += numbers(follower.poll())
        number = errno.EIO
        monkeypatch.setattr(os, "fstat", forgotten)
        with pytest.raises(AuditError, match="Input/output"):
            list(follower.poll())

    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 13


def test_a_line_in_the_middle_of_being_written_is_waited_for(tmp_path: Path, follow_at: Follow) -> None:
    """Byte by byte: nothing is torn, and how much of it is there is known."""
    path = tmp_path / "audit.jsonl"
    with AuditLog(path) as log:
        note(log)
    whole, follower, found = path.read_bytes(), follow_at(tmp_path / "copy.jsonl"), []
    with follower.path.open("wb", buffering=0) as file:
        for at in range(len(whole)):
            file.write(whole[at : at + 1])
            found += numbers(follower.poll())
            left = whole[: at + 1].rpartition(b"\n")[2]
            assert follower.unfinished_bytes == (len(left) if follower.standing is Standing.FOLLOWED else 0)

    assert found == [1, 2]


def test_a_line_that_a_crash_has_torn_is_one_and_the_next_session_goes_on(tmp_path: Path, follow_at: Follow) -> None:
    """As the log itself does it: the torn line gets an end."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        note(log)
    with follower.path.open("ab") as file:
        file.write(b'{"event":"lifecycle.noted","seq')
    before = numbers(follower.poll())
    with AuditLog(follower.path) as log:
        note(log)

    assert (before, numbers(follower.poll())) == ([1, 2], ["Torn", 3, 4])


def test_another_log_in_the_place_is_another_run(tmp_path: Path, follow_at: Follow) -> None:
    """Moved there, or written over the old one in place."""
    path, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    with AuditLog(path) as log:
        note(log, 5)
    with AuditLog(other) as log:
        note(log)
    follower = follow_at(path)
    list(follower.poll())
    other.rename(path)
    moved = numbers(follower.poll())
    whole = path.read_bytes()
    path.write_bytes(b"")
    cut = numbers(follower.poll())
    path.write_bytes(whole)

    assert (moved, cut, numbers(follower.poll())) == (["Anew", 1, 2], ["Anew"], [1, 2])


def test_a_log_that_is_removed_is_gone_until_there_is_one_again(tmp_path: Path, follow_at: Follow) -> None:
    """What was written before is still read."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        list(follower.poll())
        note(log)
    follower.path.unlink()
    assert numbers(follower.poll()) == [2]
    assert follower.standing is Standing.GONE
    with AuditLog(follower.path):
        assert numbers(follower.poll()) == ["Anew", 1]
    assert follower.standing is Standing.FOLLOWED


def test_a_process_that_writes_is_followed_while_it_does(tmp_path: Path, follow_at: Follow) -> None:
    """Another process, with rotations; nothing is missed and nothing seen twice."""
    path = tmp_path / "audit.jsonl"
    program = (
        "import sys\nfrom lifecycle import AuditLog\n"
        "with AuditLog(sys.argv[1], max_bytes=20_000, compress=True) as log:\n"
        "    for _ in range(2000):\n        log.write('lifecycle.noted', {'note': 'x'})\n"
    )
    follower, seen = follow_at(path), []
    with subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT) as writer:
        while writer.poll() is None:
            seen += numbers(follower.poll())
            time.sleep(0.001)
    seen += numbers(follower.poll())
    seen += numbers(follower.poll())

    assert writer.returncode == 0
    assert len(list(tmp_path.iterdir())) > 5
    assert seen == list(range(1, len(seen) + 1))
    assert seen[-1] == read_log(path)[-1]["sequence"]


@pytest.fixture
def beginnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that small logs reach."""
    monkeypatch.setattr(start, "BEGIN_BYTES", 3_000)
    monkeypatch.setattr(start, "MOST_BYTES", 12_000)
    monkeypatch.setattr(follow, "MOST_BYTES", 12_000)


@pytest.mark.usefixtures("beginnings")
def test_a_long_log_is_read_from_its_end(tmp_path: Path, follow_at: Follow) -> None:
    """So far back as allowed, from a whole line on."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        note(log, 200)

    first, *_, last = numbers(follower.poll())

    assert last == 201
    assert isinstance(first, int)
    assert 100 < first < 170


@pytest.mark.usefixtures("beginnings")
@pytest.mark.parametrize("offset", range(-3, 4))
def test_a_line_that_begins_where_reading_does_is_not_lost(tmp_path: Path, follow_at: Follow, offset: int) -> None:
    """The byte before tells whether a line begins there."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        note(log, 200)
    lines = follower.path.read_bytes().splitlines(keepends=True)
    size_bytes = sum(map(len, lines[-40:]))
    start.MOST_BYTES = start.BEGIN_BYTES = size_bytes + offset  # put back by the fixture

    found = numbers(follower.poll())

    assert found == list(range(201 - 39 - (0 if offset >= 0 else -1), 202))


@pytest.mark.usefixtures("beginnings")
def test_it_goes_back_to_a_record_that_tells_all_facts(tmp_path: Path, follow_at: Follow) -> None:
    """And no further: with it everything that follows can be told."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        note(log, 20)
        log.write("lifecycle.refused", {"facts": {"shared": {}, "local": {}}})
        note(log, 40)

    found = numbers(follower.poll())

    assert 22 in found
    assert 2 not in found


@pytest.mark.usefixtures("beginnings")
@pytest.mark.parametrize("compress", [False, True])
def test_a_young_file_is_read_with_the_end_of_those_before_it(
    tmp_path: Path,
    follow_at: Follow,
    compress: bool,  # noqa: FBT001 - both are tried
) -> None:
    """They are read as far as they make up what is read at first."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path, max_bytes=2_000, compress=compress) as log:
        note(log, 60)
        assert len(list(tmp_path.iterdir())) > 4

        found = numbers(follower.poll())

    assert found == list(range(int(str(found[0])), int(str(found[-1])) + 1))
    assert 10 < len(found) < 40


@pytest.mark.usefixtures("beginnings")
def test_a_line_without_end_is_not_held(tmp_path: Path, follow_at: Follow) -> None:
    """However long it is, memory is bounded, and what follows is read."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path):
        list(follower.poll())
    found = []
    for _ in range(10):
        with follower.path.open("ab") as file:
            file.write(b"x" * 5_000)
        found += numbers(follower.poll())
        assert follower.unfinished_bytes <= 12_000
    with AuditLog(follower.path):
        found += numbers(follower.poll())

    assert found[-1] == 2
    assert set(found[:-1]) == {"Torn"}


def test_what_is_no_log_is_refused_at_once(tmp_path: Path, follow_at: Follow) -> None:
    """Text, a folder, a pipe that nobody writes into, a file that may not be read."""
    text, folder, pipe = tmp_path / "text", tmp_path / "folder", tmp_path / "pipe"
    text.write_text("some text\n")
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (text, folder, pipe):
        with pytest.raises(AuditError, match=r"no audit log|cannot be read"):
            list(follow_at(path).poll())


def test_lines_that_are_no_records_are_torn(tmp_path: Path, follow_at: Follow) -> None:
    """And stop nothing."""
    follower = follow_at(tmp_path / "audit.jsonl")
    with AuditLog(follower.path) as log:
        with follower.path.open("ab") as file:
            file.write(b"\n{}\n" + b"[" * 100_000 + b"\n\xff\n")
        found = list(follower.poll())
        del log

    assert [type(one) for one in found[1:]] == [Torn] * 4
    assert not any(isinstance(one, Anew) for one in found)
