"""A cohort's hand-over: all members are away while the engines serve, and those that were awake wake again."""

from __future__ import annotations

import pytest

from lifecycle import ConfigError, EngineError, HostArena, ReentrantEvent, TrainerState
from lifecycle.cohort import CohortRefused
from states import OFFLOADED
from states.handover import HandoverRefusal
from tests.cohort.world import NAMES, World, make_world, sizes_bytes
from tests.lifecycle.tenants import Tenant
from tests.lifecycle.world import FakeEngine


def world_with_engine(**budgets: int) -> tuple[World, Tenant]:
    """All three and an engine in the same saver, which is as large as the actor."""
    arena = HostArena()
    world = make_world(saver=arena, configs={"critic": budgets})
    return world, Tenant(arena, sizes_bytes()["actor"], 512)


def test_while_the_engines_serve_every_member_has_given_its_memory_back() -> None:
    """Who was awake wakes again, who was not does not, and no byte has changed."""
    world, engine = world_with_engine()
    world.cohort.awake("actor", "critic")
    world.train("actor")
    before = world.all_bytes()
    with world.cohort.handoff([engine]):
        assert all(state in OFFLOADED for state in world.cohort.states.values())
        assert engine.resident == {"weights", "kv_cache"}
        assert world.saver.usage().device_bytes == sizes_bytes()["actor"] + 512
        assert world.cohort.usage().others.device_bytes == sizes_bytes()["actor"] + 512

    assert world.awake == ("actor", "critic")
    assert world.all_bytes() == before
    assert engine.versions == world["actor"].versions


def test_only_the_critic_was_awake_and_no_other_member_is_woken_for_the_hand_over() -> None:
    """The actor is sent from where it lies: a wake and a sleep that nobody needs are not paid."""
    world, engine = world_with_engine()
    world.cohort.awake("critic")
    events = len(world.events())
    with world.cohort.handoff([engine], sender="actor"):
        pass

    assert world.events()[events:] == ["critic.sleep", "critic.offload", "actor.update_weights", "critic.wake_up"]


def test_the_engines_are_sent_the_first_member_or_the_one_that_is_named() -> None:
    """A reward model may be served too."""
    world, engine = world_with_engine()
    with world.cohort.handoff([engine], sender="teacher"):
        pass

    assert engine.versions == world["teacher"].versions
    assert world.awake == ()
    with pytest.raises(ConfigError, match="'ref' is no member"), world.cohort.handoff([engine], sender="ref"):
        pass


def test_the_hand_over_is_predicted_for_all_members_together() -> None:
    """What was held after each step is recorded beside it, in the log of every member."""
    world, engine = world_with_engine()
    world.cohort.awake("actor", "critic")
    assert world["critic"].keep_model("old_critic") > 0
    with world.cohort.handoff([engine], memory_peak="host"):
        pass
    gone = world.notes("teacher")[-1]

    assert gone["note"] == "a hand-over of the cohort has gone"
    assert [step["step"] for step in gone["steps"]] == [
        "sleep", "offload", "E0.resume(weights)", "update_weights", "E0.resume(kv_cache)",
        "E0.release(kv_cache,weights)", "wake_up",
    ]  # fmt: skip
    for step in gone["steps"]:
        assert (step["host_bytes"], step["device_bytes"]) == (step["held_host_bytes"], step["held_device_bytes"])


@pytest.mark.parametrize("place", ["host", "device"])
def test_a_hand_over_that_fits_no_budget_is_refused_before_its_first_step(place: str) -> None:
    """The least budget of any member counts, against the bytes of all of them."""
    every = sum(sizes_bytes().values())
    world, engine = world_with_engine(**{f"{place}_budget_bytes": every})
    world.cohort.awake(*NAMES)
    asked = {"host": "host", "device": "device"}[place]
    events = world.events()
    handoff = world.cohort.handoff([engine], memory_peak=asked)
    with pytest.raises(CohortRefused, match=f"on the {place}, the budget is") as refused, handoff:
        pass

    assert isinstance(refused.value.refusal, HandoverRefusal)
    assert world.events() == events
    assert "resume:weights" not in engine.calls
    assert world.awake == NAMES


def test_a_faulted_member_refuses_the_hand_over_before_its_first_step() -> None:
    """Its memory may be anywhere."""
    world, engine = world_with_engine()
    world.cohort.awake("actor")
    world["teacher"]._runner.machine.state = "faulted"
    with pytest.raises(CohortRefused, match="teacher is faulted"), world.cohort.handoff([engine]):
        pass

    assert world.awake == ("actor",)
    assert "resume:weights" not in engine.calls


def test_when_an_engine_fails_the_members_that_were_awake_are_awake_again() -> None:
    """And the error is the engine's."""
    world, engine = world_with_engine()
    world.cohort.awake("actor", "critic")
    before = world.all_bytes()
    engine.fails_at = "adapter:A"
    with pytest.raises(Exception, match="told to fail") as failed, world.cohort.handoff([engine]):
        pass

    assert isinstance(failed.value.__cause__, EngineError)
    assert world.awake == ("actor", "critic")
    assert engine.resident == set()
    assert world.all_bytes() == before


def test_an_error_of_the_block_comes_out_and_the_members_are_back() -> None:
    """Whatever happens inside."""
    world, engine = world_with_engine()
    world.cohort.awake("critic")
    with pytest.raises(ZeroDivisionError), world.cohort.handoff([engine]):
        1 / 0  # noqa: B018 - the error is the point

    assert world.awake == ("critic",)


def test_no_turn_is_taken_while_the_engines_serve() -> None:
    """The device is theirs."""
    world, engine = world_with_engine()
    with world.cohort.handoff([engine]), pytest.raises(ReentrantEvent, match=r"from inside handoff\(E0\)"):
        world.cohort.awake("actor")

    assert world.awake == ()


def test_engines_on_a_device_of_their_own_keep_their_memory() -> None:
    """The members go all the same, and the engine gets what it lacks."""
    world = make_world(configs={"actor": {"colocate": False}})
    engine = FakeEngine()
    world.cohort.awake("actor")
    with world.cohort.handoff([engine]):
        assert world.cohort.states["actor"] is TrainerState.OFFLOADED_CPU

    assert engine.resident == {"weights", "kv_cache"}
    assert engine.versions == world["actor"].versions
