"""A group that cannot be started leaves nothing behind, and says why."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
import ray

from lifecycle.distributed import RankAgreement, RanksFailed
from lifecycle.errors import ConfigError
from lifecycle.ray import GroupError, RemoteFailure, TrainerGroup, registry, start_registry
from tests.ray.world import Member, OddError, build

pytestmark = pytest.mark.timeout(300)  # each rank's process imports torch for itself
WORLD, TIMEOUT_S = 2, 8.0
OPTIONS = {"num_cpus": 0}


@pytest.fixture
def clean(cluster: None) -> Iterator[None]:
    """What a test leaves behind: no named actor, and no process of one that was started meanwhile."""
    before = _actors()
    yield
    until = time.monotonic() + 20
    while _actors() - before and time.monotonic() < until:
        time.sleep(0.1)
    assert _actors() - before == set()
    assert ray.util.list_named_actors() == []


def _actors() -> set[int]:
    """Processes below this one that are actors of this library."""
    found = set()
    for one in psutil.Process().children(recursive=True):
        title = ""
        with suppress(psutil.Error):  # it has ended since, or is about to
            title = " ".join(one.cmdline())
        if title.startswith(("ray::RankProcess", "ray::StoreActor", "ray::RegistryActor")):
            found.add(one.pid)
    return found


def test_a_group_ends_with_its_block(clean: None) -> None:
    """Ranks, store and its own registry; closing it again does nothing, and it can be used no more."""
    with TrainerGroup(build, WORLD, options=OPTIONS, timeout_s=TIMEOUT_S, registry=3) as group:
        assert _actors()
        assert repr(group) == "TrainerGroup('run', 2 ranks)"
        assert set(group.states().values()) == {"awake"}
    group.close()

    with pytest.raises(ConfigError, match="is closed"):
        group.sleep()
    with pytest.raises(ConfigError, match="is closed"):
        group.replace(0)


def _fails_early(rank: int, world: int, ranks: RankAgreement, **_: Any) -> Member:
    if rank == 1:
        raise OddError(rank)
    return build(rank, world, ranks)


def _fails_late(rank: int, world: int, ranks: RankAgreement) -> Member:
    found = build(rank, world, ranks)
    if rank == 0:
        raise ValueError("too late")
    return found


def _dies(rank: int, world: int, ranks: RankAgreement) -> Member:
    if rank == 1:
        os._exit(3)
    return build(rank, world, ranks)


def test_a_build_that_fails_on_one_rank_ends_all(clean: None) -> None:
    """The error is that of the rank; the others are not waited for, and their ends are no errors."""
    with pytest.raises(GroupError) as caught:
        TrainerGroup(_fails_early, WORLD, options=OPTIONS, timeout_s=600, registry=3)

    assert isinstance(caught.value.cause, RemoteFailure)
    assert (caught.value.call, caught.value.rank, caught.value.kind) == ("build", 1, "tests.ray.world.OddError")
    assert sorted(caught.value.errors) == [1]


def test_a_build_that_fails_when_its_trainer_stands_ends_all(clean: None) -> None:
    """Python's own errors come as they are, with a note of where they were raised."""
    with pytest.raises(GroupError) as caught:
        TrainerGroup(_fails_late, WORLD, options=OPTIONS, timeout_s=600)

    assert type(caught.value.cause) is ValueError
    assert caught.value.rank == 0
    assert "_fails_late" in caught.value.cause.__notes__[0]
    assert "ValueError: too late" in str(caught.value)


def test_a_rank_that_ends_while_it_is_built_is_named(clean: None) -> None:
    """By its process's end."""
    with pytest.raises(GroupError) as caught:
        TrainerGroup(_dies, WORLD, options=OPTIONS, timeout_s=600)

    assert (caught.value.dead, caught.value.rank) == ((1,), 1)


def test_a_build_that_gives_something_else_is_refused(clean: None) -> None:
    """A trainer is needed."""
    with pytest.raises(GroupError, match="build returned int") as caught:
        TrainerGroup(lambda rank, world, ranks: 5, WORLD, options=OPTIONS, timeout_s=TIMEOUT_S)

    assert caught.value.kind == "ConfigError"


def _does_not_join(rank: int, world: int, ranks: RankAgreement, *, joins: bool = False) -> Member:
    if joins:
        raise OddError(rank)
    return build(rank, world, ranks)


def test_a_process_that_cannot_be_built_in_a_lost_ones_place_keeps_nobody_waiting(clean: None) -> None:
    """The survivors hear why before the time of a meeting is over, are as before, and another one can be tried."""
    with TrainerGroup(_does_not_join, WORLD, options=OPTIONS, timeout_s=TIMEOUT_S) as group:
        with pytest.raises(GroupError):
            group.call("die", 1)
        for _ in range(2):
            with pytest.raises(GroupError) as caught:
                group.replace()
            assert (caught.value.rank, caught.value.kind) == (1, "tests.ray.world.OddError")
            assert isinstance(caught.value.errors[0], RanksFailed)
            assert "odd on 1" in str(caught.value.errors[0])
        assert group.lost == (1,)
        assert group.states() == {0: "awake"}


def test_actors_that_find_no_room_are_given_up(clean: None) -> None:
    """Within the time that a start may take; the message says what was waited for."""
    with pytest.raises(GroupError, match="did not answer within 2 s") as caught:
        TrainerGroup(build, WORLD, options=[{"num_cpus": 0}, {"num_cpus": 1000}], start_timeout_s=2)

    assert caught.value.call == "start"
    assert 1 in caught.value.silent


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"build": 5}, "build is 5"),
        ({"world": 1}, "at least 2 ranks"),
        ({"world": True}, "at least 2 ranks"),
        ({"name": "a/b"}, "letters, digits"),
        ({"timeout_s": 0}, "number of seconds above 0"),
        ({"timeout_s": True}, "number of seconds above 0"),
        ({"options": [{}]}, "one a rank"),
        ({"options": {"name": "mine"}}, "which the group sets itself"),
        ({"registry": 0}, "at least 1 slot"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(clean: None, changes: dict[str, Any], told: str) -> None:
    """In words of this library."""
    with pytest.raises(ConfigError, match=told):
        TrainerGroup(**{"build": build, "world": 2, **changes})


def test_without_a_cluster_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library never starts one; it says what to do."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for start in (
        lambda: TrainerGroup(build, 2),
        lambda: start_registry("adapters", 3),
        lambda: registry("adapters"),
    ):
        with pytest.raises(ConfigError, match=r"call ray.init\(\) first"):
            start()
