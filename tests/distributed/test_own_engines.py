"""Four real processes with an engine each, as where a trainer and its engine share a device: FB-49 and FB-50."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.ranks import TIMEOUT_S, WORLD, Ranks, Told

ALL = range(WORLD)
NOTHING = dict.fromkeys(ALL)
EVERYTHING = ["begin", "base:frozen-base", "base:buffers", "adapter:A", "adapter:B", "commit"]


@pytest.fixture
def ranks(sharers: Ranks) -> Ranks:
    """Every rank has an engine of its own, under one name."""
    assert sharers.all("own") == NOTHING
    return sharers


def _calls(ranks: Ranks) -> dict[int, list[str]]:
    return ranks.all("calls")


def _error(answers: dict[int, Any]) -> Told:
    assert all(isinstance(one, Told) for one in answers.values()), answers
    assert len({(one.kind, one.cause) for one in answers.values()}) == 1, answers
    return next(iter(answers.values()))


def _same_records(ranks: Ranks) -> list[dict[str, Any]]:
    looked = ranks.all("look")
    assert [one["records"] for one in looked.values()] == [looked[0]["records"]] * WORLD
    found: list[dict[str, Any]] = looked[0]["records"]
    return found


@pytest.mark.parametrize("shared", [True, False])
def test_no_rank_reads_what_it_sends_before_all_have_agreed(ranks: Ranks, tmp_path: Path, *, shared: bool) -> None:
    """FB-49, 1: the engine is ready late, and only rank 0 can see it; all wait for that, and then all push."""
    ready = tmp_path / "ready"
    if shared:
        assert ranks.all("share") == NOTHING
    ranks.one(0, "change", ready=ready)
    for rank in ALL:
        ranks.tell(rank, "push_and_time")
    ready.touch()
    times = {rank: ranks.hear(rank) for rank in ALL}

    assert min(began for _, began in times.values()) > max(known for known, _ in times.values())
    assert ranks.one(0, "calls") == EVERYTHING
    _same_records(ranks)


@pytest.mark.parametrize("shared", [True, False])
def test_an_engine_that_is_never_ready_is_an_error_on_every_rank(ranks: Ranks, *, shared: bool) -> None:
    """FB-49, 3: its client gives up; nothing is sent to it, and no rank waits for the timeout of the others."""
    if shared:
        assert ranks.all("share") == NOTHING
    ranks.one(0, "change", away=True)
    told = _error(ranks.all("push"))

    assert (told.kind, told.cause) == ("TransitionFailed", "RanksFailed")
    assert "it does not answer: EngineError: engine E0: it is away" in told.text
    assert ranks.one(0, "calls") == []
    ranks.one(0, "change", away=False)
    assert ranks.all("push") == NOTHING
    assert ranks.one(0, "calls") == EVERYTHING


@pytest.mark.parametrize("shared", [True, False])
def test_a_rank_whose_engine_never_answers_is_missed_within_the_bound(
    ranks: Ranks, tmp_path: Path, *, shared: bool
) -> None:
    """FB-49, 3: the others name it and have sent nothing; when it comes back it is fenced."""
    if shared:
        assert ranks.all("share") == NOTHING
    ready = tmp_path / "ready"
    ranks.one(0, "change", ready=ready)
    ranks.tell(0, "push")
    told = _error(ranks.all("push", deaf=(0,)))

    assert (told.kind, told.keys["ranks"]) == ("RanksMissing", (0,))
    assert told.keys["waited_s"] <= TIMEOUT_S + 1
    ready.touch()
    assert ranks.hear(0).kind == "RankFenced"
    assert not any(ranks.all("calls").values())
    ranks.end(0)


def test_what_the_engine_of_one_rank_lacks_all_ranks_send(ranks: Ranks) -> None:
    """It restarted: reading what it lacks may be a collective, so all do it, and the next push is a no-op for all."""
    assert ranks.all("push") == NOTHING
    ranks.one(1, "restart")
    assert ranks.all("push") == NOTHING

    assert _calls(ranks) == dict.fromkeys(ALL, EVERYTHING * 2)
    assert ranks.all("push") == NOTHING
    assert _same_records(ranks)[-1]["event"] == "lifecycle.unchanged"


@pytest.mark.parametrize("call", ["begin", "base:buffers", "adapter:B", "commit"])
def test_an_engine_that_fails_on_one_rank_fails_the_push_of_all(ranks: Ranks, call: str) -> None:
    """FB-50, 2: rank and reason on every rank; what was committed elsewhere stays, and the next push mends the one."""
    ranks.one(1, "change", fails_at=call)
    before = ranks.all("look")
    told = _error(ranks.all("push"))

    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksFailed", (1,))
    assert "rank 1: EngineError: engine E0: told to fail at" in told.text
    after = ranks.all("look")
    assert all(after[rank]["bytes"] == before[rank]["bytes"] for rank in ALL)
    ranks.one(1, "change", fails_at="")
    assert ranks.all("push") == NOTHING
    assert {one[0] for one in ranks.all("serves").values()} == {"current"}
    assert ranks.all("push") == NOTHING
    _same_records(ranks)


def test_an_engine_that_sleeps_on_one_rank_stops_the_push_of_all(ranks: Ranks) -> None:
    """A write into released memory is lost; nothing is sent anywhere."""
    ranks.one(2, "change", resident=set())
    answers = ranks.all("push")

    assert {one.kind for one in answers.values()} == {"EventRefused"}
    assert {one.keys["failed"][0][0] for one in answers.values()} == {"engines-hold-their-weights-tag"}
    assert not any(_calls(ranks).values())


def test_ranks_that_name_other_engines_disagree(ranks: Ranks) -> None:
    """Each name with its ranks; nothing is sent."""
    ranks.one(3, "change", name="E1")
    told = _error(ranks.all("push"))

    assert (told.kind, told.keys["ranks"]) == ("RanksDisagree", (3,))
    assert not any(_calls(ranks).values())


def test_a_rank_that_dies_in_its_push_is_named_within_the_bound(ranks: Ranks) -> None:
    """FB-50, 3: the others undo, bit for bit."""
    before = ranks.all("look")
    ranks.one(1, "dies_at", "adapter:A")
    ranks.tell(1, "push")
    told = _error(ranks.all("push", deaf=(1,)))

    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksMissing", (1,))
    after = ranks.all("look", deaf=(1,))
    assert all(after[rank]["bytes"] == before[rank]["bytes"] for rank in after)
