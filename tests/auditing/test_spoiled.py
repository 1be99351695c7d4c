"""Each way to spoil a good log is found and named, with the line at which it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.auditing.logs import Record, found_in, good_log, records_of, write_chained
from tests.auditing.spoils import SPOILS


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a good run."""
    return good_log(tmp_path_factory.mktemp("good") / "audit.jsonl")


@pytest.fixture
def records(good: Path) -> list[Record]:
    """Its records, to be spoiled."""
    return records_of(good)


def test_the_good_log_is_good(good: Path, records: list[Record], tmp_path: Path) -> None:
    """As it was written, and with whole facts in every record."""
    assert found_in(good) == []
    assert found_in(write_chained(tmp_path / "audit.jsonl", records)) == []


@pytest.mark.parametrize("name", SPOILS)
def test_what_is_wrong_is_found_at_its_line(name: str, records: list[Record], tmp_path: Path) -> None:
    """The chain holds and every number is right: the first thing found is that, and there."""
    kind, spoil = SPOILS[name]
    at = spoil(records)

    found = found_in(write_chained(tmp_path / "audit.jsonl", records))

    assert found
    assert (found[0].kind, found[0].line) == (kind, at + 1), found
    assert found[0].file == str(tmp_path / "audit.jsonl")
