"""How many lines are held at a time changes nothing of what is found, nor does where one batch ends."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lifecycle.auditing import Audited, Violation, audit_logs, one_log
from lifecycle.errors import AuditError
from tests.auditing.logs import good_log, records_of, write_chained
from tests.auditing.spoils import SPOILS


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a good run."""
    return good_log(tmp_path_factory.mktemp("good") / "audit.jsonl")


def found_by(lines_max: int, log: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Violation], Audited]:
    """What is found with so many lines at a time, and what was read."""
    monkeypatch.setattr(one_log, "LINES_MAX", lines_max)
    monkeypatch.setattr(one_log, "LINES_MIN", min(lines_max, one_log.LINES_MIN))
    audited = Audited()
    return list(audit_logs([log], audited)), audited


@pytest.mark.parametrize("name", SPOILS)
def test_the_same_is_found_however_many_lines_are_held(
    name: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, a few, or the whole log."""
    records = records_of(good)
    SPOILS[name][1](records)
    log = write_chained(tmp_path / "audit.jsonl", records)

    one, few, all_of_them = (found_by(lines, log, monkeypatch) for lines in (1, 3, len(records) + 1))

    assert one == few == all_of_them
    assert one[1].records == len(records)


def test_lines_that_are_none_are_found_across_batches(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two in a row, one of which is the last of its batch; and one at the end, which was cut off."""
    lines = good.read_bytes().splitlines(keepends=True)
    log = tmp_path / "audit.jsonl"
    log.write_bytes(b"".join((*lines[:6], b"{\n", b"[\n", *lines[6:], b'{"event":"lifec')))

    found = [found_by(at_a_time, log, monkeypatch) for at_a_time in (1, 7, 8, 1_000)]

    assert [one.line for one in found[0][0]][:2] == [7, 9]
    assert found[0][1].cut_off == {str(log): len(lines) + 3}
    assert all(one == found[0] for one in found)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records one check is shown at a time, batch by batch."""
    counts: list[int] = []
    show = one_log._show

    def seen(check: object, records: list[object]) -> None:
        counts.append(len(records))
        show(check, records)  # type: ignore[arg-type]  # as they were handed over

    monkeypatch.setattr(one_log, "_show", seen)
    return counts


def test_large_lines_are_held_a_few_at_a_time(good: Path, held: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many: as many bytes as are allowed, and one more line."""
    monkeypatch.setattr(one_log, "BYTES_MAX", 1)

    assert list(audit_logs([good])) == []
    assert max(held) == 1


def test_records_of_many_adapters_are_held_a_few_at_a_time(
    good: Path, held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short line may change all of them, and each record has facts of its own."""
    monkeypatch.setattr(one_log, "ENTRIES_MAX", 8)

    assert list(audit_logs([good])) == []
    assert held[0] == one_log.LINES_MIN, "nothing is known of the first"
    assert max(held[len(held) // 2 :]) <= 2


def test_what_was_read_before_an_error_is_looked_at(good: Path, tmp_path: Path) -> None:
    """The file ends in the middle: what is wrong before that is told, and then that it cannot be read."""
    records = records_of(good)
    records[3]["rank"] = 7
    log = write_chained(tmp_path / "audit.jsonl", records)
    cut = tmp_path / "audit.jsonl.1.gz"
    cut.write_bytes(gzip.compress(log.read_bytes(), compresslevel=0)[:-600])
    audit = audit_logs([cut])

    assert next(audit).line == 4
    with pytest.raises(AuditError, match="it cannot be read"):
        list(audit)
