"""An optimizer that steps while no step is open tells the trainer: its new bytes have a new version."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from lifecycle import (
    EventRefused,
    HostArena,
    LifecycleConfig,
    MemoryAudit,
    Moved,
    TrainerFaulted,
    TrainerLifecycle,
    TrainerState,
)
from lifecycle.audit import AuditLog, notes, read_log
from lifecycle.auditing import Audited, audit_logs
from lifecycle.standing import Serves
from lifecycle.transition.runner import Runner
from tests.auditing.runs import record
from tests.lifecycle.world import FakeEngine, SlotHost, TinyModel, World, content_of, make_world

GROUP = "adapter/A"
LARGE_AND_SMALL = pytest.mark.parametrize("small_bytes", [0, 2**24], ids=["large", "small"])


def stray_step(world: World, slot: int = 0) -> None:
    """What a loop does that forgot its step block: gradients anew, and the optimizer."""
    world.optimizers[slot].zero_grad(set_to_none=True)
    world.backward("AB"[slot])
    world.optimizers[slot].step()


def notes_of(world: World) -> list[dict[str, object]]:
    """The notes on steps outside of a step."""
    return [one for one in world.records("noted") if one["note"] == notes.OUTSIDE]


def served(world: World) -> str:
    """The digest that an engine has once it was sent what is in slot 0."""
    return content_of(world.host.slot_tensors(0))


@LARGE_AND_SMALL
@pytest.mark.parametrize("strategy", ["lean", "reference", "duplicate"])
def test_the_next_hand_over_sends_what_was_stepped_outside(
    small_bytes: int, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is behind at once, is sent the new bytes, and an audit of the log finds nothing."""
    monkeypatch.setattr("lifecycle.transition.verify.SMALL_BYTES", small_bytes)
    world, engine = make_world(strategy=strategy), FakeEngine()
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        world.train("A", "B")
        with world.trainer.handoff([engine]):
            pass
        stray_step(world)
        behind = world.trainer.serving([engine])["E0"]
        with pytest.raises(EventRefused, match="no such content group"):  # its record tells facts
            world.trainer.weights(groups=["none"])
        with world.trainer.handoff([engine]):
            current = world.trainer.serving([engine])["E0"]

    assert (behind.serves, behind.because) == (Serves.BEHIND, (f"it lacks the newest {GROUP}",))
    assert current.serves is Serves.CURRENT
    assert engine.digests[GROUP] == served(world)
    assert [one.get("note") for one in read_log(log.path)].count(notes.OUTSIDE) == 1
    assert list(audit_logs([log.path], Audited())) == []


def test_only_what_the_optimizer_steps_has_a_new_version() -> None:
    """The other adapter and the base keep theirs; the note tells exactly the new one."""
    world = make_world(trainable=True)
    before = dict(world.trainer.versions)
    stray_step(world)
    after = dict(world.trainer.versions)

    assert {group for group in after if after[group] != before[group]} == {GROUP}
    assert [one["versions"] for one in notes_of(world)] == [{GROUP: after[GROUP]}]


def test_a_trainable_base_that_is_stepped_outside_has_a_new_version() -> None:
    """A full-parameter run has the same fault."""
    world = make_world(trainable=True)
    before = world.trainer.versions["trainable-base"]
    world.optimizers[3].step()

    assert world.trainer.versions["trainable-base"] > before


def test_a_main_copy_tells_of_its_parameters() -> None:
    """They are copied after the optimizer has stepped: what the bytes are is looked at when the next event begins."""
    model, engine = TinyModel(), FakeEngine()
    model.lora_a[0].data = model.lora_a[0].data.bfloat16()
    host, main = SlotHost(model), torch.zeros_like(model.lora_a[0], dtype=torch.float32)
    optimizer = torch.optim.Adam([main], lr=0.1)
    trainer = TrainerLifecycle(
        LifecycleConfig(), saver=HostArena(), model=model, optimizer=optimizer, adapters=host,
        main_copies={"lora_a.0": main}, initial_state=TrainerState.AWAKE,
    )  # fmt: skip
    host.register("A", 0)
    trainer.reconcile_adapters()
    before = trainer.versions[GROUP]
    main.grad = torch.ones_like(main)
    optimizer.step()
    with torch.no_grad():
        model.lora_a[0].copy_(main)

    assert trainer.versions[GROUP] > before
    assert isinstance(trainer.update_weights([engine]), Moved)
    assert engine.digests[GROUP] == content_of(host.slot_tensors(0))


def test_inside_of_a_step_nothing_is_told() -> None:
    """One new version a step, none for an accumulation, and no note."""
    world = make_world()
    history = world.trainer._parts.versions.history
    before = len(history[GROUP])
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    kept = len(history[GROUP])
    world.train("A")

    assert (kept, len(history[GROUP])) == (before, before + 1)
    assert notes_of(world) == []


