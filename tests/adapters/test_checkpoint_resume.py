"""A checkpoint under the real controller: saved from anywhere, resumed bit for bit, or refused by name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
)

from lifecycle import EventRefused, TrainerState, TransitionFailed
from lifecycle.adapters import AdapterRegistry, AdapterSettings
from lifecycle.adapters.checkpoint import MANIFEST_NAME, STATE_NAME, VALUES_NAME, WEIGHTS_NAME, Origin
from lifecycle.adapters.checkpoint_read import read_manifest
from lifecycle.adapters.folder import sha256_of
from lifecycle.errors import AdapterError, UnreadableTensor
from tests.adapters.world import host, read_by_peft
from tests.lifecycle.slot_world import COUNTS, LAYOUTS, RESTING, SlotWorld, halving, make, make_for, same
from tests.models import llama
from tests.saver.proc import run_child


def loaded(layout: str = "fp32", counts: str = "a tensor a parameter", steps: int = 3, **changes: Any) -> SlotWorld:
    """Adapter a in slot 0, trained."""
    made = make(layout, counts, **changes)
    made.host.registry.register("a", seed=5, rank=3, alpha=6)
    made.trainer.reconcile_adapters()
    made.train("a", steps)
    return made


def resume(made: SlotWorld, directory: Path, steps: int = 3) -> int:
    """Register it anew from a checkpoint, beside another tenant; its data goes on where it was. The slot it got."""
    made.host.registry.register("b", seed=6)
    slot = made.host.registry.register("a", resume=directory).slot
    made.trainer.reconcile_adapters()
    made.trained["a"] = steps
    return slot


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("counts", COUNTS)
def test_three_steps_a_checkpoint_and_three_more_are_six_steps(tmp_path: Path, layout: str, counts: str) -> None:
    """In another trainer, another slot, beside another tenant: weights, moments, counts, main copies and schedule."""
    straight = loaded(layout, counts)
    straight.trainer.save_checkpoint("a", tmp_path, step=3)
    saved = straight.slot_state(0)
    straight.train("a", 3)
    resumed = make(layout, counts)
    slot = resume(resumed, tmp_path)
    at_once = resumed.slot_state(slot)
    resumed.train("b", 2)
    resumed.train("a", 3)

    assert slot == 1
    assert same(saved, at_once)
    assert same(straight.slot_state(0), resumed.slot_state(1))
    assert not same(saved, straight.slot_state(0))


@pytest.mark.parametrize("counts", COUNTS)
def test_without_a_scheduler_counts_go_on_and_settings_are_those_of_the_slot(tmp_path: Path, counts: str) -> None:
    """Nobody owns the settings then; a count that started anew would change the next step."""
    straight, resumed = loaded("fp32", counts, scheduled=False), make("fp32", counts, scheduled=False)
    straight.trainer.save_checkpoint("a", tmp_path, step=3)
    straight.train("a", 3)
    resume(resumed, tmp_path)
    resumed.train("a", 3)

    assert same(straight.slot_state(0), resumed.slot_state(1))


_NEW_PROCESS = """
import sys
import torch
from tests.lifecycle.slot_world import LAYOUTS, bits, make

for layout in LAYOUTS:
    made = make(layout)
    made.host.registry.register("a", resume=f"{sys.argv[1]}/{layout}")
    made.trainer.reconcile_adapters()
    made.trained["a"] = 3
    made.train("a", 3)
    for name, one in sorted(made.slot_state(0).items()):
        print(layout, name, bits(one).hex() if isinstance(one, torch.Tensor) else one)
