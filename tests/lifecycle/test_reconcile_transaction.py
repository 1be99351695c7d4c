"""A reconcile of several adapters is one transaction, or with ``partial="keep"`` one for each adapter (FB-39)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lifecycle import AdapterError, AuditError, Moved, TrainerState, TransitionFailed, Unchanged
from lifecycle.errors import SlotWriteError
from tests.lifecycle.injector import Injector
from tests.lifecycle.slot_world import LAYOUTS, RESTING, SlotWorld, make, make_for, same
from tests.lifecycle.world import World, make_world

KINDS = ("error", "interrupt", "out of memory", "refuses")
OLD, NEW = ("a", "b"), ("c", "d", "e", "f", "g")


def make_five(state: TrainerState, folder: Path, layout: str) -> SlotWorld:
    """Two adapters that were trained, one with an accumulation under way; both go and five others come."""
    world = make_for(state, folder, layout=layout, counts="a number a group", slots=7)
    for seed, name in enumerate(OLD):
        world.host.registry.register(name, seed=seed)
    world.trainer.reconcile_adapters()
    for name in OLD:
        world.train(name, 2)
    with world.trainer.step(["a"]) as step:
        world.backward("a")
        step.accumulated()
    world.rest(state)
    for name in OLD:
        world.host.registry.deregister(name)
    for seed, name in enumerate(NEW):
        world.host.registry.register(name, seed=10 + seed)
    return world


def break_install(world: SlotWorld | World, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """These adapters cannot be installed, after their bytes were written."""
    install = world.host.install

    def fail(prepared: Any) -> None:
        if prepared.desired.name in names:
            raise OSError("the device is gone")
        install(prepared)

    monkeypatch.setattr(world.host, "install", fail)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("state", RESTING)
def test_if_the_third_of_five_fails_everything_is_as_before_and_the_error_names_it(
    state: TrainerState, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes, counts, schedules, registry, versions, digests, kept gradients and the state; mended, it goes through."""
    world = make_five(state, tmp_path, layout)
    before = world.everything()
    with monkeypatch.context() as broken:
        break_install(world, broken, "e")
        with pytest.raises(TransitionFailed, match=r"adapter 'e'.*the device is gone") as failed:
            world.trainer.reconcile_adapters()

    assert failed.value.adapter == "e"
    assert isinstance(failed.value.cause, SlotWriteError)
    assert isinstance(failed.value.cause.__cause__, OSError)
    assert same(world.everything(), before)
    outcome = world.trainer.reconcile_adapters()
    assert isinstance(outcome, Moved)
    assert set(world.host.loaded()) == set(NEW)
    assert outcome.failed == ()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("state", [TrainerState.AWAKE, TrainerState.OFFLOADED_CPU])
def test_whatever_fails_in_the_middle_of_five_everything_is_as_before(
    state: TrainerState, layout: str, tmp_path: Path
) -> None:
    """Every fifth of its operations in turn (files, copies, effects, commit, log), each in one of its ways."""
    world, injector = make_five(state, tmp_path, layout), Injector()
    before, nth = world.everything(), 1
    while isinstance(send(world, injector, nth), (Exception, KeyboardInterrupt)):
        assert same(world.everything(), before), (nth, injector.fired)
        nth += 5

    assert set(world.host.loaded()) == set(NEW)
    assert nth > 300


def send(world: SlotWorld, injector: Injector, nth: int) -> BaseException | None:
    """Reconcile with a fault at the n-th point; None when it went through, as there was no such point."""
    injector.arm(nth, KINDS[nth % len(KINDS)])
    try:
        with injector.on(world):  # type: ignore[arg-type]
            world.trainer.reconcile_adapters()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what is raised is looked at
        return None if isinstance(error, AuditError) and error.outcome else error.with_traceback(None)
    return None


