"""Every operation of a turn fails once: members are where they were, no byte differs, and the next turn goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lifecycle import DigestMismatch, TrainerFaulted, TrainerState, TransitionFailed
from lifecycle.cohort import CohortFailed
from lifecycle.distributed.errors import RanksMissing
from lifecycle.transition.ranks import Alone
from states import Effect
from states.agreement import Missing
from tests.cohort.world import NAMES, World, make_world


@dataclass
class Breaks:
    """Faults of the arena: the n-th native call fails, or every one that a rule picks.

    Attributes:
        calls: the native calls since it was armed, as (operation, tag).
    """

    nth: int = 0
    rule: Callable[[str, str], bool] = lambda _operation, _tag: False
    error: Callable[[], BaseException] = lambda: OSError("told to fail")
    calls: list[tuple[str, str]] = field(default_factory=list)

    def arm(
        self, nth: int = 0, rule: Callable[[str, str], bool] = lambda _operation, _tag: False,
        error: Callable[[], BaseException] = lambda: OSError("told to fail"),
    ) -> None:  # fmt: skip
        self.nth, self.rule, self.error, self.calls = nth, rule, error, []

    def __call__(self, operation: str, tag: str) -> None:
        self.calls.append((operation, tag))
        if len(self.calls) == self.nth or self.rule(operation, tag):
            raise self.error()


def broken_world(*awake: str, fits: int = 1) -> tuple[World, Breaks]:
    """These members are awake, and one has trained."""
    breaks = Breaks()
    world = make_world(fits=fits, faults=breaks)
    world.cohort.awake(*awake)
    world.train(awake[0])
    return world, breaks


def nothing_has_happened(world: World, states: dict[str, TrainerState], before: dict[str, dict[str, str]]) -> None:
    """Everybody is where they were with the bytes of before, and the books add up."""
    assert dict(world.cohort.states) == states
    assert world.all_bytes() == before
    assert world.cohort.usage().total == world.saver.usage()
    for name, state in states.items():
        tags = [info for tag, info in world.saver.tags().items() if tag.startswith(f"{name}/")]
        assert all(info.paused == (state is not TrainerState.AWAKE) for info in tags)


@pytest.mark.parametrize("error", [lambda: OSError("told to fail"), KeyboardInterrupt], ids=["error", "interrupt"])
def test_whichever_native_call_of_a_turn_fails_nothing_has_happened(error: Callable[[], BaseException]) -> None:
    """The actor pauses, the critic resumes; each call fails in turn, and then the turn goes through."""
    world, breaks = broken_world("actor")
    states, before = dict(world.cohort.states), world.all_bytes()
    breaks.arm()
    world.cohort.awake("critic")
    count = len(breaks.calls)
    world.cohort.awake("actor")
    for nth in range(1, count + 1):
        breaks.arm(nth, error=error)
        with pytest.raises((CohortFailed, KeyboardInterrupt)) as failed:
            world.cohort.awake("critic")
        assert isinstance(failed.value, CohortFailed) == (error is not KeyboardInterrupt)
        if isinstance(failed.value, CohortFailed):
            assert failed.value.undone
            assert failed.value.member == breaks.calls[nth - 1][1].partition("/")[0]
            assert isinstance(failed.value.cause, TransitionFailed)
        breaks.arm()
        nothing_has_happened(world, states, before)
    world.cohort.awake("critic")

    assert count > 10
    assert world.awake == ("critic",)


def test_whichever_effect_of_a_turn_fails_nothing_has_happened() -> None:
    """Hooks too: what a member runs besides the saver, such as tearing process groups down."""
    world, _ = broken_world("actor")
    states, before = dict(world.cohort.states), world.all_bytes()
    failed: list[tuple[str, str]] = []
    for name in ("actor", "critic"):
        effects = world[name]._runner.effects
        for effect in list(effects):
            original, effects[effect] = effects[effect], fail
            found = failure_of(world, "critic")
            effects[effect] = original
            if found is not None:
                assert (found.member, found.undone) == (name, True)
                failed.append((name, effect))
                nothing_has_happened(world, states, before)
            world.cohort.awake("actor")

    assert {("actor", Effect.TEAR_DOWN_GROUPS), ("actor", Effect.PAUSE_WEIGHTS)} <= set(failed)
    assert {("critic", Effect.RESUME_WEIGHTS), ("critic", Effect.REBUILD_GROUPS)} <= set(failed)
    assert world.all_bytes() == before


def failure_of(world: World, wanted: str) -> CohortFailed | None:
    """What a turn fails with, if it does."""
    try:
        world.cohort.awake(wanted)
    except CohortFailed as error:
        return error
    return None


def fail(*_: object) -> Any:
    """An effect that fails."""
    raise RuntimeError("told to fail")


def test_releases_and_wakes_are_undone_in_reverse() -> None:
    """The third of three wakes fails: the first two go back, and who had gone comes back."""
    world, breaks = broken_world("teacher", fits=3)
    events = len(world.events())
    breaks.arm(rule=lambda operation, tag: operation == "resume" and tag.startswith("critic/"))
    with pytest.raises(CohortFailed) as failed:
        world.cohort.awake("actor", "critic")

    assert failed.value.undone
    assert world.events()[events:] == [
        "teacher.sleep", "teacher.offload", "actor.wake_up", "actor.sleep", "actor.offload", "teacher.wake_up",
    ]  # fmt: skip
    assert world.awake == ("teacher",)


def test_of_two_wakes_the_last_one_is_undone_first() -> None:
    """The way back is the way there, turned round."""
    breaks = Breaks()
    world = make_world(faults=breaks)
    breaks.arm(rule=lambda operation, tag: operation == "resume" and tag.startswith("teacher/"))
    with pytest.raises(CohortFailed):
        world.cohort.awake("actor", "critic", "teacher")

    assert world.events()[2:] == ["critic.sleep", "critic.offload", "actor.sleep", "actor.offload"]


def test_of_a_member_that_cannot_go_back_nothing_more_is_asked() -> None:
    """Its first error is what is told, and the other one goes back all the same."""
    breaks = Breaks()
    world = make_world(faults=breaks)
    breaks.arm(
        rule=lambda operation, tag: (operation, tag) in {("resume", "teacher/base"), ("pause", "critic/gradients")}
    )
    with pytest.raises(CohortFailed, match="Not undone: critic") as failed:
        world.cohort.awake("actor", "critic", "teacher")

    assert list(failed.value.left) == ["critic"]
    left = failed.value.left["critic"]
    assert isinstance(left, TransitionFailed)
    assert (left.event, left.effect) == ("sleep", "pause-scratch")
    assert world.awake == ("critic",)


def test_a_way_back_that_fails_is_told_with_where_everybody_is() -> None:
    """The critic cannot wake, and then the actor cannot either: it stays offloaded, and no byte is lost."""
    world, breaks = broken_world("actor")
    before = world.all_bytes()
    breaks.arm(rule=lambda operation, _: operation == "resume")
    with pytest.raises(CohortFailed, match="Not undone: actor") as failed:
        world.cohort.awake("critic")

    assert not failed.value.undone
    assert (failed.value.member, failed.value.event) == ("critic", "wake_up")
    assert failed.value.states == dict.fromkeys(NAMES, TrainerState.OFFLOADED_CPU)
    assert list(failed.value.left) == ["actor"]
    assert isinstance(failed.value.left["actor"], TransitionFailed)
    breaks.arm()
    assert world.all_bytes() == before
    world.cohort.awake("actor")
    assert world.all_bytes() == before


def test_an_interrupt_on_the_way_back_is_what_is_raised() -> None:
    """It is not swallowed, and says what is where."""
    world, breaks = broken_world("actor")

    def interrupt(operation: str, tag: str) -> bool:
        breaks.error = KeyboardInterrupt if tag.startswith("actor/") else OSError
        return operation == "resume"

    breaks.arm(rule=interrupt)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        world.cohort.awake("critic")

    assert "awake(critic) failed at critic.wake_up" in interrupted.value.__notes__[0]
    assert world.awake == ()


def test_a_member_that_faults_in_a_turn_is_named_and_the_others_go_back() -> None:
    """Its bytes come back wrong: it says recover(), and the actor is awake again where there is room for both."""
    world, _ = broken_world("actor", fits=2)

    def differ(*_: object) -> Any:
        raise DigestMismatch("trainable-base", "a byte differs", ())

    effects = world["critic"]._runner.effects
    original, effects[Effect.CHECK_DIGESTS] = effects[Effect.CHECK_DIGESTS], differ
    with pytest.raises(CohortFailed, match=r"critic.recover\(\), then call it again") as failed:
        world.cohort.awake("critic")
    effects[Effect.CHECK_DIGESTS] = original

    assert isinstance(failed.value.cause, TrainerFaulted)
    assert world.cohort.states["critic"] is TrainerState.FAULTED
    assert world.awake == ("actor",)
    assert list(failed.value.left) == ["critic"]
    world["critic"].recover()
    world.cohort.awake("critic")


class Lost(Alone):
    """The other rank does not come."""

    def decided(self, *_: object) -> Any:  # type: ignore[override]
        raise RanksMissing(Missing((1,), 3, 0.1))


def test_when_ranks_are_missing_nobody_waits_for_them_once_a_step_of_the_way_back() -> None:
    """Everything stays where it is; the error says where that is."""
    world, _ = broken_world("actor")

    world["critic"]._runner._ranks = Lost()
    with pytest.raises(CohortFailed, match="Not undone: actor") as failed:
        world.cohort.awake("critic")

    assert isinstance(failed.value.cause, RanksMissing)
    assert failed.value.states == dict.fromkeys(NAMES, TrainerState.OFFLOADED_CPU)


class LostInUndo(Alone):
    """An effect fails, and the other rank does not come when it is to be undone."""

    def undone(self, error: BaseException | None = None) -> None:
        raise RanksMissing(Missing((1,), 3, 0.1))


def test_when_ranks_are_lost_while_a_step_is_undone_nobody_waits_for_them_either() -> None:
    """The critic is faulted, and the actor is not asked for anything more."""
    world, _ = broken_world("actor")
    effects = world["critic"]._runner.effects
    effects[Effect.RESUME_WEIGHTS] = fail
    world["critic"]._runner._ranks = LostInUndo()
    with pytest.raises(CohortFailed, match=r"critic\.recover\(\)") as failed:
        world.cohort.awake("critic")

    assert isinstance(failed.value.cause, TrainerFaulted)
    assert isinstance(failed.value.cause.undo_error, RanksMissing)
    assert failed.value.states["actor"] is TrainerState.OFFLOADED_CPU
    assert world.events()[-2:] == ["actor.sleep", "actor.offload"]
