"""Calls that are no events are not agreed on: what one of them changes on one rank is found at the next event.

Nothing was done by then, every rank raises the same, and once ranks are alike again the run goes on.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.ranks import WORLD, Ranks, Told

ALL = range(WORLD)
NOTHING = dict.fromkeys(ALL)
ODD = 2


def _error(answers: dict[int, Any]) -> Told:
    """The one error that all ranks raised, in the same words."""
    assert all(isinstance(one, Told) for one in answers.values()), answers
    assert len({(one.kind, one.text) for one in answers.values()}) == 1, answers
    return next(iter(answers.values()))


def _disagree(answers: dict[int, Any]) -> set[str]:
    """All ranks say that the odd one differs; returns in which facts."""
    told = _error(answers)
    assert (told.kind, told.keys["ranks"]) == ("RanksDisagree", (ODD,)), told.text
    return {one.fact for one in told.keys["differences"]}


def test_a_rank_that_accumulated_alone_is_named(sharers: Ranks) -> None:
    """By what is accumulated; once the others have done the same, the run goes on."""
    assert sharers.all("call", "begin_step", ["A"]) == NOTHING
    assert sharers.one(ODD, "call", "accumulated") is None

    assert "accumulated" in _disagree(sharers.all("call", "sleep"))
    assert sharers.all("call", "accumulated", deaf=(ODD,)) == {0: None, 1: None, 3: None}
    assert sharers.all("call", "sleep") == NOTHING


def test_a_rank_that_gave_its_step_up_alone_is_named(sharers: Ranks) -> None:
    """It has no step open."""
    assert sharers.all("call", "begin_step", ["A"]) == NOTHING
    assert sharers.one(ODD, "call", "abort_step") is None

    found = _disagree(sharers.all("call", "sleep"))
    assert {"step_open", "touched"} & found
    assert sharers.all("call", "abort_step", deaf=(ODD,)) == {0: None, 1: None, 3: None}
    assert sharers.all("call", "sleep") == NOTHING


def test_a_model_that_one_rank_alone_keeps_is_named(sharers: Ranks) -> None:
    """By the tags, and by who holds which version."""
    assert sharers.one(ODD, "call", "keep_model", "ref") is None

    assert any(fact == "models" or ".copies" in fact for fact in _disagree(sharers.all("call", "sleep")))
    assert sharers.one(ODD, "call", "snapshots.release", "ref") is None
    assert sharers.all("call", "sleep") == NOTHING


@pytest.mark.parametrize(
    ("call", "back"),
    [
        (("snapshots.backup", "mine"), ("snapshots.release", "mine")),
        (("snapshots.release", "kept"), ("snapshots.backup", "kept")),
    ],
)
def test_a_snapshot_that_one_rank_alone_makes_or_drops_is_named(
    sharers: Ranks, call: tuple[str, str], back: tuple[str, str]
) -> None:
    """Whatever it is called."""
    assert sharers.all("call", "snapshots.backup", "kept") == NOTHING
    assert sharers.one(ODD, "call", *call) is None

    assert any(fact == "models" or ".copies" in fact for fact in _disagree(sharers.all("call", "sleep")))
    assert sharers.one(ODD, "call", *back) is None
    assert sharers.all("call", "sleep") == NOTHING


def test_a_snapshot_that_one_rank_alone_overwrites_is_named(sharers: Ranks) -> None:
    """By the version of what it holds."""
    assert sharers.all("call", "snapshots.backup", "kept") == NOTHING
    assert sharers.all("train", "A") == NOTHING
    assert sharers.one(ODD, "call", "snapshots.backup", "kept") is None

    assert "contents[adapter/A].copies" in _disagree(sharers.all("call", "sleep"))
    assert sharers.all("call", "snapshots.backup", "kept", deaf=(ODD,)) == {0: None, 1: None, 3: None}
    assert sharers.all("call", "sleep") == NOTHING


def test_a_copy_that_one_rank_alone_makes_is_named(sharers: Ranks) -> None:
    """From tag to tag."""
    assert sharers.all("call", "snapshots.backup", "kept") == NOTHING
    assert sharers.one(ODD, "call", "snapshots.copy", src_tag="kept", dst_tag="again") is None

    assert any(fact == "models" or ".copies" in fact for fact in _disagree(sharers.all("call", "sleep")))


def test_versions_that_one_rank_alone_adopted_are_named(sharers: Ranks) -> None:
    """FB-49, 2: every content group has another id there; nothing was sent."""
    assert sharers.one(ODD, "adopt", 1 << 60) is None

    found = _disagree(sharers.all("push"))
    assert {"contents[frozen-base].version", "contents[adapter/A].version"} & found
    assert sharers.one(0, "calls") == []


def test_moments_that_one_rank_alone_did_not_place_stop_the_offload_of_all(sharers: Ranks) -> None:
    """It is about this rank's memory: the guard that fails is named with its rank."""
    assert sharers.all("new_optimizer") == NOTHING
    assert sharers.all("call", "prepare_optimizer", deaf=(ODD,)) == {0: None, 1: None, 3: None}
    assert sharers.all("call", "sleep") == NOTHING
    told = _error(sharers.all("call", "offload"))

    assert told.kind == "EventRefused"
    ((_, because),) = told.keys["failed"]
    assert because.startswith(f"rank {ODD}: ")
    assert sharers.all("call", "wake_up") == NOTHING
    assert sharers.one(ODD, "call", "prepare_optimizer") is None
    assert sharers.all("send", "sleep", "offload") == NOTHING


def test_a_restore_gives_the_version_back_with_the_bytes(sharers: Ranks) -> None:
    """So one rank alone may restore what it holds: all say the same, and go on."""
    assert sharers.all("call", "snapshots.backup", "actor") == NOTHING
    assert sharers.one(ODD, "call", "snapshots.restore", "actor") is None

    assert sharers.all("call", "sleep") == NOTHING
