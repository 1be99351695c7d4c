"""A rank that was lost is replaced at the present version: what the others hold is handed over, bit for bit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.joiners import Joiner
from tests.distributed.ranks import _CONTEXT, WORLD, Ranks, Told

ALL = range(WORLD)
STATES = {"awake": (), "sleeping": ("sleep",), "offloaded-cpu": ("sleep", "offload")}


@pytest.fixture(scope="module")
def processes() -> Iterator[Ranks]:
    """Four processes and a store."""
    _CONTEXT.set_forkserver_preload(["pytest", "tests.distributed.warm"])
    with Ranks(Joiner) as ranks:
        yield ranks


@pytest.fixture
def ranks(processes: Ranks) -> Ranks:
    """The same, all there, none with a trainer."""
    processes.start(*(one for one in ALL if one not in processes.processes or not processes.processes[one].is_alive()))
    return processes


def trained(ranks: Ranks, *events: str, **settings: Any) -> None:
    """Trainers on all ranks, with two adapters that have done other numbers of steps."""
    assert ranks.all("build", **settings) == dict.fromkeys(ALL, "awake")
    assert ranks.all("send", "reconcile_adapters") == dict.fromkeys(ALL)
    assert ranks.all("train", "A", "B", steps=2) == dict.fromkeys(ALL)
    assert ranks.all("train", "A") == dict.fromkeys(ALL)
    assert ranks.all("send", *events) == dict.fromkeys(ALL)


def lose(ranks: Ranks, lost: int) -> None:
    """Kill a rank; the others find out in their next event."""
    ranks.signal(lost, signal.SIGKILL)
    event = "wake_up" if ranks.one((lost + 1) % WORLD, "state") == "awake" else "reconcile_adapters"
    told = ranks.all("send", event, deaf=(lost,))
    assert {(one.kind, one.keys["ranks"]) for one in told.values()} == {("RanksMissing", (lost,))}
    ranks.start(lost)


def join(ranks: Ranks, *newcomers: int, how: str = "build", **settings: Any) -> dict[int, Any]:
    """These join, the others admit them."""
    for rank in ALL:
        if rank in newcomers:
            ranks.tell(rank, how, joins=True, **settings)
        else:
            ranks.tell(rank, "admit")
    return {rank: ranks.hear(rank) for rank in ALL}


def alike(answers: dict[int, Any]) -> Any:
    """What all ranks answered."""
    first = answers[min(answers)]
    assert not isinstance(first, Told), first
    for rank, one in answers.items():
        assert one == first, f"rank {rank}"
    return first


@pytest.mark.parametrize("lost", [2, 0])
@pytest.mark.parametrize("state", STATES)
def test_a_rank_that_was_killed_is_replaced_at_the_present_version(ranks: Ranks, state: str, lost: int) -> None:
    """Bytes, moments, counts and schedules are those of the others, and so is the next step; so are all records."""
    trained(ranks, *STATES[state])
    ranks.all("fence")
    lose(ranks, lost)
    before = ranks.one(3, "stands")
    answers = join(ranks, lost)

    assert answers == {rank: state if rank == lost else (lost,) for rank in ALL}
    stands = alike(ranks.all("stands"))
    assert {**stands, "newest": 0} == {**before, "newest": 0}
    note = alike(ranks.all("joined"))
    assert (note["ranks"], note["by"], note["versions"]) == ([lost], 1 if lost == 0 else 0, stands["versions"])
    events = ("wake_up",) if state != "awake" else ()
    assert ranks.all("send", *events) == dict.fromkeys(ALL)
    assert ranks.all("train", "A", "B", steps=2) == dict.fromkeys(ALL)
    assert alike(ranks.all("stands"))["bytes"] != before["bytes"]
    assert ranks.all("send", "sleep", "offload", "wake_up") == dict.fromkeys(ALL)
    alike(ranks.all("stands"))
    assert len(alike(ranks.all("projection", note["transition"]))) >= 8


def test_kept_models_and_copies_come_along(ranks: Ranks) -> None:
    """Each once, however many tags hold it; the frozen base is borrowed or copied from the newcomer's own."""
    settings = {"with_ref": True, "strategy": "reference"}
    trained(ranks, **settings)
    ranks.all("keep", "ref")
    assert ranks.all("train", "B") == dict.fromkeys(ALL)
    assert ranks.all("send", "sleep") == dict.fromkeys(ALL)
    lose(ranks, 1)
    before = ranks.one(3, "stands")
    join(ranks, 1, **settings)

    assert sorted(before["copies"]) == ["actor", "ref"]
    assert alike(ranks.all("stands"))["copies"] == before["copies"]
    assert ranks.all("send", "wake_up") == dict.fromkeys(ALL)
    assert ranks.all("switch", "ref") == dict.fromkeys(ALL)
    assert ranks.all("switch", "actor") == dict.fromkeys(ALL)
    alike(ranks.all("stands"))


