"""Who watches a trainer sees every event begin and end, and counts of how they ended are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from lifecycle import (
    ConfigError,
    EventRefused,
    Moved,
    Outcome,
    ReentrantEvent,
    SaverError,
    TrainerEvent,
    TrainerState,
    TransitionFailed,
    Unchanged,
)
from states import Effect
from tests.lifecycle.test_refusals import fault
from tests.lifecycle.world import World, make_world


class Diary:
    """A watcher that writes down what it is told."""

    def __init__(self, name: str = "", into: list[tuple[object, ...]] | None = None) -> None:
        self.lines = [] if into is None else into
        self._name = name

    def __call__(self, event: TrainerEvent, state: TrainerState) -> Callable[[Outcome | BaseException], None]:
        self.lines.append((self._name, event, state))
        return lambda how: self.lines.append((self._name, how))


def _failing(world: World, effect: Effect) -> None:
    """The effect raises, once it is asked for."""

    def fail(*_: object) -> None:
        raise SaverError("tag", "no room")

    world.trainer._runner.effects[effect] = fail  # type: ignore[assignment]


def test_a_watcher_is_told_the_event_and_then_the_outcome_that_the_caller_gets() -> None:
    """One that moved, and one whose result held already."""
    world, diary = make_world(), Diary()
    world.trainer.watch(diary)

    slept, again = world.trainer.sleep(), world.trainer.sleep()

    assert isinstance(slept, Moved)
    assert isinstance(again, Unchanged)
    assert diary.lines == [
        ("", TrainerEvent.SLEEP, TrainerState.AWAKE),
        ("", slept),
        ("", TrainerEvent.SLEEP, TrainerState.SLEEPING),
        ("", again),
    ]


def test_a_watcher_is_told_the_error_that_the_caller_gets() -> None:
    """A refusal, and an effect that failed."""
    world, diary = make_world(), Diary()
    world.trainer.watch(diary)

    with pytest.raises(EventRefused) as refused:
        world.trainer.offload()
    _failing(world, Effect.PAUSE_SCRATCH)
    with pytest.raises(TransitionFailed) as failed:
        world.trainer.sleep()

    assert [line[1] for line in diary.lines[1::2]] == [refused.value, failed.value]


def test_who_began_last_is_told_first_how_it_ended() -> None:
    """So that what they open lies one inside the other."""
    world, lines = make_world(), list[tuple[object, ...]]()
    world.trainer.watch(Diary("first", lines))
    world.trainer.watch(Diary("second", lines))

    world.trainer.sleep()

    assert [line[0] for line in lines] == ["first", "second", "second", "first"]


def test_what_a_watcher_raises_changes_nothing_and_is_kept() -> None:
    """Raised at the beginning or at the end; the others are told all the same."""
    world, diary = make_world(), Diary()

    def raises(*_: object) -> None:
        raise RuntimeError("at the beginning")

    def raises_late(*_: object) -> Callable[..., None]:
        def end(_: object) -> None:
            raise RuntimeError("at the end")

        return end

    for watcher in (raises, raises_late, diary):
        world.trainer.watch(watcher)  # type: ignore[arg-type]

    assert isinstance(world.trainer.sleep(), Moved)
    assert [str(error) for error in world.trainer.callback_errors] == ["at the beginning", "at the end"]
    assert len(diary.lines) == 2


def test_a_watcher_sends_no_events() -> None:
    """It is inside one; that it tried is an error of its own."""
    world = make_world()
    world.trainer.watch(lambda *_: world.trainer.sleep())  # type: ignore[arg-type,return-value]

    world.trainer.sleep()

    (error,) = world.trainer.callback_errors
    assert isinstance(error, ReentrantEvent)


def test_what_cannot_be_called_cannot_watch() -> None:
    """Said at once, not at the first event."""
    with pytest.raises(ConfigError, match="cannot be called"):
        make_world().trainer.watch("sleep")  # type: ignore[arg-type]


def test_events_are_counted_by_how_they_ended() -> None:
    """Since the trainer was attached; a copy does not change any more."""
    world = make_world()
    before = world.trainer.tally

    world.trainer.sleep()
    world.trainer.sleep()
    with pytest.raises(EventRefused):
        world.trainer.begin_step(["A"])
    _failing(world, Effect.PAUSE_WEIGHTS)
    with pytest.raises(TransitionFailed):
        world.trainer.offload()

    tally = world.trainer.tally
    assert tally.moved - before.moved == Counter({("sleep", "quiesces"): 1})
    assert tally.unchanged == {"sleep": 1}
    assert {event for event, _ in tally.refused} == {"begin_step"}
    assert tally.failed == {("offload", "pause-weights"): 1}
    assert before.unchanged == {}


def test_refusals_of_calls_that_are_no_events_are_counted_too() -> None:
    """By the guard that does not hold."""
    world = make_world()
    with pytest.raises(EventRefused):
        world.trainer.weights(groups=["no-such-group"])

    assert world.trainer.tally.refused == {("weights", "groups-exist"): 1}


def test_a_refusal_is_counted_for_each_guard_that_does_not_hold() -> None:
    """And for no guard that does."""
    world = make_world()
    world.trainer.begin_step(["A"])
    with pytest.raises(EventRefused) as refused:
        world.trainer.sleep()

    assert len(refused.value.verdicts) > len(refused.value.failed)
    assert world.trainer.tally.refused == {("sleep", guard.name): 1 for guard in refused.value.failed}


def test_a_fault_is_counted_at_its_effect() -> None:
    """What was done before it could not be undone."""
    world = make_world()

    fault(world)

    assert world.trainer.tally.failed.total() == 1


@pytest.mark.parametrize("when", ["begins", "ends"])
def test_an_interrupt_in_a_watcher_goes_on_after_the_others_were_told(when: str) -> None:
    """Whoever was told that an event begins is told that it ended: what was opened is closed."""
    world, diary = make_world(), Diary()

    def interrupted(*_: object) -> Callable[[object], None]:
        if when == "begins":
            raise KeyboardInterrupt
        return lambda _: (_ for _ in ()).throw(KeyboardInterrupt)

    world.trainer.watch(diary)
    world.trainer.watch(interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.trainer.sleep()

    assert len(diary.lines) == 2
    assert isinstance(diary.lines[1][1], KeyboardInterrupt if when == "begins" else Moved)
    assert world.trainer.state is (TrainerState.AWAKE if when == "begins" else TrainerState.SLEEPING)
