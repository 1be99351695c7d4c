"""Four real processes and one engine: it is called once, and whatever happens, all ranks come to the same end."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.distributed.ranks import TIMEOUT_S, WORLD, Ranks, Told

ALL = range(WORLD)
NOTHING = dict.fromkeys(ALL)
HELD = {"frozen-base", "buffers", "adapter/A", "adapter/B"}


@pytest.fixture
def ranks(sharers: Ranks) -> Ranks:
    """All there, each with a new trainer with adapters A and B; rank 0 has an engine that they share."""
    return sharers


def _alike(answers: dict[int, Any]) -> Any:
    """What all ranks say."""
    first = next(iter(answers.values()))
    assert all(one == first for one in answers.values()), answers
    return first


def _error(answers: dict[int, Any]) -> Told:
    """The one error that all ranks raised."""
    assert all(isinstance(one, Told) for one in answers.values()), answers
    assert len({(one.kind, one.cause) for one in answers.values()}) == 1, answers
    return next(iter(answers.values()))


def _records(ranks: Ranks, **how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _alike({rank: one["records"] for rank, one in ranks.all("look", **how).items()})
    return found


def _aborted_everywhere(ranks: Ranks, **how: Any) -> dict[str, Any]:
    """Every rank is where it was and has the same books, in which nothing of the engine is believed."""
    looked = ranks.all("look", **how)
    assert {one["state"] for one in looked.values()} == {"awake"}
    books = [one["fenced"] for one in ranks.all("standing", **how).values()]
    assert [{name: suspect for name, (_, suspect) in one.items()} for one in books] == [{"E0": None}] * len(books)
    return looked


def test_an_engine_gets_each_version_once(ranks: Ranks) -> None:
    """The base and both adapters, then what was trained; a push of nothing is a no-op on every rank."""
    assert ranks.all("push") == NOTHING
    assert ranks.one(0, "calls") == ["begin", "base:frozen-base", "base:buffers", "adapter:A", "adapter:B", "commit"]
    assert ranks.all("train", "A") == NOTHING
    assert ranks.all("push") == NOTHING
    assert ranks.one(0, "calls")[6:] == ["begin", "base:buffers", "adapter:A", "commit"]
    assert ranks.all("push") == NOTHING
    serves, held = _alike(ranks.all("serves"))
    assert (serves, set(held)) == ("current", HELD)
    _alike(ranks.all("standing"))
    assert [one["event"] for one in _records(ranks)][-1] == "lifecycle.unchanged"


def test_a_whole_turn_to_a_shared_engine_and_back(ranks: Ranks) -> None:
    """Sleep, offload, resume, push, serve, release, wake: by the same steps on every rank."""
    assert _alike(ranks.all("hand_over")) == {"E0": "current"}
    calls = ranks.one(0, "calls")
    assert calls[-1].startswith("release:")
    assert calls.count("commit") == 1
    assert len(_records(ranks)) > 6
    assert _alike({rank: one["state"] for rank, one in ranks.all("look").items()}) == "awake"


@pytest.mark.parametrize("call", ["begin", "base:", "adapter:B", "commit"])
def test_an_engine_that_fails_fails_on_every_rank_alike(ranks: Ranks, call: str) -> None:
    """The same error, the same books; aborted once; what it lacks is sent at the next push."""
    ranks.one(0, "change", fails_at=call)
    answers = ranks.all("push")
    told = _error(answers)

    assert (told.kind, told.cause) == ("TransitionFailed", "RanksFailed")
    assert told.keys["ranks"] == (0, 1, 2, 3)
    assert "EngineError: engine E0: told to fail at" in told.text
    assert ranks.one(0, "calls")[-1] == "abort"
    assert ranks.one(0, "calls").count("abort") == 1
    _alike(ranks.all("standing"))
    _records(ranks)
    ranks.one(0, "change", fails_at="")
    assert ranks.all("push") == NOTHING
    assert _alike(ranks.all("serves"))[0] == "current"


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("tensor", ["up", "lora_b.1"])
def test_a_rank_that_cannot_read_its_own_bytes_makes_all_go_back(ranks: Ranks, rank: int, tensor: str) -> None:
    """In the middle of the base, and before the first byte is sent; the engine's update is aborted, by who has it."""
    ranks.one(rank, "cannot_read", tensor)
    started = time.monotonic()
    answers = ranks.all("push")
    told = _error(answers)

    assert time.monotonic() - started < TIMEOUT_S
    assert (told.kind, told.cause) == ("TransitionFailed", "RanksFailed")
    assert all(f"{tensor} cannot be read here" in one.text for one in answers.values())
    calls = ranks.one(0, "calls")
    assert [calls[0], calls[-1]] == ["begin", "abort"] if tensor == "up" else calls == []
    ranks.one(rank, "cannot_read")
    assert ranks.all("push") == NOTHING
    assert _alike(ranks.all("serves"))[0] == "current"
    _records(ranks)


