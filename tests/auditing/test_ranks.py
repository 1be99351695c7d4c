"""Logs of several ranks: the same but for what is each rank's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lifecycle.auditing import Kind
from tests.auditing.logs import Record, found_in, good_log, nth, records_of, write_chained


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """The records of a good log."""
    return records_of(good_log(tmp_path_factory.mktemp("good") / "audit.jsonl"))


@pytest.fixture
def ranks(good: list[Record]) -> list[list[Record]]:
    """The same run on three ranks."""
    return [copied(good, rank) for rank in range(3)]


def copied(records: list[Record], rank: int) -> list[Record]:
    """The records of another rank: other times, and other facts of its own."""
    told: list[Record] = []
    room = {"device_free_bytes": 10**9 + rank}
    for one in records:
        facts: Any = one.get("facts")
        local = {} if facts is None else {"facts": {**facts, "local": {**facts["local"], **room}}}
        told.append({**one, "rank": rank, "time": f"2026-01-01T00:00:0{rank}+00:00", **local})
    return told


def written(folder: Path, ranks: list[list[Record]]) -> list[Path]:
    """The log of each rank."""
    return [write_chained(folder / f"audit-{rank}.jsonl", records) for rank, records in enumerate(ranks)]


def test_ranks_that_agree_give_no_finding(ranks: list[list[Record]], tmp_path: Path) -> None:
    """Times, bytes and local facts are each rank's own."""
    assert found_in(*written(tmp_path, ranks)) == []


@pytest.mark.parametrize(
    ("event", "trigger", "path", "value"),
    [
        ("began", "sleep", ("facts", "shared", "switch_target"), "ref"),
        ("moved", "trained", ("versions", "adapter/A"), 1 << 52),
        ("refused", "offload", ("edge",), "offloads-to-disk"),
        ("failed", "update_weights", ("target",), "faulted"),
    ],
)
def test_ranks_that_differ_are_named_where_they_part(
    event: str, trigger: str, path: tuple[str, ...], value: object, ranks: list[list[Record]], tmp_path: Path
) -> None:
    """Once, at the line of the log that is not as the first one; whatever else is found there has another kind."""
    at = nth(ranks[1], event, trigger)
    held = ranks[1][at] = {**ranks[1][at]}
    for key in path[:-1]:
        held[key] = {**held[key]}
        held = held[key]
    held[path[-1]] = value
    files = written(tmp_path, ranks)

    found = [one for one in found_in(*files) if one.kind is Kind.RANKS]

    assert [(one.file, one.line) for one in found] == [(str(files[1]), at + 1)]
    assert path[-1] in found[0].message
    assert repr(value) in found[0].message, "as the log has it, no name of ours"


def test_a_rank_that_ends_before_the_others_is_named(ranks: list[list[Record]], tmp_path: Path) -> None:
    """At its last line."""
    at = nth(ranks[2], "unchanged", "wake_up")
    del ranks[2][at + 1 :]
    files = written(tmp_path, ranks)

    assert [(one.kind, one.file, one.line) for one in found_in(*files)] == [(Kind.RANKS, str(files[2]), at + 1)]


def test_a_rank_that_goes_on_after_the_first_is_named(ranks: list[list[Record]], tmp_path: Path) -> None:
    """At what the first one has not."""
    at = nth(ranks[0], "unchanged", "wake_up")
    del ranks[0][at + 1 :]
    files = written(tmp_path, ranks[:2])

    assert [(one.kind, one.file, one.line) for one in found_in(*files)] == [(Kind.RANKS, str(files[1]), at + 2)]


@pytest.mark.parametrize("newcomer", [0, 1, 2])
def test_a_rank_that_has_joined_is_compared_from_then_on(
    newcomer: int, ranks: list[list[Record]], tmp_path: Path
) -> None:
    """Its log begins with the number at which the others admitted it."""
    at = nth(ranks[0], "unchanged", "wake_up")
    joined = {key: ranks[0][at][key] for key in ("schema", "run", "model", "time", "transition")}
    for rank, records in enumerate(ranks):
        versions = {one["group"]: one["version"] for one in records[at]["facts"]["shared"]["contents"]}
        told = {"note": "ranks joined", "ranks": [newcomer], "by": 1, "versions": versions}
        records.insert(at + 1, {"event": "lifecycle.noted", "sequence": 0, "rank": rank, **joined, **told})
        if rank == newcomer:
            del records[1 : at + 1]
        for number, one in enumerate(records, start=1):
            records[number - 1] = {**one, "sequence": number}

    assert found_in(*written(tmp_path, ranks)) == []
    late = nth(ranks[2], "began", "switch_model")
    ranks[2][late] = {**ranks[2][late], "edge": "keeps-and-switches"}
    assert Kind.RANKS in {one.kind for one in found_in(*written(tmp_path, ranks))}


def test_models_of_a_cohort_are_compared_with_their_own_ranks_alone(ranks: list[list[Record]], tmp_path: Path) -> None:
    """They take turns, and each has its own life; the logs of all may be given at once."""
    critics = [copied([{**one, "model": "critic"} for one in ranks[0][:13]], rank) for rank in range(2)]
    paths = written(tmp_path, [ranks[0], critics[0], ranks[1], critics[1]])

    assert found_in(*paths) == []

    at = nth(critics[1], "moved", "trained")
    critics[1][at] = {**critics[1][at], "edge": "another"}
    paths = written(tmp_path, [ranks[0], critics[0], ranks[1], critics[1]])
    assert [one.file for one in found_in(*paths) if one.kind is Kind.RANKS] == [str(paths[3])]


@pytest.mark.parametrize("is_first", [True, False])
def test_ranks_are_compared_by_their_facts_and_not_by_how_these_are_written(
    is_first: bool,  # noqa: FBT001 - a case
    tmp_path: Path,
) -> None:
    """One tells what changed, one all of them in each record: a log that was put aside or joined late begins anew."""
    changes = good_log(tmp_path / "audit-0.jsonl")
    full = copied(records_of(changes), 1)
    assert b'"since":' in changes.read_bytes()
    assert all("since" not in one.get("facts", {}) for one in full)

    def found() -> list[tuple[Kind, int, str]]:
        paths = [changes, write_chained(tmp_path / "audit-1.jsonl", full)]
        told = found_in(*(paths if is_first else reversed(paths)))
        return [(one.kind, one.line, one.message) for one in told if one.kind is Kind.RANKS]

    assert found() == []

    at = nth(full, "began", "offload")
    full[at]["facts"] = {**full[at]["facts"], "shared": {**full[at]["facts"]["shared"], "switch_target": "ref"}}
    (differs,) = found()
    assert differs[:2] == (Kind.RANKS, at + 1)
    assert "shared.switch_target" in differs[2]
