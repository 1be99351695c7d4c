"""Four ranks plan a hand-over from their own bytes: all take one order, or none takes a step."""

from __future__ import annotations

import time

import pytest

from tests.distributed.ranks import TIMEOUT_S, WORLD, Ranks, Told

ALL = range(WORLD)
NOTHING = dict.fromkeys(ALL)


@pytest.fixture
def ranks(sharers: Ranks) -> Ranks:
    """Every rank has an engine of its own, under one name."""
    assert sharers.all("own") == NOTHING
    return sharers


def _nobody_moved(ranks: Ranks) -> None:
    assert {one["state"] for one in ranks.all("look").values()} == {"awake"}
    assert {tuple(calls) for calls in ranks.all("calls").values()} == {()}


def test_a_hand_over_that_one_rank_has_no_room_for_is_heard_by_all_at_once(ranks: Ranks) -> None:
    """FB-49: what one rank checks alone the others do not wait for; that rank is refused, and named."""
    assert ranks.all("fresh", but={2: {"host_budget_bytes": 1024}}) == NOTHING
    started = time.monotonic()
    answers = ranks.all("hand_over")

    assert time.monotonic() - started < TIMEOUT_S
    assert {rank: one.kind for rank, one in answers.items()} == {
        rank: "EventRefused" if rank == 2 else "RanksFailed" for rank in ALL
    }
    assert all(answers[rank].keys["ranks"] == (2,) and "the-hand-over-fits" in answers[rank].text for rank in (0, 1, 3))
    _nobody_moved(ranks)
    assert ranks.all("fresh") == NOTHING
    assert set(map(str, ranks.all("hand_over").values())) == {"{'E0': 'current'}"}


def test_ranks_that_would_take_another_order_take_none(ranks: Ranks) -> None:
    """Both orders are named; nothing was done."""
    assert ranks.all("fresh", but={1: {"memory_peak": "device"}, 3: {"memory_peak": "device"}}) == NOTHING
    answers = ranks.all("hand_over")

    assert all(isinstance(one, Told) and one.kind == "RanksDisagree" for one in answers.values()), answers
    assert "sleep offload" in answers[0].text
    _nobody_moved(ranks)
