"""One rank of four fails, disagrees, ends or hangs: the driver gets one error that says who and why, and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lifecycle.distributed import RanksDisagree, RanksFailed, RanksMissing
from lifecycle.errors import EventRefused, TransitionFailed
from lifecycle.ray import GroupError, RankLost, RemoteFailure, TrainerGroup
from tests.ray.world import ADAPTERS, build

pytestmark = pytest.mark.timeout(300)  # each rank's process imports torch for itself
WORLD, TIMEOUT_S = 4, 16.0


@pytest.fixture(scope="module")
def processes(cluster: None) -> Iterator[TrainerGroup]:
    """Four ranks for all cases."""
    with TrainerGroup(build, WORLD, timeout_s=TIMEOUT_S, options={"num_cpus": 0}) as group:
        yield group


@pytest.fixture
def group(processes: TrainerGroup) -> TrainerGroup:
    """The same with new trainers that have trained two adapters."""
    processes.call("fresh", ADAPTERS)
    processes.call("train", *ADAPTERS)
    return processes


def _alike(looks: dict[int, Any]) -> Any:
    """What all ranks see, once it is seen that they do."""
    first, *others = looks.values()
    assert all(one == first for one in others)
    return first


def _failed(group: TrainerGroup, call: str, *args: Any) -> GroupError:
    with pytest.raises(GroupError) as caught:
        getattr(group, call)(*args)
    return caught.value


def _goes_on(group: TrainerGroup) -> None:
    """All ranks train on alike, and their logs say the same."""
    group.call("mend")
    assert group.lost == ()
    group.call("train", *ADAPTERS)
    group.sleep(offload=True)
    group.wake_up()
    _alike(group.call("look"))


def test_another_configuration_on_one_rank_is_named(group: TrainerGroup) -> None:
    """Nobody has done anything; the error has the rank and both values."""
    group.call_each("fresh_as", [{}, {}, {"strategy": "duplicate"}, {}])
    error = _failed(group, "sleep")

    assert error.kind == "RanksDisagree"
    assert sorted(error.errors) == [0, 1, 2, 3]
    assert isinstance(error.cause, RanksDisagree)
    assert error.cause.ranks == (2,)
    assert "duplicate" in str(error)
    assert set(group.states().values()) == {"awake"}


def test_another_list_of_adapters_on_one_rank_is_named(group: TrainerGroup) -> None:
    """Each rank has a registry of its own here; nothing is loaded anywhere, and the run goes on."""
    before = _alike(group.call("look"))
    group.call_each("register_as", [("C",), ("C",), ("C",), ()])
    error = _failed(group, "reconcile_adapters")

    assert error.kind == "RanksDisagree"
    assert isinstance(error.cause, RanksDisagree)
    assert error.cause.ranks == (3,)
    assert _alike(group.call("look")) == before
    group.call_each("register_as", [(), (), (), ("C",)])
    assert group.reconcile_adapters().edge
    _goes_on(group)


def test_a_load_that_fails_on_one_rank_is_undone_on_all(group: TrainerGroup) -> None:
    """The message has the first cause once, with its rank; the error has every rank's own."""
    before = _alike(group.call("look"))
    group.call("register", "C")
    group.call("hook", "write-adapters", "raise", 1)
    error = _failed(group, "reconcile_adapters")

    assert (error.kind, error.rank) == ("TransitionFailed", 1)
    assert all(isinstance(one, TransitionFailed) for one in error.errors.values())
    assert isinstance(error.cause, TransitionFailed)
    assert isinstance(error.cause.cause, RanksFailed)
    assert error.cause.cause.ranks == (1,)
    assert str(error).count("odd on 1") == 1
    assert (error.dead, error.silent) == ((), ())
    assert _alike(group.call("look")) == before
    _goes_on(group)


def test_a_pause_that_fails_on_one_rank_is_undone_on_all(group: TrainerGroup) -> None:
    """Every byte is as it was, on the ranks too that had paused already."""
    before = _alike(group.call("look"))
    group.sleep()
    group.call("fault", "pause", 0)
    error = _failed(group, "offload")

    assert (error.kind, error.rank) == ("TransitionFailed", 0)
    assert "pause" in str(error)
    assert set(group.states().values()) == {"sleeping"}
    group.call("mend")
    group.wake_up()
    assert _alike(group.call("look"))["bytes"] == before["bytes"]
    _goes_on(group)


def test_a_refusal_has_its_guards_and_what_to_do(group: TrainerGroup) -> None:
    """A refused event is refused on all ranks alike."""
    group.begin_step(["A"])
    error = _failed(group, "sleep")
    group.abort_step()

    assert error.kind == "EventRefused"
    assert isinstance(error.cause, EventRefused)
    assert [one.name for one in error.cause.failed] == ["no-step-in-flight"]
    assert error.cause.remedy in str(error)


def test_what_a_user_raises_arrives_whatever_it_is(group: TrainerGroup) -> None:
    """An error that cannot be pickled comes by kind, words and traceback; the other ranks have succeeded."""
    error = _failed(group, "call", "raise_odd", 2)

    assert sorted(error.errors) == [2]
    assert isinstance(error.cause, RemoteFailure)
    assert error.kind == "tests.ray.world.OddError"
    assert error.cause.why == "odd on 2"
    assert "raise_odd" in error.cause.trace
    _goes_on(group)


def test_a_method_that_does_not_exist_is_named(group: TrainerGroup) -> None:
    """Nor can what is private be called."""
    for method in ("fly", "_fault"):
        assert f"no method '{method}'" in str(_failed(group, "call", method))


@pytest.mark.parametrize("rank", [2, 0])
def test_a_rank_that_is_killed_is_replaced_and_all_train_on_alike(group: TrainerGroup, rank: int) -> None:
    """The survivors are as before and say who is missing; the new process has every byte and every number they have."""
    before = _alike(group.call("look"))
    group.call("hook", "pause-weights", "SIGKILL", rank)
    group.sleep()
    error = _failed(group, "offload")
    survivors = [one for one in range(WORLD) if one != rank]

    assert (error.dead, error.silent, error.rank) == ((rank,), (), rank)
    assert isinstance(error.errors[rank], RankLost)
    for one in survivors:
        failed = error.errors[one]
        assert isinstance(failed, TransitionFailed)
        assert isinstance(failed.cause, RanksMissing)
        assert failed.cause.ranks == (rank,)
    assert group.lost == (rank,)
    assert sorted(group.states()) == survivors
    left = _alike(group.call_there("look"))
    assert left["bytes"] == before["bytes"]

    told = _failed(group, "wake_up")
    assert (told.dead, sorted(told.errors)) == ((rank,), [rank])

    group.replace(rank)

    assert _alike(group.call("look")) == left
    group.wake_up()
    _goes_on(group)


def test_a_rank_that_hangs_is_given_up_and_replaced(group: TrainerGroup) -> None:
    """It is not waited for once the others say that it is missing; its process is ended when it is replaced."""
    before = _alike(group.call("look"))
    group.call("hook", "pause-weights", "SIGSTOP", 1)
    group.sleep()
    error = _failed(group, "offload")

    assert (error.dead, error.silent) == ((), (1,))
    assert error.rank == 1
    assert _alike(group.call_there("look"))["bytes"] == before["bytes"]
    group.replace(1)
    group.wake_up()
    _goes_on(group)
