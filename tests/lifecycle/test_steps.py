"""Training steps: what changed takes a new version, and nothing else does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lifecycle import (
    AuditError,
    ConfigError,
    EventRefused,
    HostArena,
    LifecycleConfig,
    Moved,
    TrainerLifecycle,
    TrainerState,
    TransitionFailed,
)
from tests.lifecycle.test_turns import FailingAudit, with_audit
from tests.lifecycle.world import FakeEngine, SlotHost, TinyModel, World, make_world


def versions_of(world: World) -> dict[str, int]:
    """Version by content group."""
    return {one.group: one.version for one in world.trainer.facts().contents}


def test_trained_without_names_commits_what_the_step_was_opened_for() -> None:
    """Bytes that changed never keep their version."""
    world = make_world()
    before = versions_of(world)
    world.trainer.begin_step(["A"])
    world.trainer.trained()

    assert versions_of(world)["adapter/A"] > before["adapter/A"]
    assert versions_of(world)["adapter/B"] == before["adapter/B"]


@pytest.mark.parametrize("names", [["B"], ["A", "B"], []])
def test_a_commit_of_other_adapters_than_the_open_step_is_refused(names: list[str]) -> None:
    """The error names those that differ."""
    world = make_world()
    world.trainer.begin_step(["A"])
    with pytest.raises(EventRefused, match="the-commit-names-the-open-step"):
        world.trainer.trained(names)


def test_an_engine_that_outlives_a_trainer_gets_everything_from_the_next_one() -> None:
    """Version ids are never used twice, also by another controller."""
    engine = FakeEngine()
    make_world().trainer.update_weights([engine])
    engine.calls.clear()
    outcome = make_world().trainer.update_weights([engine])

    assert isinstance(outcome, Moved)
    assert "base:frozen-base" in engine.calls


def build(model: TinyModel, optimizer: object, **changes: object) -> TrainerLifecycle:
    """A controller over that model."""
    return TrainerLifecycle(
        LifecycleConfig(**changes),  # type: ignore[arg-type]
        saver=HostArena(),
        model=model,
        optimizer=optimizer,  # type: ignore[arg-type]
        adapters=SlotHost(model),
        initial_state=TrainerState.AWAKE,
    )


def test_one_optimizer_over_several_slots_is_refused() -> None:
    """A step of one adapter would move the others by their momentum, unseen."""
    model = TinyModel()
    with pytest.raises(ConfigError, match="one optimizer a slot"):
        build(model, torch.optim.Adam([*model.lora_a, *model.lora_b]))


def test_a_model_that_the_adapters_do_not_sit_on_is_refused() -> None:
    """Its tensors would never be placed."""
    model = TinyModel()
    with pytest.raises(ConfigError, match="another model"):
        TrainerLifecycle(
            LifecycleConfig(),
            saver=HostArena(),
            model=TinyModel(),
            optimizer=None,
            adapters=SlotHost(model),
            initial_state=TrainerState.AWAKE,
        )


def test_the_moments_of_a_resumed_optimizer_are_kept() -> None:
    """Only parameters without a state get one; the others go on where they were."""
    model = TinyModel(trainable=True)
    optimizer = torch.optim.Adam([model.p, model.lora_a[0]], lr=0.1)
    model.p.grad = torch.ones_like(model.p)
    optimizer.step()
    moments = optimizer.state[model.p]["exp_avg"].clone()
    build(model, optimizer)

    assert torch.equal(optimizer.state[model.p]["exp_avg"], moments)
    assert float(optimizer.state[model.p]["step"]) == 1.0
    assert float(optimizer.state[model.lora_a[0]]["step"]) == 0.0


def test_a_second_trainer_under_the_same_name_is_refused() -> None:
    """It would pause and resume the first one's memory."""
    world = make_world()
    with pytest.raises(ConfigError, match="name of its own"):
        make_world(arena=world.arena)


def test_two_trainers_of_different_names_share_an_arena() -> None:
    """Tags are prefixed by model: one sleeps, the other does not notice."""
    first = make_world(model="actor")
    second = make_world(model="critic", arena=first.arena)
    before = second.all_bytes()
    first.trainer.sleep(offload=True)

    assert second.all_bytes() == before
    assert second.trainer.state is TrainerState.AWAKE


def test_a_parameter_that_was_unfrozen_later_is_named_before_it_trains() -> None:
    """Its changes would count as none."""
    world = make_world()
    world.model.up.requires_grad_(True)
    with pytest.raises(EventRefused, match="trainable or replaced since the attach: up"):
        world.trainer.begin_step(["A"])