def test_two_ranks_join_at_once(ranks: Ranks) -> None:
    """The lowest that is left hands over."""
    trained(ranks)
    for lost in (0, 3):
        ranks.signal(lost, signal.SIGKILL)
    told = ranks.all("send", "wake_up", deaf=(0, 3))
    assert {(one.kind, one.keys["ranks"]) for one in told.values()} == {("RanksMissing", (0, 3))}
    ranks.start(0, 3)

    assert join(ranks, 0, 3) == {0: "awake", 1: (0, 3), 2: (0, 3), 3: "awake"}
    alike(ranks.all("stands"))
    assert alike(ranks.all("joined"))["by"] == 1


def test_nobody_needs_to_have_been_lost(ranks: Ranks) -> None:
    """Where all ranks admit, nothing is handed over."""
    trained(ranks)
    before = ranks.all("stands")

    assert ranks.all("admit") == dict.fromkeys(ALL, ())
    assert ranks.all("stands") == before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"seed": 8}, "frozen-base is SHA-256"),
        ({"verify": "always"}, "verify is 'always' here and 'sampled' there"),
        ({"kind": torch.optim.AdamW}, "the optimizer of slot 0 is another one: it was trained with Adam"),
        ({"full": True}, "layout of trainable-base is"),
        ({"offload_target": None}, "offload_target is None here and 'cpu' there"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_a_newcomer_that_is_not_like_the_others_is_refused_on_all(ranks: Ranks, wrong: Any, says: str) -> None:
    """With both values; the others are as they were, and admit one that is like them."""
    trained(ranks)
    lose(ranks, 2)
    before = ranks.all("stands", deaf=(2,))
    answers = join(ranks, 2, **wrong)

    assert (answers[2].kind, says in answers[2].text) == ("JoinRefused", True), answers[2]
    others = [one for rank, one in answers.items() if rank != 2]
    assert {(one.kind, one.keys["ranks"]) for one in others} == {("RanksFailed", (2,))}
    assert all(says in one.text for one in others)
    after = ranks.all("stands", deaf=(2,))
    assert all({**after[rank], "newest": 0} == {**before[rank], "newest": 0} for rank in before)
    assert join(ranks, 2)[2] == "awake"
    alike(ranks.all("stands"))


def test_a_newcomer_that_was_refused_and_has_ended_is_not_waited_for(ranks: Ranks) -> None:
    """Another process joins at once in its place."""
    trained(ranks)
    lose(ranks, 2)
    assert join(ranks, 2, seed=8)[2].kind == "JoinRefused"
    ranks.signal(2, signal.SIGKILL)
    ranks.start(2)

    assert join(ranks, 2) == {rank: "awake" if rank == 2 else (2,) for rank in ALL}
    alike(ranks.all("stands"))


@pytest.mark.parametrize(("call", "guard"), [("accumulate", "no-gradient-is-accumulated"), ("hold", "")])
def test_what_one_rank_cannot_hand_over_nobody_does(ranks: Ranks, call: str, guard: str) -> None:
    """A refusal with its reason on each rank that refuses, told to the newcomer; a lease is no reason."""
    trained(ranks)
    assert ranks.all(call) == dict.fromkeys(ALL)
    lose(ranks, 1)
    answers = join(ranks, 1)

    if not guard:
        assert answers[1] == "awake"
        return
    others = [one for rank, one in answers.items() if rank != 1]
    assert {(one.kind, one.keys["failed"][0][0]) for one in others} == {("EventRefused", guard)}
    assert (answers[1].kind, answers[1].keys["ranks"]) == ("RanksFailed", (0, 2, 3))
    assert "gradients are accumulated for adapter/A" in answers[1].text


def test_ranks_that_hold_other_bytes_admit_nobody(ranks: Ranks) -> None:
    """Nobody could say which are right: the rank that differs from the one that hands over names the tensor."""
    trained(ranks)
    lose(ranks, 2)
    ranks.one(3, "spoil")
    answers = join(ranks, 2)

    assert answers[3].kind == "JoinRefused"
    assert "it holds something else than rank 0: tensors.slot 0/" in answers[3].text
    assert {(one.kind, one.keys["ranks"]) for rank, one in answers.items() if rank != 3} == {("RanksFailed", (3,))}


def test_bytes_that_are_damaged_on_their_way_are_not_taken_over(ranks: Ranks) -> None:
    """The newcomer names a tensor, and is not built; the next one may."""
    trained(ranks)
    lose(ranks, 2)
    ranks.one(0, "damage")
    answers = join(ranks, 2)

    assert answers[2].kind == "JoinRefused"
    assert "has not arrived as it was told (1 in all); admit again" in answers[2].text
    assert {(one.kind, one.keys["ranks"]) for rank, one in answers.items() if rank != 2} == {("RanksFailed", (2,))}
    ranks.one(0, "mend")
    assert join(ranks, 2)[2] == "awake"
    alike(ranks.all("stands"))


def test_a_rank_that_builds_anew_instead_of_joining_is_told_so_on_all(ranks: Ranks) -> None:
    """Its trainer would have version ids of its own."""
    trained(ranks)
    lose(ranks, 2)
    ranks.tell(2, "build")
    for rank in (0, 1, 3):
        ranks.tell(rank, "admit")
    told = {rank: ranks.hear(rank) for rank in ALL}

    assert {one.kind for one in told.values()} == {"RanksDisagree"}
    assert all(
        "ranks 0, 1, 3 to admit ranks that join, rank 2 to build a trainer anew" in one.text for one in told.values()
    )
    assert join(ranks, 2)[2] == "awake"


@pytest.mark.parametrize(("dies", "at"), [(2, "fills"), (0, "tells")])
def test_a_second_loss_in_the_middle_of_a_hand_over_leaves_the_others_as_they_were(
    ranks: Ranks, dies: int, at: str
) -> None:
    """The newcomer, or the rank that hands over. Then they admit again."""
    trained(ranks)
    lose(ranks, 2)
    before = ranks.one(3, "stands")
    ranks.one(dies, "die_at", at)
    ranks.tell(2, "build", joins=True)
    for rank in (0, 1, 3):
        ranks.tell(rank, "admit")
    answers = {rank: ranks.hear(rank) for rank in ALL if rank != dies}

    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("RanksMissing", (dies,))}
    for rank in (1, 3):
        assert {**ranks.one(rank, "stands"), "newest": 0} == {**before, "newest": 0}
    ranks.start(dies)
    newcomers = sorted({2, dies})
    assert join(ranks, *newcomers) == {rank: "awake" if rank in newcomers else tuple(newcomers) for rank in ALL}
    assert alike(ranks.all("stands"))["bytes"] == before["bytes"]


