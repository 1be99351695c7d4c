"""A log alone tells what happened, and whether it was tampered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lifecycle.audit.log import AuditLog, MemoryAudit
from lifecycle.audit.read import Record, Records, read_log
from lifecycle.audit.tail import unfinished
from lifecycle.audit.verify import verify_chain
from lifecycle.auditing.lines import lines_of
from lifecycle.errors import AuditError


def _log(*names: str, run: str = "r") -> list[Record]:
    audit = MemoryAudit(run=run)
    for number, name in enumerate(names):
        keys = {"transition": number // 2, "trigger": "sleep", "facts": {"shared": {"lora": True}, "local": {"x": run}}}
        audit.write(f"lifecycle.{name}", keys)
    return audit.records


def test_a_whole_log_has_no_problems() -> None:
    """Also an empty one."""
    assert verify_chain([]) == []
    assert verify_chain(_log("began", "moved", "refused")) == []


def test_a_changed_record_is_found() -> None:
    """One value changed: its hash does not fit any more."""
    records = _log("began", "moved", "began", "moved")
    records[1]["trigger"] = "offload"

    assert verify_chain(records) == ["record 2 does not follow from the one before it: one of them was changed"]


def test_a_changed_record_with_a_new_hash_is_found_at_the_next_one() -> None:
    """Mending the hash of one record breaks the next."""
    records = _log("began", "moved")
    records[0]["hash"] = "0" * 64

    assert len(verify_chain(records)) == 2


def test_a_missing_record_is_found() -> None:
    """A line that was taken out leaves a gap in the numbers and in the chain."""
    records = _log("began", "moved", "began")
    del records[1]

    problems = verify_chain(records)
    assert problems[0] == "record 2 is missing or out of order: 3 stands in its place"
    assert len(problems) == 2


def test_a_record_without_a_number_is_found() -> None:
    """What has no number is no record of ours."""
    records = _log("began")
    records[0]["sequence"] = "one"

    assert "record 1 is missing" in verify_chain(records)[0]


def test_a_torn_line_that_no_session_reported_is_a_problem(tmp_path: Path) -> None:
    """Damage in the middle of a file is not explained by a crash."""
    path = tmp_path / "log"
    with AuditLog(path) as log:
        log.write("lifecycle.noted", {})
    path.write_bytes(path.read_bytes() + b"\xff{broken\n")

    records = read_log(path)
    assert [(one.line, one.size_bytes) for one in records.torn] == [(3, 8)]
    assert "line 3 is torn (8 bytes" in verify_chain(records)[0]


def test_a_line_that_is_json_but_no_record_is_torn(tmp_path: Path) -> None:
    """A number, a list or an object without hash is no record."""
    path = tmp_path / "log"
    path.write_text('1\n[]\n{"sequence": 1}\n')

    records = read_log(path)
    assert records == Records()
    assert len(records.torn) == 3


def test_brackets_without_end_are_a_torn_line_for_every_reader(tmp_path: Path) -> None:
    """Deeper than a parser goes: no error from inside of it."""
    path = tmp_path / "a.jsonl"
    with AuditLog(path, run="r") as audit:
        audit.write("lifecycle.noted", {"note": "before"})
    with path.open("ab") as file:
        file.write(b'{"event":"lifecycle.noted","note":' + b"[" * 200_000 + b"\n")

    (torn,) = read_log(path).torn

    assert torn.line == 3
    assert [line.record for line in lines_of(path)][2] is None


def test_a_log_that_cannot_be_read_is_our_error(tmp_path: Path) -> None:
    """A missing file is named."""
    with pytest.raises(AuditError, match="cannot be read"):
        read_log(tmp_path / "missing")


def test_a_transition_that_ended_either_way_is_finished() -> None:
    """Moved and failed both end it; a refusal stands alone."""
    assert unfinished(_log("began", "moved", "began", "failed", "refused")) == []


def test_a_transition_without_an_end_is_found_wherever_it_stands() -> None:
    """The last one (the process died in it), and one that another began or session follows."""
    records = _log("began", "noted", "began", "moved", "began")

    assert [one["transition"] for one in unfinished(records)] == [0, 2]


def test_a_new_session_does_not_end_the_transition_of_the_one_before(tmp_path: Path) -> None:
    """The new controller counts from one again: its moved record is not the end of the old began."""
    path = tmp_path / "log"
    with AuditLog(path) as log:
        log.write("lifecycle.began", {"transition": 1})
    with AuditLog(path) as log:
        log.write("lifecycle.began", {"transition": 1})
        log.write("lifecycle.moved", {"transition": 1})

    assert [one["sequence"] for one in unfinished(read_log(path))] == [2]


def test_an_end_whose_beginning_was_not_written_ends_nothing_of_another_session(tmp_path: Path) -> None:
    """A full disk may swallow a began: the moved that follows it is of this session, the open one of the last."""
    path = tmp_path / "log"
    with AuditLog(path) as log:
        log.write("lifecycle.began", {"transition": 1})
    with AuditLog(path) as log:
        log.write("lifecycle.moved", {"transition": 1})

    assert [one["sequence"] for one in unfinished(read_log(path))] == [2]


def test_a_log_of_another_format_is_said_to_be_one_and_not_to_be_damaged(tmp_path: Path) -> None:
    """Development versions wrote a space after each colon, and hashed otherwise: no line of theirs was changed."""
    path = tmp_path / "audit.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in _log("began", "moved")))
    before = path.read_bytes()

    for read in (read_log, AuditLog):
        with pytest.raises(AuditError, match="it is of another format") as caught:
            read(path)
        assert "write to another path" in str(caught.value)
    assert path.read_bytes() == before
