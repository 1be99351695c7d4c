"""Four real processes: one of them registers, all of them load; and what one of them says is heard by all."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.distributed.ranks import _CONTEXT, WORLD, Ranks, Told
from tests.distributed.registries import Registrar, digits

ALL = range(WORLD)


@pytest.fixture(scope="module")
def processes() -> Iterator[Ranks]:
    """Four processes and a store, ended whatever happens."""
    _CONTEXT.set_forkserver_preload(["pytest", "tests.distributed.warm"])
    with Ranks(Registrar) as ranks:
        yield ranks


@pytest.fixture
def ranks(processes: Ranks) -> Ranks:
    """The same, all there, each with a new trainer on a new, empty registry."""
    lost = [one for one in ALL if one not in processes.processes or not processes.processes[one].is_alive()]
    processes.start(*lost)
    assert processes.all("build") == dict.fromkeys(ALL)
    return processes


def _same(answers: dict[int, Any]) -> Any:
    assert all(one == answers[0] for one in answers.values()), answers
    return answers[0]


def test_what_rank_0_registers_alone_all_ranks_load(ranks: Ranks) -> None:
    """Given tensors and fresh ones, into the same slots, with the same bytes; the others make no call."""
    ranks.one(0, "call", "register", "B", seed=3)
    ranks.one(0, "call", "register", "A", seed_of_tensors=7)

    assert ranks.all("event", "reconcile_adapters", "sleep", "offload", "wake_up") == dict.fromkeys(ALL)
    looked = _same(ranks.all("looks"))
    assert looked["loaded"] == {"A": (2, 1), "B": (1, 0)}


def test_what_rank_0_deregisters_alone_all_ranks_retire(ranks: Ranks) -> None:
    """Also asleep; the slot is free on all, and the next adapter gets it."""
    for name in "AB":
        ranks.one(0, "call", "register", name)
    ranks.all("event", "reconcile_adapters", "sleep", "offload")
    ranks.one(0, "call", "deregister", "A")
    ranks.all("event", "reconcile_adapters")
    assert _same(ranks.all("looks"))["completed"] == ["A"]

    ranks.one(0, "call", "register", "C", seed=9)
    assert ranks.all("event", "reconcile_adapters", "wake_up") == dict.fromkeys(ALL)
    assert _same(ranks.all("looks"))["loaded"] == {"B": (2, 1), "C": (3, 0)}


def test_a_load_that_fails_on_one_rank_leaves_the_registry_of_all_as_rank_0_says(ranks: Ranks) -> None:
    """It stays pending everywhere; the next reconcile loads it."""
    ranks.one(0, "call", "register", "A")
    ranks.one(2, "spoil", "A")
    answers = ranks.all("event", "reconcile_adapters")
    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("TransitionFailed", (2,))}
    assert _same(ranks.all("looks"))["states"]["A"] == "pending"

    ranks.one(2, "spoil")
    assert ranks.all("event", "reconcile_adapters") == dict.fromkeys(ALL)
    assert _same(ranks.all("looks"))["loaded"] == {"A": (1, 0)}


def test_a_rank_that_dies_is_named_and_a_new_one_hears_the_registry_at_its_first_event(ranks: Ranks) -> None:
    """Rank 0 tells everything to who has nothing; what the others have loaded is not lost."""
    ranks.one(0, "call", "register", "A", seed_of_tensors=7)
    ranks.all("event", "sleep")
    ranks.end(3)
    answers = ranks.all("event", "wake_up")
    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("RanksMissing", (3,))}

    ranks.start(3)
    assert ranks.all("build") == dict.fromkeys(ALL)
    ranks.one(0, "call", "register", "B")
    assert ranks.all("event", "reconcile_adapters") == dict.fromkeys(ALL)
    assert _same(ranks.all("looks"))["loaded"] == {"B": (1, 0)}


@pytest.mark.parametrize("size_bytes", [0, 1, 64, 65, 1000, 3 << 20, 65 << 20])
def test_what_one_rank_says_is_heard_by_all(ranks: Ranks, size_bytes: int) -> None:
    """Over gloo, in chunks where it is large."""
    digests = ranks.all("hears", by=2, size_bytes=size_bytes)

    assert _same(digests) == hashlib.sha256(digits(size_bytes)).hexdigest()


def test_a_rank_that_fails_before_it_hears_is_heard(ranks: Ranks) -> None:
    """Inside a transition: one fails in an effect while the others are being told something; all go back at once."""
    for rank in ALL:
        ranks.one(rank, "hook_telling", fails=rank == 1)
    answers = ranks.all("event", "sleep")

    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("TransitionFailed", (1,))}
    assert all("ValueError: it broke" in one.text for one in answers.values())
    for rank in ALL:
        ranks.one(rank, "hook_telling", fails=False)
    assert ranks.all("event", "sleep") == dict.fromkeys(ALL)


def test_a_rank_that_dies_while_it_tells_is_named(ranks: Ranks) -> None:
    """The others undo what they had begun."""
    for rank in ALL:
        ranks.one(rank, "hook_telling", dies=rank == 0)
    answers = _told_but(ranks, 0)

    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("TransitionFailed", (0,))}
    assert [ranks.one(rank, "stands") for rank in (1, 2, 3)] == ["awake"] * 3


def _told_but(ranks: Ranks, lost: int) -> dict[int, Told]:
    """All ranks send an event, and one of them does not answer."""
    for rank in ALL:
        ranks.tell(rank, "event", "sleep")
    return {rank: ranks.hear(rank) for rank in ALL if rank != lost}


def test_a_rank_that_gives_nothing_to_say_or_too_much_is_an_error_of_all(ranks: Ranks) -> None:
    """Nobody waits for what does not come."""
    nothing = ranks.all("tell", None)
    assert {(one.kind, one.keys["ranks"]) for one in nothing.values()} == {("RanksFailed", (0,))}
    assert "it is to say something, and gives NoneType" in nothing[3].text

    both = ranks.all("tell", b"x")
    assert {(one.kind, one.keys["ranks"]) for one in both.values()} == {("RanksFailed", (1, 2, 3))}
    no_rank = ranks.all("tell", None, by=4)
    assert {one.kind for one in no_rank.values()} == {"ConfigError"}


def test_a_rank_that_is_stopped_while_the_others_wait_to_hear_it_is_named_and_fenced(ranks: Ranks) -> None:
    """As in every other meeting."""
    ranks.signal(0, signal.SIGSTOP)
    answers = ranks.all("tell", None, deaf=(0,))
    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("RanksMissing", (0,))}
    ranks.signal(0, signal.SIGCONT)

    assert ranks.one(0, "tell", b"late").kind == "RankFenced"
    ranks.end(0)
