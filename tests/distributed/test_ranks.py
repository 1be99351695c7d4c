"""Four real processes with a trainer each: whatever happens on one of them, all come to the same end.

FB-49 (only rank 0 waits) and FB-50 (one rank fails, the others wait for it) in full: late, unlike, never there; failed
in an offload, in a reconcile, and dead outright.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.distributed.ranks import TIMEOUT_S, WORLD, Ranks, Told

ALL = range(WORLD)


def _same(answers: dict[int, Any]) -> Told:
    """The one error that all ranks raised."""
    assert all(isinstance(one, Told) for one in answers.values()), answers
    (kind,) = {(one.kind, one.cause) for one in answers.values()}
    assert kind[0]
    return next(iter(answers.values()))


def test_ranks_that_are_alike_write_the_same_records(ranks: Ranks) -> None:
    """The canonical projections of their logs are equal, over sleep, offload, wake-up and a reconcile."""
    ranks.all("register", "C")

    assert ranks.all("send", "sleep", "offload", "wake_up", "reconcile_adapters") == dict.fromkeys(ALL)
    looked = ranks.all("look")
    assert len(looked[0]["records"]) == 8
    assert [one["records"] for one in looked.values()] == [looked[0]["records"]] * WORLD


def test_a_rank_that_is_late_is_waited_for(ranks: Ranks) -> None:
    """Nobody acts before all have agreed."""
    started = time.monotonic()

    assert ranks.all("send", "sleep", but={1: {"late_s": 1.0}}) == dict.fromkeys(ALL)
    assert time.monotonic() - started > 1.0


def test_another_config_flag_on_one_rank_is_named_on_all(ranks: Ranks) -> None:
    """With both values; nothing was done, and with equal flags the run goes on."""
    told = _same(ranks.all("fresh", but={2: {"keep_old_actor": True}}))

    assert (told.kind, told.keys["ranks"]) == ("RanksDisagree", (2,))
    (found,) = (one for one in told.keys["differences"] if one.fact == "keep_old_actor")
    assert found.values == (((0, 1, 3), "False"), ((2,), "True"))
    assert ranks.all("fresh") == dict.fromkeys(ALL)


def test_another_adapter_list_on_one_rank_is_named_on_all(ranks: Ranks) -> None:
    """Nothing is loaded anywhere until the lists are equal."""
    before = ranks.all("look")
    ranks.all("register", "C", but={}, deaf=(0, 2, 3))
    answers = ranks.all("send", "reconcile_adapters")
    told = _same(answers)

    assert len({one.text for one in answers.values()}) == 1
    assert (told.kind, told.keys["ranks"]) == ("RanksDisagree", (1,))
    assert "to_load: ranks 0, 2, 3 [], rank 1 ['C']" in told.text
    assert {rank: one["bytes"] for rank, one in ranks.all("look").items()} == {
        rank: one["bytes"] for rank, one in before.items()
    }
    ranks.all("register", "C", deaf=(1,))
    assert ranks.all("send", "reconcile_adapters") == dict.fromkeys(ALL)


def _undone(ranks: Ranks, before: dict[int, Any], answers: dict[int, Any], rank: int, reason: str) -> None:
    told = _same(answers)
    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksFailed", (rank,))
    assert all(reason in one.text for one in answers.values())
    after = ranks.all("look")
    for number in ALL:
        assert (after[number]["state"], after[number]["bytes"]) == (before[number]["state"], before[number]["bytes"])
        assert after[number]["versions"] == before[number]["versions"]


def test_a_failed_load_on_one_rank_is_undone_on_all(ranks: Ranks) -> None:
    """Bit for bit; when the file is right the reconcile goes through."""
    before = ranks.all("look")
    ranks.all("register", "C", but={3: {"bad": True}})
    answers = ranks.all("send", "reconcile_adapters")

    _undone(ranks, before, answers, 3, "its file is malformed")
    assert [one.keys["adapter"] for one in answers.values()] == ["C"] * WORLD
    ranks.all("forget", "C")
    ranks.all("register", "C")
    assert ranks.all("send", "reconcile_adapters") == dict.fromkeys(ALL)
    assert ranks.all("send", "sleep") == dict.fromkeys(ALL)  # the ids that C got are those of all, too


def test_a_failed_pause_on_rank_0_is_undone_on_all(ranks: Ranks) -> None:
    """The others had paused, and take their memory again."""
    assert ranks.all("send", "sleep") == dict.fromkeys(ALL)
    before = ranks.all("look")
    ranks.one(0, "fail_at", "pause")
    answers = ranks.all("send", "offload")

    _undone(ranks, before, answers, 0, "told to")
    assert [one.keys["adapter"] for one in answers.values()] == [None] * WORLD


def test_a_wake_up_that_fails_on_one_rank_is_undone_on_those_that_were_awake(ranks: Ranks) -> None:
    """After their last effect: they give the memory back, and the next wake-up brings every byte."""
    assert ranks.all("send", "sleep", "offload") == dict.fromkeys(ALL)
    before = ranks.all("look")
    ranks.one(3, "hook", "check-digests", "raise")
    answers = ranks.all("send", "wake_up")

    _undone(ranks, before, answers, 3, "ValueError: a hook raised")
    ranks.one(3, "unhook")
    assert ranks.all("send", "wake_up") == dict.fromkeys(ALL)
    assert {rank: one["bytes"] for rank, one in ranks.all("look").items()} == {
        rank: one["bytes"] for rank, one in before.items()
    }


def test_a_partial_reconcile_that_leaves_out_other_adapters_on_one_rank_is_undone(ranks: Ranks) -> None:
    """What was left out is compared too: ranks must hold the same adapters."""
    before = ranks.all("look")
    ranks.all("register", "C", but={1: {"bad": True}})
    answers = ranks.all("reconcile_partly")
    told = _same(answers)

    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksDisagree", (1,))
    assert all("result: ranks 0, 2, 3 '', rank 1 'C'" in one.text for one in answers.values())
    after = ranks.all("look")
    assert all(after[rank]["bytes"] == before[rank]["bytes"] for rank in ALL)


def test_an_exception_in_a_hook_of_one_rank_is_undone_on_all(ranks: Ranks) -> None:
    """Whatever it is."""
    before = ranks.all("look")
    ranks.one(2, "hook", "clear-caches", "raise")
    answers = ranks.all("send", "sleep")

    _undone(ranks, before, answers, 2, "ValueError: a hook raised")
    ranks.one(2, "unhook")
    assert ranks.all("send", "sleep", "offload", "wake_up") == dict.fromkeys(ALL)


def test_an_undo_that_fails_on_one_rank_faults_all_and_all_recover(ranks: Ranks) -> None:
    """For the same reason, and to the same state."""
    ranks.one(1, "hook", "tear-down-groups", "fail to undo")
    ranks.one(3, "hook", "clear-caches", "raise")
    answers = ranks.all("send", "sleep")

    assert {(one.kind, one.cause) for one in answers.values()} == {("TrainerFaulted", "RanksFailed")}
    assert {one["state"] for one in ranks.all("look").values()} == {"faulted"}
    ranks.all("unhook")
    assert ranks.all("send", "recover") == dict.fromkeys(ALL)
    looked = ranks.all("look")
    assert {one["state"] for one in looked.values()} == {"awake"}
    assert [one["bytes"] for one in looked.values()] == [looked[0]["bytes"]] * WORLD


def test_a_refusal_of_one_rank_is_the_refusal_of_all(ranks: Ranks) -> None:
    """Its guard is named with the rank."""
    assert ranks.all("send", "sleep") == dict.fromkeys(ALL)
    ranks.one(1, "hold")
    answers = ranks.all("send", "offload")

    assert {one.kind for one in answers.values()} == {"EventRefused"}
    assert len({one.text for one in answers.values()}) == 1
    ((name, because),) = answers[0].keys["failed"]
    assert (name, because.startswith("rank 1: ")) == ("no-lease-over-live-weights", True)


@pytest.mark.parametrize("lost", [2, 0])
def test_a_rank_that_is_killed_before_it_comes_is_named(ranks: Ranks, lost: int) -> None:
    """On all others, within the timeout; nothing was done. A new process takes its place."""
    before = ranks.all("look")
    ranks.signal(lost, signal.SIGKILL)
    started = time.monotonic()
    told = _same(ranks.all("send", "sleep", deaf=(lost,)))

    assert time.monotonic() - started < TIMEOUT_S + 1
    assert (told.kind, told.keys["ranks"]) == ("RanksMissing", (lost,))
    after = ranks.all("look", deaf=(lost,))
    assert all(after[rank]["bytes"] == before[rank]["bytes"] for rank in after)
    ranks.start(lost)
    assert ranks.all("fresh") == dict.fromkeys(ALL)
    assert ranks.all("send", "sleep", "wake_up") == dict.fromkeys(ALL)


def test_a_rank_that_dies_in_the_middle_of_its_effects_is_named_and_the_others_go_back(ranks: Ranks) -> None:
    """Rank 0, while it pauses; bit for bit."""
    assert ranks.all("send", "sleep") == dict.fromkeys(ALL)
    before = ranks.all("look")
    ranks.one(0, "hook", "pause-weights", "die")
    ranks.tell(0, "send", "offload")
    started = time.monotonic()
    answers = ranks.all("send", "offload", deaf=(0,))
    told = _same(answers)

    assert time.monotonic() - started < TIMEOUT_S + 1
    assert (told.kind, told.cause, told.keys["ranks"]) == ("TransitionFailed", "RanksMissing", (0,))
    after = ranks.all("look", deaf=(0,))
    assert {one["state"] for one in after.values()} == {"sleeping"}
    assert all(after[rank]["bytes"] == before[rank]["bytes"] for rank in after)


def test_a_rank_that_was_stopped_for_too_long_is_fenced_when_it_goes_on(ranks: Ranks) -> None:
    """The others name it; it may not act for them again; a new process may."""
    ranks.signal(1, signal.SIGSTOP)
    ranks.tell(1, "send", "sleep")
    told = _same(ranks.all("send", "sleep", deaf=(1,)))

    assert (told.kind, told.keys["ranks"]) == ("RanksMissing", (1,))
    ranks.signal(1, signal.SIGCONT)
    late = ranks.hear(1)
    assert (late.kind, late.keys["generation"]) == ("RankFenced", told.keys["generation"])
    again = ranks.one(1, "send", "sleep")
    assert again.kind == "RankFenced"
    ranks.start(1)
    assert ranks.all("fresh") == dict.fromkeys(ALL)