def test_an_engine_that_fails_does_not_keep_the_next_one_from_its_push(ranks: Ranks) -> None:
    """All ranks go on to it together; what it has committed stays."""
    assert ranks.all("share_another") == NOTHING
    ranks.one(0, "change", fails_at="base:")
    told = _error(ranks.all("push_both"))

    assert "told to fail at base:frozen-base" in told.text
    assert ranks.one(0, "second_calls")[-1] == "commit"
    ranks.one(0, "change", fails_at="")
    assert ranks.all("push_both") == NOTHING
    assert ranks.one(0, "second_calls").count("commit") == 1
    _alike(ranks.all("standing"))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_fails_in_one_push_is_why_none_is_made(ranks: Ranks, rank: int) -> None:
    """What failed first is what all say. Where it is the one with the engines, all go on to the next one together."""
    assert ranks.all("share_another") == NOTHING
    ranks.one(rank, "cannot_read", "up")
    told = _error(ranks.all("push_both"))

    assert told.cause == "RanksFailed"
    assert "up cannot be read here" in told.text
    assert ranks.one(0, "second_calls") == ([] if rank else ["begin", "abort"])
    ranks.one(rank, "cannot_read")
    assert ranks.all("push_both") == NOTHING
    _alike(ranks.all("standing"))
    _records(ranks)


@pytest.mark.parametrize("call", ["base:buffers", "commit"])
def test_the_rank_with_the_engine_dies_in_the_middle_of_a_push(ranks: Ranks, call: str) -> None:
    """The others go back bit for bit, and what they had sent through it counts for nothing in their books."""
    before = ranks.all("look")
    ranks.one(0, "dies_at", call)
    ranks.tell(0, "push")
    started = time.monotonic()
    told = _error(ranks.all("push", deaf=(0,)))

    assert time.monotonic() - started < TIMEOUT_S + 1
    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksMissing", (0,))
    after = _aborted_everywhere(ranks, deaf=(0,))
    assert all(after[rank]["bytes"] == before[rank]["bytes"] for rank in after)
    assert [one["versions"] for one in after.values()] == [before[rank]["versions"] for rank in after]
    _records(ranks, deaf=(0,))


def test_another_rank_dies_in_the_middle_of_a_push(ranks: Ranks) -> None:
    """The one with the engine aborts; nothing of it is believed on any rank that is left."""
    ranks.one(2, "dies_reading", "lora_b.1")
    ranks.tell(2, "push")
    told = _error(ranks.all("push", deaf=(2,)))

    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksMissing", (2,))
    assert "commit" not in ranks.one(0, "calls")
    ranks.all("look", deaf=(2,))


def test_a_rank_that_is_stopped_in_the_middle_of_a_push_is_fenced(ranks: Ranks) -> None:
    """The others go on without it; it may not call the engine again."""
    ranks.signal(0, signal.SIGSTOP)
    ranks.tell(0, "push")
    told = _error(ranks.all("push", deaf=(0,)))

    assert (told.kind, told.keys["ranks"]) == ("RanksMissing", (0,))
    ranks.signal(0, signal.SIGCONT)
    assert ranks.hear(0).kind == "RankFenced"
    assert ranks.one(0, "calls") == []
    assert ranks.one(0, "push").kind == "RankFenced"
    assert ranks.one(0, "calls") == []
    ranks.end(0)


def test_an_engine_of_another_rank_is_called_there(ranks: Ranks) -> None:
    """Any rank can have it."""
    assert ranks.all("share", by=3) == NOTHING
    assert ranks.all("push") == NOTHING

    assert [ranks.one(rank, "calls") is not None for rank in ALL] == [False, False, False, True]
    assert ranks.one(3, "calls")[-1] == "commit"


def test_an_engine_that_restarted_gets_everything_again(ranks: Ranks) -> None:
    """Every rank hears of the new instance."""
    assert ranks.all("push") == NOTHING
    ranks.one(0, "restart")
    assert _alike(ranks.all("serves"))[0] != "current"
    assert ranks.all("push") == NOTHING
    serves, held = _alike(ranks.all("serves"))
    assert (serves, set(held)) == ("current", HELD)
    assert _alike(ranks.all("standing"))["confirmed"] == {"E0": "E0-1"}