@pytest.mark.parametrize("state", RESTING)
def test_partial_keep_keeps_what_succeeds_and_reports_the_rest_which_the_next_pass_tries_again(
    state: TrainerState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad file, one failed write, one failed retirement; each of them is as before, the others are done."""
    world = make_five(state, tmp_path, "bf16 and main copies")
    before, slots = world.everything(), {name: one.slot for name, one in world.host.desired().items()}
    with monkeypatch.context() as broken:
        break_install(world, broken, "e")
        break_two(world, broken)
        outcome = world.trainer.reconcile_adapters(partial="keep")

    assert isinstance(outcome, Moved)
    assert [(one.name, one.change) for one in outcome.failed] == [("b", "retire"), ("c", "load"), ("e", "load")]
    assert [one.why for one in outcome.failed] == ["in use", "its file is gone", "OSError: the device is gone"]
    assert dict(outcome.details)["loaded"] == ["d", "f", "g"]
    assert dict(outcome.details)["retired"] == ["a"]
    assert dict(outcome.details)["dropped_gradients_of"] == ["adapter/a"]
    assert set(world.host.loaded()) == {"b", "d", "f", "g"}
    assert world.trainer.state is state
    after = world.everything()
    untouched = [f"slot {slot}" for slot in (1, slots["c"], slots["e"])]
    assert same({key: after[key] for key in untouched}, {key: before[key] for key in untouched})
    moved = [one for one in world.audit.records if one["event"] == "lifecycle.moved"][-1]
    assert moved["details"]["failed"][1] == {"name": "c", "change": "load", "why": "its file is gone"}  # type: ignore[index]
    again = world.trainer.reconcile_adapters(partial="keep")
    assert isinstance(again, Moved)
    assert dict(again.details)["loaded"] == ["c", "e"]
    assert dict(again.details)["retired"] == ["b"]
    assert isinstance(world.trainer.reconcile_adapters(partial="keep"), Unchanged)


def break_two(world: SlotWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One adapter cannot be read and one cannot be retired."""
    prepare, uninstall = world.host.prepare, world.host.uninstall

    def fail_to_read(desired: Any) -> Any:
        if desired.name == "c":
            raise AdapterError("c", "its file is gone")
        return prepare(desired)

    def fail_to_retire(name: str) -> None:
        if name == "b":
            raise AdapterError("b", "in use")
        uninstall(name)

    monkeypatch.setattr(world.host, "prepare", fail_to_read)
    monkeypatch.setattr(world.host, "uninstall", fail_to_retire)


def test_all_or_nothing_and_keep_give_the_same_bytes_when_nothing_fails(tmp_path: Path) -> None:
    """They differ in what a failure means, and in nothing else."""
    one, other = (make_five(TrainerState.OFFLOADED_CPU, tmp_path, "bf16 and main copies") for _ in range(2))
    one.trainer.reconcile_adapters()
    other.trainer.reconcile_adapters(partial="keep")
    found = [
        {key: value for key, value in each.everything().items() if key.startswith("slot ")} for each in (one, other)
    ]

    assert same(found[0], found[1])


def test_a_fault_that_ends_the_process_of_one_adapter_ends_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt is no adapter's failure: nothing is kept, also with ``partial="keep"``."""
    world = make_five(TrainerState.AWAKE, tmp_path, "fp32")
    before = world.everything()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(world.host, "install", interrupt)
        with pytest.raises(KeyboardInterrupt):
            world.trainer.reconcile_adapters(partial="keep")

    assert same(world.everything(), before)


def test_a_gradient_that_a_loop_has_replaced_is_not_inherited() -> None:
    """Neither what hangs at the parameter nor what lies in the region reaches the next tenant."""
    world = make("bf16 and main copies", slots=1)
    world.host.registry.register("A")
    world.trainer.reconcile_adapters()
    name, parameter = next(iter(world.host.slot_tensors(0).items()))
    main = world.mains[name]
    parameter.grad, main.grad = torch.ones_like(parameter), torch.ones_like(main)
    world.host.registry.deregister("A")
    world.trainer.reconcile_adapters()

    assert [grad.any().item() for grad in gradients(parameter, main)] == [False, False]


def gradients(*holders: Tensor) -> list[Tensor]:
    """Their gradients, all of them there."""
    return [one.grad for one in holders if one.grad is not None]


@pytest.mark.parametrize("offload", [False, True])
def test_an_adapter_registered_anew_stays_as_it_is_when_its_new_tensors_cannot_be_loaded(
    *, offload: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retiring the old and loading the new is one change: no part of it is kept, and its slot is not given out."""
    world = make_world()
    world.train("A", "B")
    if offload:
        world.trainer.sleep(offload=True)
    before, loaded, freed = world.all_bytes(), world.host.loaded(), []
    world.host.register("A", 0, seed=99)
    world.host.register("C", 2)
    with monkeypatch.context() as broken:
        broken.setattr(world.host, "freed", freed.extend)
        break_install(world, broken, "A")
        outcome = world.trainer.reconcile_adapters(partial="keep")

    assert isinstance(outcome, Moved)
    assert [(one.name, one.change) for one in outcome.failed] == [("A", "replace")]
    assert (dict(outcome.details)["loaded"], dict(outcome.details)["retired"], freed) == (["C"], [], [])
    assert world.host.loaded()["A"] == loaded["A"]
    after = world.all_bytes()
    assert {key for key in before if before[key] != after[key]} == {"lora_a.2", "lora_b.2"}
    world.trainer.reconcile_adapters(partial="keep")
    assert world.host.loaded()["A"] == world.host.wanted["A"]


@pytest.mark.parametrize("partial", [None, "keep"])
def test_a_registration_that_ends_while_it_is_loaded_is_not_loaded(
    partial: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot was free at once, since nobody held it: an adapter of no registration would be trained and pushed."""
    world = make(scheduled=False)
    registry, install, before = world.host.registry, world.host.install, world.slot_state(0)
    registry.register("a", seed=1)

    def ends_meanwhile(prepared: Any) -> None:
        registry.deregister("a")
        install(prepared)

    monkeypatch.setattr(world.host, "install", ends_meanwhile)
    if partial is None:
        with pytest.raises(TransitionFailed, match="'a': this registration has ended"):
            world.trainer.reconcile_adapters()
    else:
        outcome = world.trainer.reconcile_adapters(partial=partial)
        assert isinstance(outcome, Moved)
        assert [one.name for one in outcome.failed] == ["a"]

    assert world.host.loaded() == {}
    assert same(world.slot_state(0), before)
    assert registry.snapshot().free_slots == (0, 1)


def test_a_kept_model_has_its_adapters_again_when_their_retirement_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept copy goes with the adapter that it is of, and comes back with it, bit for bit."""
    world = make(scheduled=False)
    world.host.registry.register("a", seed=1)
    world.trainer.reconcile_adapters()
    world.trainer.keep_model("old_actor")
    kept = dict(world.trainer.snapshots.versions("old_actor"))
    wanted = world.slot_state(0)
    world.train("a")
    world.host.registry.deregister("a")
    world.host.registry.register("b", seed=2)
    break_install(world, monkeypatch, "b")
    with pytest.raises(TransitionFailed):
        world.trainer.reconcile_adapters()

    assert "adapter/a" in kept
    assert dict(world.trainer.snapshots.versions("old_actor")) == kept
    world.trainer.switch_model("old_actor")
    weights = [one for one in wanted if one.endswith(".weight")]
    assert weights
    assert all(same(world.slot_state(0)[one], wanted[one]) for one in weights)
