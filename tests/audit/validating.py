"""A plugin of pytest: while it is loaded, each record that is written is held against the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lifecycle.audit.chain import Chain, Keys

SCHEMA = Path(__file__).parents[2] / "docs" / "audit-record.schema.json"


class Seen:
    """What was written, by kind, and what of it is not as the schema says."""

    def __init__(self) -> None:
        schema = json.loads(SCHEMA.read_text())
        Draft202012Validator.check_schema(schema)
        self._kinds = {
            kind["properties"]["event"]["enum"][0]: Draft202012Validator({"$defs": schema["$defs"], **kind})
            for kind in (schema["$defs"][one["$ref"].rpartition("/")[2]] for one in schema["oneOf"])
        }
        self._whole = Draft202012Validator(schema)
        self.counts: dict[str, int] = {}
        self.problems: list[str] = []

    def see(self, record: dict[str, Any]) -> None:
        """Look at one record as it is written."""
        kind = record["event"]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        for error in self._kinds[kind].iter_errors(record):
            self.problems.append(f"{kind} {list(error.absolute_path)}: {error.message[:300]}")
        if self.counts[kind] <= 3:  # the schema as a whole is slow, and says the same
            assert self._whole.is_valid(record) != bool(self.problems)


def pytest_configure(config: pytest.Config) -> None:
    """Look at whatever a chain stamps for the recorder or for a log of its own accord."""
    seen, line = Seen(), Chain.line

    def watched(self: Chain, name: str, keys: Keys) -> str:
        text = line(self, name, keys)
        seen.see(json.loads(text))
        return text

    Chain.line = watched  # type: ignore[method-assign]
    config.seen_records = seen  # type: ignore[attr-defined]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Any problem fails the session."""
    seen: Seen = session.config.seen_records  # type: ignore[attr-defined]
    print(f"\nrecords: {json.dumps(seen.counts, sort_keys=True)}")
    for one in dict.fromkeys(seen.problems[:50]):
        print(f"not as the schema says: {one}")
    if seen.problems:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
