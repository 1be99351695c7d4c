"""One event at a time; subscribers and the log cannot change what a transition did (FB-59)."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread

import pytest

from lifecycle import (
    AuditError,
    BusyError,
    EventRefused,
    LifecycleError,
    Moved,
    ReentrantEvent,
    TrainerState,
    TrainingStep,
)
from states import Effect
from tests.lifecycle.world import World, make_world


class FailingAudit:
    """A log on a full disk: refuses the records of one name."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.records: list[str] = []

    def write(self, name: str, keys: Mapping[str, object]) -> None:
        if name == f"lifecycle.{self.refused}":
            raise AuditError("run.jsonl", "no space left on device")
        self.records.append(name)


def with_audit(world: World, audit: FailingAudit) -> World:
    """The world, from now on with that log."""
    world.trainer._runner.recorder._audit = audit
    return world


def test_an_event_sent_from_inside_another_is_an_error_and_takes_no_move() -> None:
    """Effects get no handle on the machine; who takes one anyway is refused."""
    world = make_world()
    seen: list[LifecycleError] = []

    def nested(outcome: Moved) -> None:
        try:
            world.trainer.wake_up()
        except ReentrantEvent as error:
            seen.append(error)
            raise

    world.trainer.subscribe(nested)
    world.trainer.sleep()

    assert len(seen) == 1
    assert world.trainer.state is TrainerState.SLEEPING
    assert isinstance(world.trainer.callback_errors[0], ReentrantEvent)


def test_another_thread_waits_for_the_event_under_way() -> None:
    """Two threads, two events, one after the other."""
    world, inside, go_on = make_world(), Event(), Event()
    original = world.trainer._runner.effects[Effect.CLEAR_CACHES]

    def slow(parts: object, work: object) -> object:
        inside.set()
        go_on.wait(10)
        return original(parts, work)  # type: ignore[arg-type]

    world.trainer._runner.effects[Effect.CLEAR_CACHES] = slow  # type: ignore[assignment]
    first = Thread(target=world.trainer.sleep)
    first.start()
    inside.wait(10)
    second = Thread(target=world.trainer.wake_up)
    second.start()
    go_on.set()
    first.join(10)
    second.join(10)

    assert world.trainer.state is TrainerState.AWAKE


def test_a_thread_that_waits_too_long_is_told_for_what() -> None:
    """The wait has an end."""
    world = make_world(event_timeout_s=0.05)
    errors: list[BusyError] = []

    def other() -> None:
        with pytest.raises(BusyError, match="sleep of another thread") as busy:
            world.trainer.wake_up()
        errors.append(busy.value)

    def slow(parts: object, work: object) -> object:
        thread = Thread(target=other)
        thread.start()
        thread.join(10)
        return lambda: None

    world.trainer._runner.effects[Effect.CLEAR_CACHES] = slow  # type: ignore[assignment]
    world.trainer.sleep()

    assert len(errors) == 1


def test_a_subscriber_that_raises_is_recorded_and_changes_nothing() -> None:
    """Called after the commit, never part of it."""
    world = make_world()
    told: list[Moved] = []

    def bad(outcome: Moved) -> None:
        told.append(outcome)
        raise ValueError("a metrics server is down")

    world.trainer.subscribe(bad)
    outcome = world.trainer.sleep()

    assert told == [outcome]
    assert [str(error) for error in world.trainer.callback_errors] == ["a metrics server is down"]
    assert world.records("noted")[0]["note"] == "a subscriber raised"


def test_a_log_that_cannot_take_the_intent_stops_the_event_before_its_first_effect() -> None:
    """With ``audit_failure="stop"`` nothing happens that is not on the record."""
    world = with_audit(make_world(), FailingAudit("began"))
    before = world.all_bytes()
    with pytest.raises(AuditError, match="no space left") as failed:
        world.trainer.sleep()

    assert failed.value.outcome is None
    assert world.trainer.state is TrainerState.AWAKE
    assert world.all_bytes() == before


def test_a_log_that_cannot_take_the_end_reports_it_with_the_outcome() -> None:
    """The transition's outcome does not depend on the log."""
    world = with_audit(make_world(), FailingAudit("moved"))
    with pytest.raises(AuditError) as failed:
        world.trainer.sleep()

    assert isinstance(failed.value.outcome, Moved)
    assert world.trainer.state is TrainerState.SLEEPING


