"""Lines that were changed, moved or cut off; logs in several files and of several sessions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lifecycle.audit import AuditLog, log_files
from lifecycle.auditing import Audited, Kind, audit_logs
from tests.auditing.logs import found_in, good_log, live, records_of, write_chained
from tests.auditing.runs import record
from tests.lifecycle.world import make_world


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A good log."""
    return good_log(tmp_path / "audit.jsonl")


def lines_of(path: Path) -> list[bytes]:
    """With their ends."""
    return path.read_bytes().splitlines(keepends=True)


def kinds_at(path: Path) -> set[tuple[Kind, int]]:
    """Kind and line of all that is found."""
    return {(one.kind, one.line) for one in found_in(path)}


def test_a_changed_line_is_found(log: Path) -> None:
    """Also where what was changed is of no meaning, as a time is."""
    lines = lines_of(log)
    lines[7] = lines[7].replace(b'"run":"good"', b'"run":"evil"', 1)
    lines[20] = lines[20].replace(b'"time":"2', b'"time":"1', 1)
    log.write_bytes(b"".join(lines))

    assert {(Kind.CHAIN, 8), (Kind.CHAIN, 21)} <= kinds_at(log)
    assert (Kind.CHAIN, 9) not in kinds_at(log)


def test_a_changed_hash_is_found_at_its_line_and_the_next(log: Path) -> None:
    """Both no longer follow."""
    lines = lines_of(log)
    lines[7] = lines[7][:-10] + b"00000" + lines[7][-5:]
    log.write_bytes(b"".join(lines))

    assert {one for one in kinds_at(log) if one[0] is Kind.CHAIN} == {(Kind.CHAIN, 8), (Kind.CHAIN, 9)}


def test_spaces_in_a_line_are_a_change(log: Path) -> None:
    """The hash is of the line as it was written, not of what it means."""
    lines = lines_of(log)
    lines[7] = json.dumps(json.loads(lines[7])).encode() + b"\n"
    log.write_bytes(b"".join(lines))

    assert kinds_at(log) == {(Kind.CHAIN, 8)}


def test_a_missing_line_is_found_after_it(log: Path) -> None:
    """Once as a gap and once in the chain; nothing that only follows from it is told."""
    lines = lines_of(log)
    del lines[7]
    log.write_bytes(b"".join(lines))

    assert kinds_at(log) >= {(Kind.SEQUENCE, 8), (Kind.CHAIN, 8)}
    assert {kind for kind, _ in kinds_at(log)} <= {Kind.SEQUENCE, Kind.CHAIN, Kind.MALFORMED}


def test_a_repeated_line_is_found(log: Path) -> None:
    """At the second of them."""
    lines = lines_of(log)
    lines.insert(8, lines[7])
    log.write_bytes(b"".join(lines))

    assert kinds_at(log) >= {(Kind.SEQUENCE, 9), (Kind.CHAIN, 9)}


def test_lines_that_changed_places_are_found(log: Path) -> None:
    """At the first that is not in its place."""
    lines = lines_of(log)
    lines[7], lines[8] = lines[8], lines[7]
    log.write_bytes(b"".join(lines))

    assert kinds_at(log) >= {(Kind.SEQUENCE, 8), (Kind.CHAIN, 8)}


def test_a_line_that_is_none_is_torn(log: Path) -> None:
    """In the middle nothing explains it."""
    lines = lines_of(log)
    lines[7] = b"what is this\n"
    log.write_bytes(b"".join(lines))

    assert (Kind.TORN, 9) in kinds_at(log)


def test_two_torn_lines_are_two(log: Path) -> None:
    """The first is told at its own line."""
    lines = lines_of(log)
    lines[7] = lines[8] = b"what is this\n"
    log.write_bytes(b"".join(lines))

    assert kinds_at(log) >= {(Kind.TORN, 8), (Kind.TORN, 10)}


@pytest.mark.parametrize("left", [1, 40, -2])
def test_a_log_that_is_cut_off_is_read_up_to_its_last_whole_record(log: Path, left: int) -> None:
    """That is no violation; what the cut record was the end of is."""
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:6]) + lines[6][:left])

    audited = Audited()
    found = list(audit_logs([log], audited))

    assert [one.kind for one in found] == [Kind.UNFINISHED]
    assert (audited.records, audited.cut_off) == (6, {str(log): 7})


