"""Two logs are compared by what two runs of the same program, or two ranks, have in common."""

from __future__ import annotations

import pytest

from lifecycle.audit import MemoryAudit
from lifecycle.audit.projection import canonical, first_difference
from lifecycle.audit.read import Record

FACTS = {"shared": {"lora": True, "to_load": ["a"]}, "local": {"host_free_bytes": 1}}
MOVED = {
    "transition": 1,
    "trigger": "sleep",
    "edge": "e",
    "source": "awake",
    "target": "sleeping",
    "versions": {"x": 1},
}


def _log(*records: tuple[str, dict[str, object]], run: str = "r") -> list[Record]:
    audit = MemoryAudit(run=run)
    for name, keys in records:
        audit.write(f"lifecycle.{name}", keys)
    return audit.records


def test_two_runs_of_the_same_program_have_the_same_projection() -> None:
    """Run, time, hash, notes and local facts differ; what was decided on shared facts does not."""
    began = {"transition": 1, "trigger": "sleep", "facts": FACTS}
    elsewhere = {**began, "facts": {**FACTS, "local": {"host_free_bytes": 2}}}
    one = _log(("began", began), ("moved", {**MOVED, "duration_s": 1.0}), run="a")
    two = _log(("began", elsewhere), ("noted", {"note": "n"}), ("moved", {**MOVED, "duration_s": 2.0}), run="b")

    assert canonical(one) == canonical(two)
    assert canonical(one)[0] == {
        "event": "lifecycle.began",
        "transition": 1,
        "trigger": "sleep",
        "shared": FACTS["shared"],
    }
    assert first_difference(one, two) is None


@pytest.mark.parametrize("key", list(MOVED))
def test_two_runs_that_took_another_way_differ(key: str) -> None:
    """The projection keeps the number, the edge, the states and the versions; what differs is named."""
    one, two = _log(("moved", MOVED)), _log(("moved", {**MOVED, key: "else"}))
    found = first_difference(one, two)

    assert canonical(one) != canonical(two)
    assert found is not None
    assert (found.index, found.key, found.one, found.other) == (0, key, MOVED[key], "else")


def test_the_first_shared_fact_that_differs_is_named() -> None:
    """With its place in the log, by its own name, and with both values."""
    records = [("unchanged", {"transition": 1}), ("refused", {"transition": 2, "facts": FACTS})]
    other = {**FACTS, "shared": {"lora": True, "to_load": []}}
    found = first_difference(_log(*records), _log(records[0], ("refused", {"transition": 2, "facts": other})))

    assert str(found) == "record 1, shared.to_load: ['a'] and []"


@pytest.mark.parametrize("turned", [False, True])
def test_a_version_that_only_one_log_tells_is_a_difference(*, turned: bool) -> None:
    """Also one that is told to be gone."""
    logs = [_log(("moved", {**MOVED, "versions": {"x": 1, "y": None}})), _log(("moved", MOVED))]
    found = first_difference(*(reversed(logs) if turned else logs))

    assert found is not None
    assert found.key == "versions.y"


@pytest.mark.parametrize("turned", [False, True])
def test_a_log_that_ends_before_the_other_differs_there(*, turned: bool) -> None:
    """The record that only one of them has is shown."""
    logs = [_log(("moved", MOVED), ("moved", MOVED)), _log(("moved", MOVED), ("noted", {}))]
    found = first_difference(*(reversed(logs) if turned else logs))

    assert found is not None
    assert (found.index, found.key) == (1, "")
    assert {found.one is None, found.other is None} == {True, False}
    assert str(found).startswith("record 1: ")


def test_a_projection_can_be_compared_as_the_log_itself() -> None:
    """So that ranks need not send their whole logs."""
    records = _log(("refused", {"transition": 1, "facts": FACTS}), ("moved", MOVED))

    assert canonical(canonical(records)) == canonical(records)
    assert first_difference(canonical(records), records) is None