def test_an_accumulation_goes_on_after_a_step_outside() -> None:
    """Its gradient has the values that it had, in its region."""
    world = make_world()
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    stray = world.model.lora_a[0].grad = world.model.lora_a[0].grad.clone()  # type: ignore[union-attr]
    world.optimizers[0].step()

    assert world.trainer.facts().strays == ()
    assert torch.equal(world.model.lora_a[0].grad, stray)
    assert world.trainer.facts().accumulated == (GROUP,)


def test_state_that_is_made_is_no_step() -> None:
    """``prepare_optimizer`` makes moments by a step that changes no parameter."""
    world = make_world()
    before = dict(world.trainer.versions)
    world.optimizers[0].state.clear()
    world.trainer.prepare_optimizer()
    world.trainer.sleep()

    assert dict(world.trainer.versions) == before
    assert notes_of(world) == []


def test_a_trainer_that_sleeps_is_told_nothing() -> None:
    """Its gradients are given back; what is written then is damage, and stays a fault."""
    world = make_world()
    before = dict(world.trainer.versions)
    world.trainer.sleep()
    for parameter in world.model.parameters():
        parameter.grad = None
    world.optimizers[0].step()

    assert dict(world.trainer.versions) == before
    assert notes_of(world) == []


def test_what_is_stepped_while_another_thread_has_the_turn_is_told_at_the_next_event() -> None:
    """The optimizer does not wait for the event of another thread."""
    world, held, go = make_world(), Event(), Event()
    turn = world.trainer._runner.turn

    def hold() -> None:
        with turn.of("a question"):
            held.set()
            go.wait(10)

    other = Thread(target=hold)
    other.start()
    held.wait(10)
    before = world.trainer.versions[GROUP]
    stray_step(world)
    during = world.trainer.versions[GROUP]
    go.set()
    other.join()
    world.trainer.sleep()

    assert during == before
    assert world.trainer.versions[GROUP] > before
    assert len(notes_of(world)) == 1


def test_two_trainers_of_one_optimizer_are_both_told() -> None:
    """The bytes are new for each of them."""
    world = make_world()
    second = TrainerLifecycle(
        LifecycleConfig(), saver=world.arena, model=world.model, optimizer=world.optimizers, adapters=world.host,
        audit=MemoryAudit(), initial_state=TrainerState.AWAKE,
    )  # fmt: skip
    before = (world.trainer.versions[GROUP], second.versions[GROUP])
    stray_step(world)

    assert world.trainer.versions[GROUP] > before[0]
    assert second.versions[GROUP] > before[1]


def test_an_optimizer_does_not_keep_its_trainer_alive() -> None:
    """It may outlive the trainer, and is then as it was before."""
    world = make_world()
    optimizer, runner = world.optimizers[0], weakref.ref[Runner](world.trainer._runner)
    hooks = len(optimizer._optimizer_step_post_hooks)  # type: ignore[attr-defined]
    del world
    gc.collect()
    optimizer.step()

    assert hooks == 1
    assert runner() is None
    assert not optimizer._optimizer_step_post_hooks  # type: ignore[attr-defined]


def test_what_has_no_hooks_is_passed_over() -> None:
    """Wrappers around optimizers, such as megatron's, need not have them."""
    world = make_world()
    parts = world.trainer._parts
    parts.moments.optimizers = (object(),)  # type: ignore[assignment]

    from lifecycle.transition.outside import watch_optimizers  # noqa: PLC0415 - only here

    watch_optimizers(world.trainer._runner, parts)


def test_what_is_written_after_the_next_event_is_a_fault() -> None:
    """That event has looked at what was stepped: other bytes under this version are damage."""
    world, engine = make_world(), FakeEngine()
    stray_step(world)
    world.trainer.sleep()
    with torch.no_grad():
        world.model.lora_a[0].add_(1)
    with pytest.raises(TrainerFaulted, match=r"adapter/A: .* changed outside of step\(\)"):
        world.trainer.update_weights([engine])

    assert engine.versions == {}


def test_a_copy_of_the_bytes_before_serves_nobody_under_lean(tmp_path: Path) -> None:
    """As after an aborted step it is let go of; an audit knows that it goes."""
    world = make_world()
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        world.train("A")
        world.trainer.snapshots.backup("actor")
        before = world.trainer.snapshots.versions("actor")[GROUP]
        world.trainer.sleep()
        world.trainer.wake_up()
        stray_step(world)
        after = world.trainer.snapshots.versions("actor").get(GROUP)
        world.trainer.sleep()

    assert before is not None
    assert after is None
    assert list(audit_logs([log.path], Audited())) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it first compiles
def test_a_compiled_step_tells_too() -> None:
    """What tells is no part of what is compiled."""
    world = make_world()
    world.backward("A")
    before = world.trainer.versions[GROUP]
    torch.compile(world.optimizers[0].step, backend="eager")()

    assert world.trainer.versions[GROUP] > before