@pytest.mark.parametrize("record", ["began", "moved", "unchanged"])
def test_a_log_that_fails_may_be_told_to_let_training_go_on(record: str) -> None:
    """With ``audit_failure="continue"`` the failure is kept for whoever asks."""
    world = with_audit(make_world(audit_failure="continue"), FailingAudit(record))
    world.trainer.sleep()
    world.trainer.sleep()

    assert world.trainer.state is TrainerState.SLEEPING
    assert len(world.trainer.audit_failures) == 1


def test_a_refusal_is_raised_even_if_it_cannot_be_recorded() -> None:
    """The caller's mistake is what the caller hears of."""
    world = with_audit(make_world(), FailingAudit("refused"))
    with pytest.raises(EventRefused):
        world.trainer.offload()

    assert len(world.trainer.audit_failures) == 1


def test_every_event_leaves_one_record_pair_or_one_record() -> None:
    """Began and moved, or refused, or unchanged: nothing else, also for both moves of a reconcile."""
    world = make_world()
    world.trainer.sleep()
    world.trainer.sleep()
    with pytest.raises(EventRefused):
        world.trainer.begin_step(["A"])
    world.host.register("C", 2)
    world.trainer.reconcile_adapters()

    assert [(one["event"], one["trigger"]) for one in world.records()] == [
        ("lifecycle.began", "sleep"),
        ("lifecycle.moved", "sleep"),
        ("lifecycle.unchanged", "sleep"),
        ("lifecycle.refused", "begin_step"),
        ("lifecycle.began", "reconcile_adapters"),
        ("lifecycle.moved", "reconcile_adapters"),
    ]


def test_a_step_cannot_be_both_stepped_and_accumulated() -> None:
    """The block says one thing."""
    world = make_world()
    with pytest.raises(LifecycleError, match="stepped already"), world.trainer.step(["A"]) as step:  # noqa: PT012 - both lines are the rule
        step.stepped()
        step.accumulated()

    assert not world.trainer.facts().step_open


def test_low_level_calls_without_an_open_step_are_refused() -> None:
    """trained, accumulated and abort_step need a step to end; the refusal names the call that was made."""
    trainer = make_world().trainer
    told = {trainer.trained: "trained", trainer.accumulated: r"accumulated\(\)", trainer.abort_step: r"abort_step\(\)"}
    for call, name in told.items():
        with pytest.raises(EventRefused, match=f"(?=.*a-step-is-open).*{name}"):
            call()


def test_live_weights_that_an_open_step_writes_cannot_be_leased() -> None:
    """They are of no version yet; the frozen base is."""
    world = make_world()
    with world.trainer.step(["A"]):
        with pytest.raises(EventRefused, match="adapter/A"):
            world.trainer.weights("exporter")
        with world.trainer.weights("exporter", groups=["frozen-base"]) as lease:
            assert len(lease) == 3


def _train_but_commit_another(world: World, opened: TrainingStep) -> None:
    world.backward("A")
    world.optimizers[0].step()
    opened.adapters = ("B",)


def test_a_commit_that_is_refused_does_not_leave_the_step_open() -> None:
    """The block commits other adapters than it was opened for: it is aborted, the bytes count as changed."""
    world = make_world()
    version = world.trainer.facts().content("adapter/A").version  # type: ignore[union-attr]
    step = world.trainer.step(["A"])
    with pytest.raises(EventRefused, match="the-commit-names-the-open-step"), step as opened:
        _train_but_commit_another(world, opened)

    assert not world.trainer.facts().step_open
    assert world.trainer.facts().content("adapter/A").version > version  # type: ignore[union-attr]


def test_nothing_that_is_remembered_grows_with_the_run() -> None:
    """Digests, errors and records of a long run are bounded."""
    world = make_world()
    parts = world.trainer._parts
    world.train("A", "B")
    digests = len(parts.versions.digests)
    world.trainer.subscribe(lambda outcome: 1 / 0)
    world.train("A", "B", steps=150)

    assert len(parts.versions.digests) == digests
    assert len(world.trainer.callback_errors) == 256


def test_a_record_says_which_versions_changed_and_now_and_then_all_of_them() -> None:
    """A log can be read from its middle."""
    world = make_world()
    world.train("A", steps=60)
    moved = world.records("moved")

    assert set(moved[1]["versions"]) == {"buffers", "adapter/A"}  # type: ignore[call-overload]
    checkpoints = [one for one in moved if "checkpoint" in one]
    assert len(checkpoints) == 1
    assert set(checkpoints[0]["checkpoint"]) == {"frozen-base", "buffers", "adapter/A", "adapter/B"}  # type: ignore[call-overload]
