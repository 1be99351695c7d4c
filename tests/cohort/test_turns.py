"""Turns on real memory: exactly the wanted members are awake, nobody else's bytes change, the books are one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest

from lifecycle import BusyError, ConfigError, EventRefused, HostArena, ReentrantEvent, TrainerState, Usage
from lifecycle.cohort import Cohort, CohortFailed, CohortMoved, CohortRefused, CohortUnchanged, MemberMoved
from lifecycle.saver import Backup
from states import OFFLOADED
from states.cohort import CohortPlan, CohortRefusal
from tests.cohort.world import NAMES, World, make_world, sizes_bytes
from tests.models import llama


def steps_of(world: World, *wanted: str) -> list[str]:
    """The steps that are planned."""
    plan = world.cohort.plan(*wanted)
    assert isinstance(plan, CohortPlan), plan
    return [str(step) for step in plan.steps]


def faulted(world: World, name: str) -> None:
    """A pause fails, and so does its undo."""
    trainer = world[name]
    trainer.wake_up()
    effects = trainer._runner.effects
    saved = dict(effects)

    def stuck(*_: object) -> Any:
        raise RuntimeError("the undo fails too")

    for effect in effects:
        if str(effect) == "tear-down-groups":
            effects[effect] = lambda *_: stuck
        if str(effect) == "pause-scratch":
            effects[effect] = stuck
    with pytest.raises(Exception, match="faulted"):
        trainer.sleep()
    effects.update(saved)


def test_inside_a_turn_exactly_the_named_members_are_awake() -> None:
    """The others have given their memory back before, in order; bytes are what they were."""
    world = make_world(fits=1)
    before = world.all_bytes()
    for name in (*NAMES, *reversed(NAMES)):
        with world.cohort.turn(name):
            assert world.awake == (name,)
            others = [state for other, state in world.cohort.states.items() if other != name]
            assert all(state in OFFLOADED for state in others)

    assert world.all_bytes() == before


def test_after_a_turn_members_stay_where_they_are_and_the_next_one_moves_only_who_has_to_move() -> None:
    """No cycle is paid for nothing."""
    world = make_world(fits=2)
    with world.cohort.turn("actor", "critic"):
        pass
    outcome = world.cohort.awake("critic")

    assert isinstance(outcome, CohortMoved)
    assert [str(step) for step in outcome.plan.steps] == ["actor.sleep", "actor.offload"]
    assert world.events()[-4:] == ["actor.wake_up", "critic.wake_up", "actor.sleep", "actor.offload"]
    assert outcome.moved_bytes > 0
    assert str(outcome).startswith("awake(critic): actor.sleep, actor.offload; ")


def test_a_turn_that_is_so_already_sends_no_event_and_says_so() -> None:
    """It is typed, and it is on the record of every member."""
    world = make_world()
    world.cohort.awake("critic")
    events = world.events()
    outcome = world.cohort.awake("critic")

    assert isinstance(outcome, CohortUnchanged)
    assert outcome.states["critic"] is TrainerState.AWAKE
    assert (outcome.moved_bytes, str(outcome)) == (0, "awake(critic): nothing to do")
    assert world.events() == events
    assert [world.notes(name)[-1]["note"] for name in NAMES] == ["a turn of the cohort changed nothing"] * 3


def test_the_order_of_the_names_says_nothing_and_a_name_twice_is_once() -> None:
    """The declared order decides."""
    world = make_world()

    assert steps_of(world, "teacher", "actor", "teacher") == ["actor.wake_up", "teacher.wake_up"]
    assert world.cohort.awake("teacher", "actor", "teacher").call == "awake(actor, teacher)"


def test_a_turn_that_does_not_fit_is_refused_with_the_numbers_before_its_first_step() -> None:
    """Out of memory at a resume ends the process of the real saver."""
    world = make_world(fits=1)
    world.cohort.awake("teacher")
    events = world.events()
    with pytest.raises(CohortRefused) as refused:
        world.cohort.awake("actor", "critic")

    both = sizes_bytes()["actor"] + sizes_bytes()["critic"]
    assert f"critic.wake_up needs {both} bytes on the device" in str(refused.value)
    assert "raise a budget" in refused.value.remedy
    assert isinstance(refused.value.refusal, CohortRefusal)
    assert world.events() == events
    assert world.awake == ("teacher",)
    assert world.notes("critic")[-1]["note"] == "a turn of the cohort was refused"


def refusal_of(world: World, *wanted: str) -> str:
    """Why it is not planned."""
    found = world.cohort.plan(*wanted)
    assert isinstance(found, CohortRefusal)
    return found.because


def test_a_device_without_a_limit_is_limited_by_the_least_budget_of_any_member() -> None:
    """Whoever configured it."""
    budget = sizes_bytes()["actor"]
    world = make_world(saver=HostArena(), configs={"teacher": {"device_budget_bytes": budget}})
    world.cohort.awake("actor")

    assert f"on the device, {sizes_bytes()['teacher']} of them its own, and the budget is {budget}" in refusal_of(
        world, "actor", "teacher"
    )


def test_the_host_is_limited_by_the_least_budget_of_any_member() -> None:
    """Two backups fit and three do not."""
    budget = sizes_bytes()["actor"]
    world = make_world(saver=HostArena(), configs={"actor": {"host_budget_bytes": budget}})
    for name in NAMES:
        world[name].wake_up()

    assert steps_of(world, "actor") == ["critic.sleep", "critic.offload", "teacher.sleep", "teacher.offload"]
    assert f"of them its own, and the budget is {budget}" in refusal_of(world)
    assert "bytes on the host" in refusal_of(world)


def test_where_the_host_holds_one_backup_less_the_wake_comes_between_the_releases() -> None:
    """Another order than the usual one is taken when only that one fits, and the bytes are what they were."""
    every = sum(info.backup_bytes for info in make_world().saver.tags().values())
    budget = every - make_world().cohort.usage().members["teacher"].host_bytes // 2
    world = make_world(configs={"actor": {"host_budget_bytes": budget}})
    before = world.all_bytes()
    world.cohort.awake("teacher")
    outcome = world.cohort.awake("actor")

    assert isinstance(outcome, CohortMoved)
    assert [str(step) for step in outcome.plan.steps] == ["teacher.sleep", "actor.wake_up", "teacher.offload"]
    assert outcome.plan.host_peak_bytes <= budget
    assert world.all_bytes() == before


def test_sleep_keeps_weights_on_the_device_and_offload_gives_them_back() -> None:
    """Who has offloaded stays so."""
    world = make_world()
    world.cohort.awake("actor", "critic")
    world.cohort.sleep()
    assert [str(state) for state in world.cohort.states.values()] == ["sleeping", "sleeping", "offloaded-cpu"]
    world.cohort.offload()

    assert set(world.cohort.states.values()) == {TrainerState.OFFLOADED_CPU}
    assert world.saver.usage().device_bytes == 0
    assert isinstance(world.cohort.offload(), CohortUnchanged)


def test_a_member_without_an_offload_target_sleeps_instead() -> None:
    """It gives back what it can, and is never left awake."""
    world = make_world(configs={"teacher": {"offload_target": None}})
    world.cohort.awake("teacher")
    world.cohort.awake("actor")

    assert world.cohort.states["teacher"] is TrainerState.SLEEPING
    assert world.awake == ("actor",)


def test_a_faulted_member_refuses_the_turn_by_name_until_it_has_recovered() -> None:
    """Wanted or not: it is never driven in silence."""
    world = make_world()
    faulted(world, "critic")
    for wanted in ("critic", "actor"):
        with pytest.raises(CohortRefused, match="critic is faulted") as refused:
            world.cohort.awake(wanted)
    assert "critic.recover()" in refused.value.remedy
    world["critic"].recover()
    world.cohort.awake("actor")

    assert world.awake == ("actor",)


def test_a_guard_of_a_member_refuses_the_turn_and_what_was_done_is_undone() -> None:
    """A step of the critic is open: the actor, which had gone already, is back."""
    world = make_world()
    world.cohort.awake("actor", "critic")
    before = world.all_bytes()
    with world["critic"].step() as step:
        step.accumulated()
        with pytest.raises(CohortFailed) as failed:
            world.cohort.awake("teacher")

    assert (failed.value.member, failed.value.event) == ("critic", "sleep")
    assert isinstance(failed.value.cause, EventRefused)
    assert failed.value.undone
    assert "What was done before was undone" in str(failed.value)
    assert world.awake == ("actor", "critic")
    assert world.all_bytes() == before


def test_gradients_of_an_accumulation_outlive_the_turns_of_others() -> None:
    """They are kept on the host while their member is away, and counted there."""
    world = make_world()
    world.cohort.awake("critic")
    world.accumulate()
    grown = [one.grad.clone() for one in world.valuer.parameters() if one.grad is not None]
    with world.cohort.turn("actor"):
        assert world.cohort.usage().copies["critic"] == sum(one.nbytes for one in grown)
        world.train("actor")
    world.cohort.awake("critic")

    assert all(bool((one.grad == held).all()) for one, held in zip(world.valuer.parameters(), grown, strict=True))
    assert world.cohort.usage().copies == dict.fromkeys(NAMES, 0)


@pytest.mark.parametrize("state", ["awake", "sleep", "offload"])
def test_the_usage_of_members_and_others_adds_up_to_the_savers_own(state: str, tmp_path: Any) -> None:
    """Also with a tenant that is no member, and with a member whose backups lie on disk."""
    world = make_world(saver=HostArena(disk_dir=str(tmp_path)), configs={"critic": {"offload_target": "disk"}})
    assert isinstance(world.saver, HostArena)
    world.saver.place({"cache": llama(3).lm_head.weight.detach()}, "E0/kv_cache", Backup.CPU)  # type: ignore[union-attr]
    world.cohort.awake("actor", "critic")
    if state != "awake":
        getattr(world.cohort, state)()
    usage = world.cohort.usage()

    assert usage.total == world.saver.usage()
    assert usage.others == Usage(64 * 32 * 4, 0, 0)
    assert usage.members["critic"].disk_bytes > 0  # the file stays while its region is active
    assert (usage.members["actor"].device_bytes > 0) == (state != "offload")
    assert usage.members["teacher"].host_bytes > 0


def test_the_plan_predicts_what_is_held_after_each_step() -> None:
    """The log of every member has both, under the number of the turn."""
    world = make_world(fits=2)
    world.cohort.awake("actor", "critic")
    world.accumulate()
    world.cohort.awake("teacher")
    gone = world.notes("teacher")[-1]

    assert gone["note"] == "a turn of the cohort has gone"
    assert (gone["turn"], gone["call"]) == (2, "awake(teacher)")
    assert [step["step"] for step in gone["steps"]] == [
        "actor.sleep", "actor.offload", "critic.sleep", "critic.offload", "teacher.wake_up",
    ]  # fmt: skip
    for step in gone["steps"]:
        assert (step["held_host_bytes"], step["held_device_bytes"]) == (step["host_bytes"], step["device_bytes"])
    assert world.notes("actor")[-1]["steps"] == gone["steps"]


def test_a_wake_from_sleep_gives_no_backup_back() -> None:
    """There is none: the weights stayed on the device. What was predicted is what is held."""
    world = make_world()
    world.cohort.awake("critic")
    world.accumulate()
    world.cohort.sleep()
    world.cohort.awake("critic")
    (step,) = world.notes()[-1]["steps"]

    assert (step["held_host_bytes"], step["held_device_bytes"]) == (step["host_bytes"], step["device_bytes"])


def test_a_turn_inside_a_turn_of_the_same_thread_is_an_error() -> None:
    """It would move members under the block around it."""
    world = make_world()
    with world.cohort.turn("actor"):
        assert steps_of(world, "critic") == ["actor.sleep", "actor.offload", "critic.wake_up"]
        with pytest.raises(ReentrantEvent, match=r"awake\(critic\) was sent from inside turn\(actor\)"):
            world.cohort.awake("critic")

    assert world.awake == ("actor",)


def test_a_turn_from_inside_an_event_of_a_member_is_an_error() -> None:
    """A subscriber has no handle on the cohort."""
    world = make_world()
    world["actor"].subscribe(lambda _: world.cohort.awake("critic") and None)
    world["actor"].wake_up()

    (error,) = world["actor"].callback_errors
    assert isinstance(error, ReentrantEvent)
    assert "awake(critic) was called from inside an event of actor" in str(error)
    assert world.awake == ("actor",)


@contextmanager
def held_elsewhere(world: World) -> Iterator[None]:
    """Another thread is inside a turn."""
    inside, leave = Event(), Event()

    def hold() -> None:
        with world.cohort.turn("actor"):
            inside.set()
            leave.wait(30)

    thread = Thread(target=hold)
    thread.start()
    inside.wait(30)
    try:
        yield
    finally:
        leave.set()
        thread.join(30)


def test_a_turn_waits_for_that_of_another_thread_and_not_for_ever() -> None:
    """Up to the longest timeout of its members."""
    world = make_world(configs={name: {"event_timeout_s": 0.05} for name in NAMES})
    with held_elsewhere(world), pytest.raises(BusyError, match=r"awake\(critic\) waited 0.05 s for turn\(actor\)"):
        world.cohort.awake("critic")

    assert isinstance(world.cohort.awake("critic"), CohortMoved)


def test_a_member_that_is_busy_in_another_thread_fails_the_turn_before_its_first_step() -> None:
    """Nothing can be planned from what is in the middle of a change."""
    world = make_world(configs={name: {"event_timeout_s": 0.05} for name in NAMES})
    inside, leave = Event(), Event()

    def hold(_: object) -> None:
        inside.set()
        leave.wait(30)

    world["critic"].subscribe(hold)
    thread = Thread(target=world["critic"].wake_up)
    thread.start()
    inside.wait(30)
    with pytest.raises(BusyError):
        world.cohort.awake("actor")
    leave.set()
    thread.join(30)

    assert world.events() == ["critic.wake_up"]


def test_a_member_that_is_driven_by_itself_inside_a_turn_is_named_and_planned_with() -> None:
    """States are asked, never remembered."""
    world = make_world()
    with world.cohort.turn("actor"):
        world["teacher"].wake_up()
    assert world.notes()[-1]["note"] == "members were driven by themselves while a turn of the cohort was open"
    assert world.notes()[-1]["moved"] == {"teacher": "awake"}

    assert steps_of(world, "actor") == ["teacher.sleep", "teacher.offload"]


def test_a_member_that_somebody_moves_between_two_steps_fails_the_turn() -> None:
    """The teacher wakes while the actor does: it is not where it shall be when all steps are done."""
    world = make_world()
    world["actor"].subscribe(lambda _: world["teacher"].wake_up() and None)
    with pytest.raises(CohortFailed, match="somebody drove members") as failed:
        world.cohort.awake("actor")

    assert isinstance(failed.value.cause, MemberMoved)
    assert (failed.value.member, failed.value.event) == ("", None)
    assert failed.value.cause.moved == {"teacher": TrainerState.AWAKE}
    assert set(failed.value.left) == {"teacher"}
    assert not failed.value.undone


def test_nobody_may_be_wanted() -> None:
    """Then the device is free of all of them."""
    world = make_world()
    world.cohort.awake("actor")
    with world.cohort.turn():
        assert world.saver.usage().device_bytes == 0


def test_members_that_cannot_be_one_cohort_are_refused_with_a_reason() -> None:
    """Before anything is moved."""
    world, other = make_world(), make_world()
    with pytest.raises(ConfigError, match="needs members"):
        Cohort()
    with pytest.raises(ConfigError, match="give a TrainerLifecycle"):
        Cohort(actor=world.valuer)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="actor and critic have two memory savers"):
        Cohort(actor=world["actor"], critic=other["critic"])
    with pytest.raises(ConfigError, match="a and b both have"):
        Cohort(a=world["actor"], b=other["actor"])
    world["critic"]._parts.layout._surviving.add("actor/base")
    with pytest.raises(ConfigError, match="lies in the tag actor/base, which is paused as a whole"):
        Cohort(actor=world["actor"], critic=world["critic"])


@pytest.mark.parametrize("call", ["awake", "plan", "turn"])
def test_an_unknown_name_is_an_error_that_lists_the_members(call: str) -> None:
    """Also the name of nobody at all."""
    world = make_world()
    with pytest.raises(ConfigError, match="'ref' is no member of this cohort; there are: actor, critic, teacher"):
        _enter(getattr(world.cohort, call)("ref"))


def _enter(found: Any) -> None:
    """A block is only begun when it is entered."""
    with found:
        pass