"""


def test_a_new_process_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    """Nothing but the files is handed over; in fp32, and in bf16 with main copies."""
    here = []
    for layout in LAYOUTS:
        straight = loaded(layout)
        straight.trainer.save_checkpoint("a", tmp_path / layout, step=3)
        straight.train("a", 3)
        here += [f"{layout} {name} {_text(one)}" for name, one in sorted(straight.slot_state(0).items())]
    child = run_child(_NEW_PROCESS, str(tmp_path))

    assert child.returncode == 0, child.stderr
    assert child.stdout.splitlines() == here


def _text(one: object) -> object:
    return one.reshape(-1).view(torch.uint8).numpy().tobytes().hex() if isinstance(one, torch.Tensor) else one


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("saved_in", "resumed_in"), list(zip(RESTING, RESTING[1:] + RESTING[:1], strict=True)))
def test_a_checkpoint_is_saved_and_resumed_awake_asleep_and_offloaded(
    tmp_path: Path, layout: str, saved_in: TrainerState, resumed_in: TrainerState
) -> None:
    """Bytes are read and written where they are; neither trainer is woken for it."""
    straight = make_for(saved_in, tmp_path / "one", layout=layout)
    straight.host.registry.register("a", seed=5, rank=3, alpha=6)
    straight.trainer.reconcile_adapters()
    straight.train("a", 3)
    resumed = make_for(resumed_in, tmp_path / "two", layout=layout)
    straight.rest(saved_in)
    straight.trainer.save_checkpoint("a", tmp_path / "runs", step=3)
    resumed.rest(resumed_in)
    resume(resumed, tmp_path / "runs")
    states = (straight.trainer.state, resumed.trainer.state)
    straight.wake()
    resumed.wake()
    straight.train("a", 3)
    resumed.train("a", 3)

    assert states == (saved_in, resumed_in)
    assert same(straight.slot_state(0), resumed.slot_state(1))


def test_moments_that_nobody_can_read_now_are_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a framework has placed them in memory whose backup is a file: not zeros, but what to do."""
    made = loaded()
    own_bytes = made.trainer._parts.door.own_bytes

    def without_moments(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name.endswith("#exp_avg"):
            raise UnreadableTensor(name, "its backup is a file")
        return own_bytes(name, tensor)

    monkeypatch.setattr(made.trainer._parts.door, "own_bytes", without_moments)
    with pytest.raises(EventRefused, match=r"#exp_avg.*What to do: wake_up\(\) first"):
        made.trainer.save_checkpoint("a", tmp_path, step=3)

    assert list(tmp_path.iterdir()) == []


def test_peft_computes_with_a_checkpoint_what_the_trainer_computes(tmp_path: Path) -> None:
    """It is a PEFT directory like any other."""
    made = loaded()
    saved = made.trainer.save_checkpoint("a", tmp_path, step=3)
    with torch.no_grad(), made.host.use("a"):
        own = made.host.model(input_ids=torch.tensor([[1, 5, 9, 2, 7], [3, 3, 60, 11, 0]])).logits
    with torch.no_grad():
        base = llama()(input_ids=torch.tensor([[1, 5, 9, 2, 7], [3, 3, 60, 11, 0]])).logits
    found = read_by_peft(saved)

    assert torch.allclose(found, own, atol=1e-5)
    assert not torch.allclose(found, base, atol=1e-3)


def test_a_resumed_adapter_is_a_new_registration_that_remembers_the_old_one(tmp_path: Path) -> None:
    """Its step goes on, its id does not come back, and the next checkpoint says where it came from."""
    first = loaded()
    first.host.registry.set_step("a", 3)
    first.trainer.save_checkpoint("a", tmp_path)
    second = make()
    resume(second, tmp_path)
    record = second.host.registry.find("a")
    second.host.registry.set_step("a", 4)
    second.train("a")
    again = second.trainer.save_checkpoint("a", tmp_path)

    assert record is not None
    assert record.adapter.registration_id == 2
    assert (record.step, record.start_step, record.resumed_from) == (3, 3, Origin("a", 1, 3))
    assert again == tmp_path / "step_4"
    found = read_manifest("a", again)
    assert (found.adapter, found.registration_id, found.step) == ("a", 2, 4)
    assert found.resumed_from is not None
    assert (found.resumed_from.registration_id, found.resumed_from.step) == (1, 3)


def test_what_was_resumed_and_what_was_passed_over_is_on_the_record(tmp_path: Path) -> None:
    """A newer one that is damaged is no reason to stop, and none to be silent."""
    made = loaded()
    for step in (3, 4, 5, 6):
        made.trainer.save_checkpoint("a", tmp_path, step=step)
        made.train("a")
    (tmp_path / "step_4" / MANIFEST_NAME).unlink()
    (tmp_path / "step_5" / STATE_NAME).write_bytes(b"cut")
    shutil.rmtree(tmp_path / "step_6")
    second = make()
    resume(second, tmp_path)
    told = next(one for one in second.audit.records if one.get("details", {}).get("resumed"))["details"]["resumed"]

    assert told["a"]["step"] == 3
    assert told["a"]["from"] == {"adapter": "a", "registration_id": 1}
    assert [one.split(":")[0] for one in told["a"]["passed_over"]] == ["step_5", "step_4"]


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], LRScheduler]] = {
    "cosine": lambda one: CosineAnnealingLR(one, T_max=10),
    "steps": lambda one: MultiStepLR(one, milestones=[2, 4, 4], gamma=0.5),
    "one cycle": lambda one: OneCycleLR(one, max_lr=0.1, total_steps=20),
    "sequence": lambda one: SequentialLR(one, [halving(one), CosineAnnealingLR(one, T_max=10)], milestones=[2]),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step\\(\\)`")
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_progress_of_schedulers_survives_the_files(tmp_path: Path, kind: str) -> None:
    """Counters, nested schedulers, infinities and keys that are no strings, without a pickle."""
    straight, resumed = (make(schedule=SCHEDULERS[kind]) for _ in range(2))
    straight.host.registry.register("a", seed=5)
    straight.trainer.reconcile_adapters()
    straight.train("a", 3)
    straight.trainer.save_checkpoint("a", tmp_path, step=3)
    straight.train("a", 3)
    resume(resumed, tmp_path)
    resumed.train("a", 3)

    assert same(straight.slot_state(0), resumed.slot_state(1))


def test_the_next_tenant_of_a_resumed_slot_starts_from_zero(tmp_path: Path) -> None:
    """What came from a checkpoint goes with its adapter: settings and schedule too."""
    loaded().trainer.save_checkpoint("a", tmp_path, step=3)
    made, fresh = make(), make()
    resume(made, tmp_path)
    made.train("a", 2)
    made.host.registry.deregister("a")
    made.trainer.reconcile_adapters()
    fresh.host.registry.register("b", seed=6)
    for one in (made, fresh):
        one.host.registry.register("c", seed=7)
        one.trainer.reconcile_adapters()
        one.train("c", 2)

    assert same(made.slot_state(1), fresh.slot_state(1))


UNFIT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another optimizer": (
        {},
        {"optimizer": lambda ps: AdamW(ps, lr=0.01)},
        "it was trained with Adam, the slot has AdamW",
    ),
    "other states": (
        {"optimizer": lambda ps: SGD(ps, lr=0.01)},
        {"optimizer": lambda ps: SGD(ps, lr=0.01, momentum=0.9)},
        "#momentum_buffer",
    ),
    "counts in a group": ({"counts": "a number a group"}, {"counts": "a tensor a group"}, "group 0"),
    "no main copies": ({"layout": "bf16 and main copies"}, {}, "#main-copy"),
    "main copies": ({}, {"layout": "bf16 and main copies"}, "#main-copy"),
    "no scheduler": ({}, {"scheduled": False}, "group 0 has initial_lr on one side only"),
    "another scheduler": (
        {},
        {"schedule": lambda one: CosineAnnealingLR(one, T_max=9)},
        "it was trained with LambdaLR, the slot has CosineAnnealingLR",
    ),
    "other settings": (
        {"scheduled": False},
        {"scheduled": False, "optimizer": lambda ps: Adam(ps, lr=0.02)},
        "lr was 0.01 and is 0.02",
    ),
}


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("case", UNFIT)
def test_what_does_not_fit_the_slot_is_refused_by_name_and_nothing_is_loaded(
    tmp_path: Path, case: str, *, offload: bool
) -> None:
    """Before a byte is written; the error says how to take the weights alone."""
    saved_as, resumed_as, why = UNFIT[case]
    loaded(**saved_as).trainer.save_checkpoint("a", tmp_path, step=3)
    made = make(**resumed_as)
    made.host.registry.register("a", resume=tmp_path)
    made.trainer.sleep(offload=offload)
    before = made.everything()
    with pytest.raises(TransitionFailed) as caught:
        made.trainer.reconcile_adapters()

    assert isinstance(caught.value.cause, AdapterError)
    assert caught.value.cause.why.startswith("step_3 does not fit slot 0: ")
    assert why in caught.value.cause.why
    assert f"path={str(tmp_path / 'step_3')!r}, which takes the weights alone" in caught.value.cause.why
    assert same(before, made.everything())


def test_a_rank_that_the_slots_cannot_have_is_refused_at_registration(tmp_path: Path) -> None:
    """Nothing about the optimizer need be asked."""
    loaded().trainer.save_checkpoint("a", tmp_path, step=3)
    narrow = host(rank=2)

    with pytest.raises(AdapterError, match="its rank is 3, the slots have rank 2"):
        narrow.registry.register("a", resume=tmp_path)


def test_slots_of_another_rank_are_refused_by_name(tmp_path: Path) -> None:
    """Moments have the shape of the slot, and are neither cut nor guessed."""
    loaded().trainer.save_checkpoint("a", tmp_path, step=3)
    made = make(rank=8)
    made.host.registry.register("a", resume=tmp_path)

    with pytest.raises(TransitionFailed, match="the slots must be of the same rank and model"):
        made.trainer.reconcile_adapters()


@pytest.mark.parametrize("fault", ["a write", "the scheduler"])
def test_a_resume_that_fails_half_way_is_undone_to_the_last_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Moments, counts, settings and schedule of the slot are as before."""
    loaded().trainer.save_checkpoint("a", tmp_path, step=3)
    made = make()
    made.host.registry.register("a", resume=tmp_path)
    before = made.everything()

    def fail(*arguments: object) -> None:
        raise OSError("told to fail")

    restore = LambdaLR.load_state_dict
    calls = count()

    def fail_second(scheduler: LambdaLR, state: dict[str, Any]) -> None:
        if next(calls) == 1:  # the first puts the schedule to its beginning, those after it are the undo
            fail()
        restore(scheduler, state)

    owner, name, replacement = {
        "a write": (made.host, "install", fail),
        "the scheduler": (LambdaLR, "load_state_dict", fail_second),
    }[fault]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, replacement)
        with pytest.raises(TransitionFailed, match="told to fail"):
            made.trainer.reconcile_adapters()
    after = made.everything()
    made.trainer.reconcile_adapters()

    assert same(before, after)
    assert list(made.host.loaded()) == ["a"]


CHANGED: dict[str, tuple[Callable[[Path], object], str]] = {
    MANIFEST_NAME: (lambda path: path.write_text(path.read_text() + " "), "has changed since it was registered"),
    WEIGHTS_NAME: (lambda path: path.write_bytes(b"x"), "has changed since it was registered"),
    VALUES_NAME: (lambda path: path.write_text("{}"), "has changed since it was registered"),
    STATE_NAME: (lambda path: path.unlink(), "has no optimizer.safetensors"),
}


@pytest.mark.parametrize("file", CHANGED)
def test_a_checkpoint_that_changes_after_its_registration_is_not_loaded(tmp_path: Path, file: str) -> None:
    """Whichever of its files."""
    act, why = CHANGED[file]
    saved = loaded().trainer.save_checkpoint("a", tmp_path, step=3)
    made = make()
    made.host.registry.register("a", resume=tmp_path)
    before = made.everything()
    act(saved / file)
    with pytest.raises(TransitionFailed, match=why):
        made.trainer.reconcile_adapters()

    assert same(before, made.everything())


def test_a_checkpoint_that_is_linked_elsewhere_after_its_registration_is_not_loaded(tmp_path: Path) -> None:
    """Also when every byte is the same."""
    saved = loaded().trainer.save_checkpoint("a", tmp_path / "runs", step=3)
    made = make()
    made.host.registry.register("a", resume=tmp_path / "runs")
    saved.rename(tmp_path / "step_3")
    saved.symlink_to(tmp_path / "step_3")

    with pytest.raises(TransitionFailed, match="and led to"):
        made.trainer.reconcile_adapters()


def test_gradients_that_were_not_stepped_stop_a_checkpoint(tmp_path: Path) -> None:
    """It would not hold them, and a run that resumes from it would be another one."""
    made = loaded()
    with made.trainer.step(["a"]), pytest.raises(EventRefused, match="leave the step"):
        made.trainer.save_checkpoint("a", tmp_path, step=3)
    with made.trainer.step(["a"]) as step:
        made.backward("a")
        step.accumulated()
    with pytest.raises(EventRefused, match="gradients that were not stepped yet"):
        made.trainer.save_checkpoint("a", tmp_path, step=3)

    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_no_numbers_are_no_checkpoint(tmp_path: Path) -> None:
    """It could not be resumed, and would hide the last good one."""
    made = loaded()
    made.trainer.save_checkpoint("a", tmp_path, step=3)
    with made.trainer.step(["a"]) as step, torch.no_grad():
        made.host.parameters_of("a")[0][0, 0] = float("nan")
        step.stepped()
    with pytest.raises(AdapterError, match="holds NaN or infinity"):
        made.trainer.save_checkpoint("a", tmp_path, step=4)

    assert sorted(one.name for one in tmp_path.iterdir()) == [".lock", "step_3"]


def test_where_and_when_come_from_the_registration_unless_given(tmp_path: Path) -> None:
    """The save directory of its settings, and the step that the registry has counted."""
    made = make()
    made.host.registry.register("a", seed=5, settings=AdapterSettings(save=tmp_path / "runs"))
    made.trainer.reconcile_adapters()
    made.host.registry.set_step("a", 7)
    counted = made.trainer.save_checkpoint("a")
    given = made.trainer.save_checkpoint("a", tmp_path / "other", step=8)

    assert counted == tmp_path / "runs" / "step_7"
    assert given == tmp_path / "other" / "step_8"


def test_a_save_between_a_step_and_the_count_of_its_batch_is_refused(tmp_path: Path) -> None:
    """step_N would hold the bytes of N + 1. A batch that is only noted, and not trained yet, stops nobody."""
    made = loaded(steps=0)
    registry = made.host.registry
    registry.record_weight_update(["a"])
    for rollout_id in (1, 2):
        registry.record_batch_adapters(rollout_id, {"a": 1}, ["a"])
    untrained = made.trainer.save_checkpoint("a", tmp_path)
    made.train("a", 1)

    with pytest.raises(
        AdapterError, match=r"batch 1, .* is not counted: step_0 .*; call mark_batch_trained\(1\) first"
    ):
        made.trainer.save_checkpoint("a", tmp_path)
    given = made.trainer.save_checkpoint("a", tmp_path / "given", step=1)
    registry.mark_batch_trained(1)
    counted = made.trainer.save_checkpoint("a", tmp_path)

    assert (untrained.name, given.name, counted.name) == ("step_0", "step_1", "step_1")
    assert (given / WEIGHTS_NAME).read_bytes() == (counted / WEIGHTS_NAME).read_bytes()


@pytest.mark.parametrize("step", [-1, True, 1.0, "3", 2**60])
def test_a_step_that_is_none_is_refused(tmp_path: Path, step: Any) -> None:
    """It becomes a name of a directory."""
    with pytest.raises(AdapterError, match="give an integer of at least 0"):
        loaded(steps=0).trainer.save_checkpoint("a", tmp_path, step=step)


def test_an_adapter_that_is_not_loaded_or_has_no_directory_is_refused(tmp_path: Path) -> None:
    """By its name, with what to do."""
    made = loaded(steps=0)

    with pytest.raises(AdapterError, match="it is not loaded; register it and reconcile first"):
        made.trainer.save_checkpoint("b", tmp_path)
    with pytest.raises(AdapterError, match="register the adapter with settings that have save"):
        made.trainer.save_checkpoint("a")
    with pytest.raises(AdapterError, match="no directory is given"):
        made.trainer.save_checkpoint("a", "", step=1)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (shutil.rmtree, "cannot be read"),
    "no checkpoint": (lambda path: shutil.rmtree(path / "step_3"), "it has no directory step_N"),
    "a temporary one": (lambda path: (path / "step_3").rename(path / ".step-x.tmp"), "it has no directory step_N"),
    "a renamed one": (lambda path: (path / "step_3").rename(path / "step_9"), "it was renamed or copied"),
    "no manifest": (lambda path: (path / "step_3" / MANIFEST_NAME).unlink(), f"has no {MANIFEST_NAME}"),
    "another schema": (lambda path: _change(path, schema="adapter-lifecycle/checkpoint/2"), "this release reads"),
    "an unknown key": (lambda path: _change(path, extra=1), "unknown field `extra`"),
    "a step that is none": (lambda path: _change(path, step=-3), "step"),
    "files left out": (lambda path: _change(path, files={}), "it names no file"),
    "a manifest that is no JSON": (lambda path: (path / "step_3" / MANIFEST_NAME).write_text("{"), "it is no manifest"),
    "a manifest that is nested": (
        lambda path: (path / "step_3" / MANIFEST_NAME).write_text("[" * 100_000),
        "it is no manifest",
    ),
    "weights that are longer": (lambda path: _append(path / "step_3" / WEIGHTS_NAME), "can be right"),
    "state that is another": (lambda path: _flip(path / "step_3" / STATE_NAME), "is damaged"),
}


def _change(path: Path, **changes: object) -> None:
    manifest = path / "step_3" / MANIFEST_NAME
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


ODD: dict[str, Callable[[dict[str, Any]], object]] = {
    "a list": lambda _: [],
    "nothing": lambda _: {},
    "a key too many": lambda found: found | {"extra": 1},
    "a text for groups": lambda found: found | {"groups": "x"},
    "no group": lambda found: found | {"groups": []},
    "a group that is a number": lambda found: found | {"groups": [3]},
    "a group without its settings": lambda found: found | {"groups": [{}]},
    "a number for counts": lambda found: found | {"counts": 3},
    "a count too many": lambda found: found | {"counts": {"x#step": 3}},
    "a scheduler without progress": lambda found: found | {"scheduler": {"kind": "LambdaLR", "state": {}}},
    "a tensor that is not there": lambda found: found | {"counts": {"!": "tensor", "name": "x"}},
    "an unknown tag": lambda found: found | {"counts": {"!": "pickle", "items": []}},
}
"""Contents of optimizer.json that nobody has written, under a manifest that agrees with them."""


@pytest.mark.parametrize("case", ODD)
def test_values_that_nobody_has_written_are_refused_before_a_byte_is(good: Path, tmp_path: Path, case: str) -> None:
    """A manifest can be made up too."""
    directory = tmp_path / "runs"
    shutil.copytree(good, directory)
    values = directory / "step_3" / VALUES_NAME
    values.write_text(json.dumps(ODD[case](json.loads(values.read_text()))))
    files = json.loads((directory / "step_3" / MANIFEST_NAME).read_text())["files"]
    files[VALUES_NAME] = {"sha256": sha256_of(values.read_bytes()), "size_bytes": values.stat().st_size}
    _change(directory, files=files)
    made = make()
    made.host.registry.register("a", resume=directory)
    before = made.everything()
    with pytest.raises(TransitionFailed) as caught:
        made.trainer.reconcile_adapters()

    assert isinstance(caught.value.cause, AdapterError)
    assert same(before, made.everything())


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one whole checkpoint."""
    directory = tmp_path_factory.mktemp("good")
    loaded().trainer.save_checkpoint("a", directory, step=3)
    return directory


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_whole_checkpoint_is_refused_at_registration(good: Path, tmp_path: Path, case: str) -> None:
    """Whoever names the step itself is told the same; no trace is left."""
    act, why = BAD[case]
    directory = tmp_path / "runs"
    shutil.copytree(good, directory)
    act(directory)
    registry = AdapterRegistry(2)
    before = registry.snapshot()
    with pytest.raises(AdapterError) as caught:
        registry.register("a", resume=directory)

    assert why in caught.value.why
    assert registry.snapshot() == before


def test_a_step_that_was_asked_for_is_taken_or_refused_and_never_replaced_by_another(
    good: Path, tmp_path: Path
) -> None:
    """An older one may be wanted; a damaged one is not passed over then."""
    directory = tmp_path / "runs"
    shutil.copytree(good, directory)
    shutil.copytree(good / "step_3", directory / "step_5")
    registry = AdapterRegistry(2)
    registry.register("a", resume=directory / "step_3")

    with pytest.raises(AdapterError, match="it was renamed or copied"):
        registry.register("b", resume=directory / "step_5")

    assert registry.step_count("a") == 3


def test_a_newest_checkpoint_that_may_not_be_read_is_no_reason_for_an_older_one(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what it holds; going back silently would lose steps."""
    directory = tmp_path / "runs"
    shutil.copytree(good, directory)
    (directory / "step_5").mkdir()
    opened = os.open

    def denied(path: str, *arguments: Any, **keywords: Any) -> int:
        if Path(path).name == "step_5":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **keywords)

    monkeypatch.setattr("lifecycle.adapters.folder.os.open", denied)
    with pytest.raises(AdapterError, match="Permission denied"):
        AdapterRegistry(2).register("a", resume=directory)


@pytest.mark.parametrize(
    "beside", [{"path": "x"}, {"rank": 4}, {"alpha": 4}, {"seed": 1}, {"target_modules": ["q_proj"]}]
)
def test_a_checkpoint_says_everything_itself(good: Path, beside: dict[str, Any]) -> None:
    """What contradicts it is refused."""
    with pytest.raises(AdapterError, match="give resume alone"):
        AdapterRegistry(2).register("a", resume=good, **beside)


def test_a_saved_registry_knows_the_checkpoint_of_a_registration_that_was_not_loaded_yet(
    good: Path, tmp_path: Path
) -> None:
    """After a restart it resumes as if nothing had been."""
    before = AdapterRegistry(2)
    before.register("a", resume=good)
    before.save(tmp_path / "registry.json")
    straight = loaded()
    straight.train("a", 3)
    made = make(registry=AdapterRegistry.load(tmp_path / "registry.json"))
    made.trainer.reconcile_adapters()
    made.trained["a"] = 3
    made.train("a", 3)
    record = made.host.registry.find("a")

    assert record is not None
    assert record.resumed_from == Origin("a", 1, 3)
    assert same(straight.slot_state(0), made.slot_state(0))


def test_a_registration_whose_tensors_were_lost_is_supplied_from_a_checkpoint(good: Path, tmp_path: Path) -> None:
    """It stays the same registration; a checkpoint of another step is refused."""
    straight = loaded()
    straight.host.registry.set_step("a", 0)
    straight.host.registry.record_weight_update(["a"])
    for number in range(3):
        straight.host.registry.record_batch_adapters(number, {"a": 1}, ["a"])
        straight.host.registry.mark_batch_trained(number)
    straight.host.registry.save(tmp_path / "registry.json")
    later = loaded(steps=4).trainer.save_checkpoint("a", tmp_path / "later", step=4)
    made = make(registry=AdapterRegistry.load(tmp_path / "registry.json"))
    with pytest.raises(AdapterError, match="is of step 4, it is at 3"):
        made.host.registry.resupply("a", resume=later)
    made.host.registry.resupply("a", resume=good)
    made.trainer.reconcile_adapters()
    made.trained["a"] = 3
    straight.train("a", 2)
    made.train("a", 2)

    assert made.host.loaded()["a"].registration_id == 1
    assert same(straight.slot_state(0), made.slot_state(0))


def test_a_name_that_becomes_another_registration_before_its_bytes_are_taken_is_saved_as_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, optimizer state, id and step are of one registration, also if its slot changes hands meanwhile."""
    made = make(scheduled=False)
    registry, lease = made.host.registry, made.trainer.weights
    registry.register("x", seed=1)
    registry.register("a", seed=2)
    made.trainer.reconcile_adapters()

    def after_a_swap(*given: Any, **settings: Any) -> Any:
        monkeypatch.undo()
        registry.deregister("a")
        registry.deregister("x")
        made.trainer.reconcile_adapters()
        registry.register("a", seed=9)
        made.trainer.reconcile_adapters()
        made.train("a", 2)
        registry.set_step("a", 2)
        return lease(*given, **settings)

    monkeypatch.setattr(made.trainer, "weights", after_a_swap)
    path = made.trainer.save_checkpoint("a", tmp_path)
    counts = [one for name, one in load_file(path / STATE_NAME).items() if name.endswith("#step")]

    assert path.name == "step_2"
    assert made.host.slot_of("a") == 0
    assert read_manifest("a", path).registration_id == registry.desired()["a"].registration_id
    assert {int(one) for one in counts} == {2}
