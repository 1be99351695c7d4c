"""A cohort on two ranks: both take the same steps, whatever room each of them has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from lifecycle import ConfigError, EventRefused, TrainerState, TransitionFailed
from lifecycle.cohort import CohortFailed, CohortMoved
from lifecycle.distributed import RankAgreement, RanksFailed
from lifecycle.transition.ranks import ALONE
from states import Effect
from states.cohort import CohortPlan
from tests.cohort.world import World, make_world, sizes_bytes

T = TypeVar("T")
RANKS = (0, 1)


@pytest.fixture
def agreements() -> Iterator[list[RankAgreement]]:
    """Two ranks over gloo, as two threads."""
    command = [sys.executable, "-m", "lifecycle.distributed.store", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as store:
        assert store.stdout is not None
        address = store.stdout.readline().decode().strip()
        ranks = [RankAgreement.over_gloo(rank, len(RANKS), address, timeout_s=20) for rank in RANKS]
        yield ranks
        on_both(lambda rank: ranks[rank].close())
        assert store.stdin is not None
        store.stdin.close()


def on_both(call: Callable[[int], T]) -> list[T]:
    """The same on both ranks at once."""
    with ThreadPoolExecutor(len(RANKS)) as threads:
        return list(threads.map(call, RANKS))


def errors_of(worlds: list[World], *wanted: str) -> list[CohortFailed]:
    """What a turn fails with on both."""

    def failing(rank: int) -> CohortFailed:
        with pytest.raises(CohortFailed) as failed:
            worlds[rank].cohort.awake(*wanted)
        return failed.value

    return on_both(failing)


def worlds_of(agreements: list[RankAgreement], *fits: int) -> list[World]:
    """A world a rank, each on a device of its own size."""
    sizes_bytes()
    return on_both(lambda rank: make_world(fits=fits[rank], ranks=lambda _: agreements[rank]))


def test_where_one_rank_has_no_room_both_refuse_at_the_same_step_and_both_go_back(
    agreements: list[RankAgreement],
) -> None:
    """The plan is of shared facts alone; room is what the guards say, joined over the ranks."""
    worlds = worlds_of(agreements, 3, 1)
    on_both(lambda rank: worlds[rank].cohort.awake("teacher"))
    before = [world.all_bytes() for world in worlds]
    plans = [world.cohort.plan("actor", "critic") for world in worlds]
    errors = errors_of(worlds, "actor", "critic")

    assert all(isinstance(plan, CohortPlan) for plan in plans)
    for error in errors:
        assert (error.member, error.event) == ("critic", "wake_up")
        assert isinstance(error.cause, EventRefused)
        assert "rank 1: device" in str(error)
        assert error.undone
    assert [world.awake for world in worlds] == [("teacher",)] * 2
    assert [world.all_bytes() for world in worlds] == before


def test_a_turn_goes_on_both_ranks_and_a_fault_on_one_takes_both_back(agreements: list[RankAgreement]) -> None:
    """An effect of the critic fails on rank 1; both are where they were, and the next turn goes through."""
    worlds = worlds_of(agreements, 1, 1)
    on_both(lambda rank: worlds[rank].cohort.awake("actor"))
    effects = worlds[1]["critic"]._runner.effects
    original = effects[Effect.RESUME_WEIGHTS]

    def fail(*_: object) -> Callable[[], None]:
        raise RuntimeError("told to fail")

    effects[Effect.RESUME_WEIGHTS] = fail
    errors = errors_of(worlds, "critic")
    effects[Effect.RESUME_WEIGHTS] = original
    for error in errors:
        assert isinstance(error.cause, TransitionFailed)
        assert isinstance(error.cause.cause, RanksFailed)
        assert error.undone
    assert [world.awake for world in worlds] == [("actor",)] * 2

    assert all(isinstance(one, CohortMoved) for one in on_both(lambda rank: worlds[rank].cohort.awake("critic")))
    assert [world.cohort.states["critic"] for world in worlds] == [TrainerState.AWAKE] * 2


def test_members_with_and_without_other_ranks_are_no_cohort(agreements: list[RankAgreement]) -> None:
    """One of them would act alone where the others act together."""

    def mixed(rank: int) -> str:
        with pytest.raises(ConfigError) as refused:
            make_world(ranks=lambda name: agreements[rank] if name == "actor" else ALONE)
        return str(refused.value)

    assert (
        on_both(mixed)
        == ["actor with other ranks and critic, teacher alone; give ranks= to all members, or to none"] * 2
    )