@pytest.mark.parametrize("tag", ["actor/gradients", "actor/optimizer"])
def test_a_step_over_memory_that_was_paused_behind_the_controller_is_refused(tag: str) -> None:
    """The optimizer would write to unmapped pages; sleep and wake bring them back."""
    world = make_world()
    world.arena.pause(tag)
    with pytest.raises(EventRefused, match="paused"):
        world.trainer.begin_step(["A"])
    world.trainer.sleep()
    world.trainer.wake_up()

    world.train("A")


def test_a_log_that_cannot_take_the_commit_does_not_hide_behind_an_aborted_step() -> None:
    """The step is committed; the error is the log's, with the outcome."""
    world = make_world()
    audit = FailingAudit("moved")
    with pytest.raises(AuditError) as failed, world.trainer.step(["A"]):
        with_audit(world, audit)

    assert isinstance(failed.value.outcome, Moved)
    assert not world.trainer.facts().step_open


def test_a_log_that_cannot_take_the_opening_does_not_leave_the_step_open() -> None:
    """Nobody would close it."""
    world = with_audit(make_world(), FailingAudit("moved"))
    with pytest.raises(AuditError), world.trainer.step(["A"]):
        pytest.fail("the block must not run")

    assert not world.trainer.facts().step_open


def test_a_step_inside_a_step_leaves_the_outer_one_open() -> None:
    """The inner one is refused, the outer one goes on."""
    world = make_world()
    with world.trainer.step(["A"]):
        with pytest.raises(EventRefused, match="no-step-in-flight"), world.trainer.step(["B"]):
            pytest.fail("the block must not run")
        assert world.trainer.facts().step_open


def test_gradients_that_a_failed_reconcile_zeroed_are_as_before() -> None:
    """An accumulation that is said to go on has its values."""
    world = make_world(strategy="duplicate")
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    before = world.model.lora_a[0].grad
    assert before is not None
    values = before.clone()
    world.host.deregister("A")
    world.trainer._runner.effects["backup-actor"] = lambda parts, work: 1 / 0  # type: ignore[index,assignment]
    with pytest.raises(TransitionFailed):
        world.trainer.reconcile_adapters()

    assert torch.equal(before, values)
    assert world.trainer.facts().accumulated == ("adapter/A",)


def test_moments_placed_where_they_would_be_lost_refuse_the_offload() -> None:
    """A region without backup is for scratch."""
    from lifecycle import Backup  # noqa: PLC0415 - only here

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    arena = HostArena()
    arena.place({"m": optimizer.state[model.weight]["momentum_buffer"]}, "framework/moments", Backup.NONE)
    trainer = TrainerLifecycle(
        LifecycleConfig(lora=False),
        saver=arena,
        model=model,
        optimizer=optimizer,
        adapters=None,
        initial_state=TrainerState.AWAKE,
    )
    trainer.sleep()
    with pytest.raises(EventRefused, match="weight#momentum_buffer"):
        trainer.offload()


def test_two_engines_of_one_name_are_refused() -> None:
    """Their versions could not be told apart."""
    with pytest.raises(ConfigError, match="same name"):
        make_world().trainer.update_weights([FakeEngine(), FakeEngine()])


@pytest.mark.parametrize("engines", [FakeEngine(), [object()], None])
def test_what_is_no_list_of_engines_is_refused_before_anything_happens(engines: object) -> None:
    """A clear error, not one from deep inside, and the trainer stays awake."""
    world = make_world()
    for call in (world.trainer.update_weights, world.trainer.handoff):
        with pytest.raises(ConfigError, match="engine"):
            call(engines)  # type: ignore[arg-type]

    assert world.trainer.state is TrainerState.AWAKE


def test_an_engine_that_breaks_when_it_is_asked_is_unknown() -> None:
    """Whatever it raises: its push fails before anything is sent, the reason says what."""
    world, engine = make_world(), FakeEngine()
    engine.report = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(TransitionFailed, match="it does not answer: ZeroDivisionError"):
        world.trainer.update_weights([engine])
    assert engine.calls == []


def test_an_event_that_does_not_exist_cannot_be_explained() -> None:
    """The error lists those that do."""
    with pytest.raises(ConfigError, match="reconcile_adapters"):
        make_world().trainer.explain("slep")


def test_an_explanation_is_printed_guard_by_guard() -> None:
    """What a person reads first says of each guard whether it holds, and of one that does not what to do."""
    trainer = make_world().trainer

    assert str(trainer.explain("wake_up")) == "wake_up in state awake: nothing to do"
    head, *guards = str(trainer.explain("sleep")).splitlines()
    assert head == "sleep in state awake: takes quiesces"
    assert [guard.split()[0] for guard in guards] == ["ok"] * len(trainer.explain("sleep").verdicts)
    head, guard = str(trainer.explain("offload")).splitlines()
    assert head == "offload in state awake: is refused"
    assert guard.startswith("  NO  the-event-leaves-this-state: ")
    assert guard.endswith("What to do: sleep() first")
