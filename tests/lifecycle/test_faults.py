"""A fault at every effect of every event: undone or faulted, and no byte is lost (FB-59)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lifecycle import HostArena, Moved, ReentrantEvent, TrainerFaulted, TrainerState, TransitionFailed
from states import TABLE, Effect, RowKind, Step
from tests.lifecycle.test_refusals import everything, fault
from tests.lifecycle.world import FakeEngine, World, make_world


def another(world: World) -> dict[str, object]:
    """A reference base."""
    return {name: one.detach() + 1 for name, one in world.trainer._parts.inventory.base["frozen-base"].items()}


def ready_world(event: str, target: str, tmp_path: Path, strategy: str = "duplicate") -> World:
    """A world in which the event may be sent and every effect of its row has something to do."""
    world = make_world(
        arena=HostArena(disk_dir=str(tmp_path)), offload_target=target, strategy=strategy, trainable=True
    )
    world.train("A", "B")
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    if event in ("offload", "wake_up"):
        world.trainer.sleep()
    if event == "wake_up":
        world.trainer.offload()
    if event == "trained":
        world.trainer.begin_step(["B"])
        world.backward("B")
        world.optimizers[1].step()
    if event == "switch_model":
        if strategy == "duplicate":
            world.trainer.snapshots.backup("actor")
        world.trainer.keep_model("ref", another(world))  # type: ignore[arg-type]
    if event == "reconcile_adapters":
        world.host.register("C", 2)
        world.host.deregister("A")
    world.audit.records.clear()
    return world


SENDS: dict[str, Callable[[World], object]] = {
    "sleep": lambda world: world.trainer.sleep(),
    "offload": lambda world: world.trainer.offload(),
    "wake_up": lambda world: world.trainer.wake_up(),
    "reconcile_adapters": lambda world: world.trainer.reconcile_adapters(),
    "begin_step": lambda world: world.trainer.begin_step(["B"]),
    "trained": lambda world: world.trainer.trained(["B"]),
    "switch_model": lambda world: world.trainer.switch_model("ref"),
}


def effects_of(event: str, target: str) -> list[Effect]:
    """The effects that the controller runs for the event, most of them several rows' union, in order."""
    asked = "reconciled" if event == "reconcile_adapters" else event
    rows = [row for row in TABLE if row.event == asked and row.kind is RowKind.MOVE]
    rows = [row for row in rows if "disk" not in row.edge or target == "disk"]
    return sorted({effect for row in rows for effect in row.effects})


CASES = [
    (event, target, effect)
    for event in SENDS
    for target in (("cpu", "disk") if event in ("offload", "wake_up") else ("cpu",))
    for effect in effects_of(event, target)
]


def break_effect(world: World, effect: Effect) -> list[str]:
    """Make one effect fail; the list says whether it was reached."""
    reached: list[str] = []

    def broken(_: object, __: object) -> None:
        reached.append(effect)
        raise OSError("injected")

    world.trainer._runner.effects[effect] = broken  # type: ignore[assignment]
    return reached


@pytest.mark.parametrize(("event", "target", "effect"), CASES)
def test_an_effect_that_fails_is_undone_and_the_event_can_be_sent_again(
    event: str, target: str, effect: Effect, tmp_path: Path
) -> None:
    """State, versions, tags and every byte are as before; after mending the same event succeeds."""
    lean = effect is Effect.KEEP_OUTGOING
    world = ready_world(event, target, tmp_path, "lean" if lean else "duplicate")
    original = dict(world.trainer._runner.effects)
    before = everything(world)
    reached = break_effect(world, effect)
    with pytest.raises(TransitionFailed, match="injected") as failed:
        SENDS[event](world)

    assert reached == [effect]
    assert failed.value.effect == effect
    assert everything(world) == before
    assert [one["event"] for one in world.audit.records] == ["lifecycle.began", "lifecycle.failed"]
    world.trainer._runner.effects = original
    assert isinstance(SENDS[event](world), Moved)