def test_a_frozen_base_in_a_file_is_not_handed_over_either(ranks: Ranks, tmp_path: Path) -> None:
    """Each rank has it from its own folder, under the version of the others."""
    settings = {"frozen_base": "file", "base_dir": str(tmp_path)}
    trained(ranks, "sleep", "offload", **settings)
    lose(ranks, 3)

    assert join(ranks, 3, **settings)[3] == "offloaded-cpu"
    assert ranks.all("send", "wake_up") == dict.fromkeys(ALL)
    alike(ranks.all("stands"))
    alike(ranks.all("train", "A"))
    alike(ranks.all("stands"))


@pytest.mark.parametrize(("state", "frozen"), [("awake", False), ("offloaded-cpu", True)])
def test_a_full_parameter_run_goes_on_with_a_new_rank(ranks: Ranks, state: str, *, frozen: bool) -> None:
    """The trainable base, its moments and the buffers are handed over; what is frozen is compared."""
    lost = 2
    assert ranks.all("build_full", frozen=frozen) == dict.fromkeys(ALL, "awake")
    assert ranks.all("train_full", steps=3) == dict.fromkeys(ALL)
    assert ranks.all("send", *STATES[state]) == dict.fromkeys(ALL)
    lose(ranks, lost)
    before = ranks.one(3, "stands")
    answers = join(ranks, lost, how="build_full", frozen=frozen)

    assert answers == {rank: state if rank == lost else (lost,) for rank in ALL}
    assert {**alike(ranks.all("stands")), "newest": 0} == {**before, "newest": 0}
    assert ranks.all("send", *(("wake_up",) if state != "awake" else ())) == dict.fromkeys(ALL)
    assert ranks.all("train_full", steps=2) == dict.fromkeys(ALL)
    assert alike(ranks.all("stands"))["bytes"] != before["bytes"]