def test_a_session_that_goes_on_after_a_crash_is_good_but_for_what_it_left_open(log: Path) -> None:
    """The next session names the torn line and what has no end; the chain goes on."""
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:6]) + lines[6][:50])
    world = make_world(adapters=())
    with AuditLog(log) as audit:
        record(world, audit)
        world.trainer.sleep()

    assert kinds_at(log) == {(Kind.UNFINISHED, 8)}


def test_sessions_after_a_crash_name_again_what_has_no_end(log: Path) -> None:
    """Each names all of the file that it has read, and not only what the one before it left open."""
    log.write_bytes(b"".join(lines_of(log)[:6]))
    for _ in range(2):
        AuditLog(log).close()
    log.write_bytes(log.read_bytes() + lines_of(log)[-1][:20])
    AuditLog(log).close()

    assert [one["sequence"] for one in json.loads(lines_of(log)[-1])["unfinished"]] == [6]
    assert kinds_at(log) == {(Kind.UNFINISHED, 7)}


@pytest.mark.parametrize("said", [[], [5], [5, 6], [6, 6]])
def test_a_session_that_names_something_else_without_an_end_is_found(log: Path, said: list[int]) -> None:
    """Also a later one; what only follows from that is not reported."""
    log.write_bytes(b"".join(lines_of(log)[:6]))
    for _ in range(3):
        AuditLog(log).close()
    records = records_of(log)
    for one in records[7:]:
        one["unfinished"] = [{**one["unfinished"][0], "sequence": number} for number in said]

    assert kinds_at(write_chained(log, records)) == {(Kind.UNFINISHED, 7), (Kind.SESSION, 8)}


def test_a_line_that_was_torn_more_than_a_session_says_is_found(log: Path) -> None:
    """The session says how long it was."""
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:5]) + lines[5][:50])
    AuditLog(log).close()
    log.write_bytes(log.read_bytes().replace(lines[5][:50], lines[5][:49]))

    assert kinds_at(log) == {(Kind.TORN, 7)}


@pytest.mark.parametrize("compress", [False, True])
def test_a_log_in_many_files_is_read_in_their_order(tmp_path: Path, *, compress: bool) -> None:
    """The chain goes on over all of them; a finding names the file."""
    path = good_log(tmp_path / "audit.jsonl", max_bytes=9_000, compress=compress)
    files = log_files(path)

    assert len(files) > 3
    assert found_in(path) == []
    # For itself a file may end while somebody reads, and nothing else is wrong with it.
    assert {one.kind for file in files[:-1] for one in audit_logs([file])} <= {Kind.LEASE}
    spoiled = files[1]
    held = gzip.decompress(spoiled.read_bytes()) if compress else spoiled.read_bytes()
    lines = held.replace(b'"time":"2', b'"time":"1').splitlines(keepends=True)
    spoiled.write_bytes(gzip.compress(b"".join(lines)) if compress else b"".join(lines))
    found = found_in(path)
    assert {one.kind for one in found} == {Kind.CHAIN}
    assert {one.line for one in found if one.file == str(spoiled)} == set(range(1, len(lines) + 1))


def test_a_file_that_is_missing_in_the_middle_is_a_gap(tmp_path: Path) -> None:
    """The oldest may have been removed by the log itself, one in the middle may not."""
    path = good_log(tmp_path / "audit.jsonl", max_bytes=9_000)
    log_files(path)[0].unlink()
    assert found_in(path) == []

    log_files(path)[1].unlink()
    found = found_in(path)
    assert {one.kind for one in found} == {Kind.SEQUENCE, Kind.CHAIN, Kind.SESSION}
    assert {one.line for one in found} == {1}


def test_two_sessions_in_one_log_are_good(log: Path) -> None:
    """Numbers of transitions and states begin anew, and so do versions."""
    world = make_world()
    with AuditLog(log, run="another") as audit:
        record(world, audit)
        live(world)

    assert found_in(log) == []
