"""The published schema is what the types say, and what is written is as it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import fields

from lifecycle.audit.chain import NAMES, OPENED, SCHEMA
from lifecycle.audit.log import AuditLog
from lifecycle.audit.schema import KINDS, record_schema
from tests.auditing.logs import live
from tests.auditing.runs import record
from tests.lifecycle.world import make_world

ROOT = Path(__file__).parents[2]
REPLAY = "tests/audit/test_replay.py::test_every_decision_follows_from_the_record_alone"
REQUIRED = {
    str(kind.__struct_config__.tag): ["event", *(one.encode_name for one in fields(kind) if one.required)]
    for kind in KINDS
}
"""The keys that a record of each kind has at least. A note has others of its own."""
WORLDS = (REPLAY, "tests/lifecycle/test_ledger.py")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """One record of each kind that a short life writes, as it is written."""
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    world = make_world()
    with AuditLog(path) as log:
        record(world, log)
        live(world)
    return {one["event"]: one for one in map(json.loads, path.read_text().splitlines())}


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """The schema, which is one."""
    schema = record_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_every_kind_of_record_has_a_type() -> None:
    """Those that a caller may write, and the log's own."""
    assert {one.__struct_config__.tag for one in KINDS} == {*NAMES, OPENED}


def test_a_record_that_was_changed_is_not_as_the_schema_says(
    lines: dict[str, dict[str, Any]], validator: Draft202012Validator
) -> None:
    """A key that is missing, one too many, one of another type, another version, a state or event that is none."""
    assert len(lines) >= 5
    for event, line in lines.items():
        assert validator.is_valid(line)
        assert not validator.is_valid(line | {"schema": SCHEMA + 1})
        assert not validator.is_valid(line | {"sequence": "1"})
        assert not validator.is_valid(line | {"event": "lifecycle.else"})
        assert not validator.is_valid(line | {"hash": "else"})
        for key in REQUIRED[event]:
            assert not validator.is_valid({name: one for name, one in line.items() if name != key}), key
    began = lines["lifecycle.began"]
    assert not validator.is_valid(began | {"else": 1})
    assert not validator.is_valid(began | {"source": "dreaming"})
    assert not validator.is_valid(began | {"trigger": "dream"})
    assert not validator.is_valid(began | {"verdicts": [{"name": "x"}]})
    assert not validator.is_valid(began | {"facts": {"shared": {}, "local": {}}})
    assert not validator.is_valid(began | {"facts": {"since": 1, "shared": {"contents": 3}, "local": {}}})
    assert validator.is_valid(began | {"facts": {"since": 1, "shared": {}, "local": {}}})
    assert validator.is_valid(lines["lifecycle.unchanged"])


def test_whatever_the_worlds_of_the_tests_write_is_as_the_schema_says() -> None:
    """Every kind of record, each line as it is written."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.audit.validating", *WORLDS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    counts = json.loads(done.stdout.rpartition("records: ")[2].splitlines()[0])
    assert set(counts) == {*NAMES, OPENED}
    assert sum(counts.values()) > 100