@pytest.mark.parametrize("call", range(1, 4))
@pytest.mark.parametrize("event", ["offload", "wake_up"])
def test_a_saver_that_fails_at_its_kth_call_leaves_every_region_as_it_was(
    event: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the regions paused is no state: those already done are undone."""
    world = ready_world(event, "cpu", tmp_path)
    before = everything(world)
    name = "pause" if event == "offload" else "resume"
    original, count = getattr(world.arena, name), [0]

    def failing(tag: str) -> None:
        count[0] += 1
        if count[0] == call:
            raise OSError("injected")
        original(tag)

    monkeypatch.setattr(world.arena, name, failing)
    with pytest.raises(TransitionFailed, match="injected"):
        SENDS[event](world)
    monkeypatch.undo()

    assert everything(world) == before
    assert isinstance(SENDS[event](world), Moved)


def test_an_undo_that_fails_faults_the_trainer_and_recover_leads_back() -> None:
    """Faulted refuses everything until recover has verified the bytes."""
    world = make_world()
    world.train("A")
    before = world.all_bytes()
    fault(world)

    assert world.trainer.state is TrainerState.FAULTED
    assert isinstance(world.trainer.recover(), Moved)
    assert world.trainer.state is TrainerState.AWAKE
    assert world.all_bytes() == before
    world.train("A")


def test_recover_drives_mixed_tags_to_the_nearest_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The books are the truth: where most regions are paused, the rest is paused too."""
    world = make_world()
    before = world.all_bytes()
    world.trainer.sleep()
    original, pauses = world.arena.pause, [0]

    def failing(tag: str) -> None:
        pauses[0] += 1
        if pauses[0] == 4:
            raise OSError("the fourth pause fails")
        original(tag)

    def stuck(tag: str) -> None:
        raise OSError(f"{tag} does not resume")

    monkeypatch.setattr(world.arena, "pause", failing)
    monkeypatch.setattr(world.arena, "resume", stuck)
    with pytest.raises((TrainerFaulted, TransitionFailed)):
        world.trainer.offload()
    monkeypatch.undo()

    assert world.trainer.state is TrainerState.FAULTED
    world.trainer.recover()
    assert world.trainer.state is TrainerState.OFFLOADED_CPU
    world.trainer.wake_up()
    assert world.all_bytes() == before


def test_an_interrupt_inside_an_effect_is_undone_and_raised() -> None:
    """Ctrl-C in the middle of an offload leaves a trainer that goes on."""
    world = make_world()
    world.trainer.sleep()

    def interrupted(_: object, __: object) -> None:
        raise KeyboardInterrupt

    original = world.trainer._runner.effects[Effect.PAUSE_WEIGHTS]
    world.trainer._runner.effects[Effect.PAUSE_WEIGHTS] = interrupted  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        world.trainer.offload()
    world.trainer._runner.effects[Effect.PAUSE_WEIGHTS] = original

    assert world.trainer.state is TrainerState.SLEEPING
    world.trainer.offload()


def test_a_step_that_raises_is_aborted_and_its_bytes_count_as_changed() -> None:
    """Nobody knows how far the optimizer came: the adapter takes a new version and is sent again."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    with pytest.raises(ZeroDivisionError), world.trainer.step(["A"]):
        raise ZeroDivisionError
    engine.calls.clear()
    world.trainer.update_weights([engine])

    assert "adapter:A" in engine.calls
    assert not world.trainer.facts().step_open


def test_a_switch_that_fails_half_way_brings_back_what_it_had_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of another model is no model: the actor is live again, bit for bit."""
    world = make_world(with_ref=True, trainable=True)
    world.trainer.snapshots.backup("actor")
    base = world.trainer._parts.inventory.base
    other = {name: one.detach() + 1 for group in ("frozen-base", "trainable-base") for name, one in base[group].items()}
    world.trainer.keep_model("ref", other)
    before = everything(world)
    store = world.trainer.snapshots
    original, calls = store.restore_group, [0]

    def failing(tag: str, group: str) -> int:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError("injected")
        return original(tag, group)

    monkeypatch.setattr(store, "restore_group", failing)
    with pytest.raises(TransitionFailed, match="injected"):
        world.trainer.switch_model("ref")

    assert everything(world) == before
    assert world.trainer.active_model == "actor"
    monkeypatch.undo()
    assert isinstance(world.trainer.switch_model("ref"), Moved)


def test_a_trainer_that_faulted_asleep_recovers_asleep() -> None:
    """The nearest state has its scratch paused; the accumulated gradients are still kept."""
    straight, world = make_world(), make_world()
    for one in (straight, world):
        with one.trainer.step(["A"]) as step:
            one.backward("A")
            step.accumulated()
    world.trainer.sleep()
    runner = world.trainer._runner
    pause, resume = runner.effects["synchronize-device"], runner.effects["pause-weights"]
    runner.effects["synchronize-device"] = lambda parts, work: lambda: 1 / 0  # type: ignore[assignment,return-value]
    runner.effects["pause-weights"] = lambda parts, work: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(TrainerFaulted):
        world.trainer.offload()
    runner.effects["synchronize-device"], runner.effects["pause-weights"] = pause, resume
    world.trainer.recover()
    assert world.trainer.state is TrainerState.SLEEPING
    world.trainer.wake_up()
    for one in (straight, world):
        one.train("A", from_zero=False)

    assert world.all_bytes() == straight.all_bytes()


def test_an_interrupt_right_after_a_region_was_paused_leaves_no_region_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The undo reads the books, not what the interrupted code had come to note."""
    world = make_world()
    world.trainer.sleep()
    before = everything(world)
    original = world.arena.pause

    def interrupted(tag: str) -> None:
        original(tag)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.arena, "pause", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.trainer.offload()
    monkeypatch.undo()

    assert everything(world) == before


def test_an_interrupt_between_the_two_moves_of_a_reconcile_leads_back_to_its_origin() -> None:
    """Nobody stays in the middle of a reconcile."""
    world = make_world()
    world.host.register("C", 2)
    machine = world.trainer._runner.machine
    original = machine.take

    def interrupted(step: Step) -> None:
        original(step)
        if machine.state is TrainerState.ADAPTER_RECONCILING:
            raise KeyboardInterrupt

    machine.take = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.trainer.reconcile_adapters()
    machine.take = original  # type: ignore[method-assign]

    assert world.trainer.state is TrainerState.AWAKE
    assert isinstance(world.trainer.reconcile_adapters(), Moved)


def test_events_sent_while_a_reconcile_is_under_way_are_refused_or_wait() -> None:
    """The state is adapter-reconciling inside; the same thread cannot nest, what it sees is the truth."""
    world = make_world()
    world.host.register("C", 2)
    original = world.trainer._runner.effects[Effect.WRITE_ADAPTERS]
    seen: list[object] = []

    def look(parts: object, work: object) -> object:
        seen.append(world.trainer.state)
        seen.append(world.trainer.may("sleep").holds)
        with pytest.raises(ReentrantEvent):
            world.trainer.sleep()
        return original(parts, work)  # type: ignore[arg-type]

    world.trainer._runner.effects[Effect.WRITE_ADAPTERS] = look  # type: ignore[assignment]
    world.trainer.reconcile_adapters()

    assert seen == [TrainerState.ADAPTER_RECONCILING, False]
    assert world.trainer.state is TrainerState.AWAKE


def test_recovering_awake_leaves_accumulated_gradients_that_were_never_paused_alone() -> None:
    """Their region stayed mapped: they are the accumulation, nobody has a copy of them."""
    world = make_world(strategy="duplicate")
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    gradient = world.model.lora_a[0].grad
    assert gradient is not None
    values = gradient.clone()
    world.host.register("C", 2)
    runner = world.trainer._runner
    write = runner.effects["write-adapters"]
    runner.effects["write-adapters"] = lambda parts, work: lambda: 1 / 0  # type: ignore[assignment,return-value]
    runner.effects["backup-actor"] = lambda parts, work: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(TrainerFaulted):
        world.trainer.reconcile_adapters()
    runner.effects["write-adapters"] = write
    world.trainer.recover()

    assert values.any()
    assert bool((gradient == values).all())
    assert world.trainer.facts().accumulated == ("adapter/A",)
