"""The configuration: what cannot work is refused when it is built, what can is not."""

from __future__ import annotations

import threading
from argparse import Namespace
from dataclasses import fields
from itertools import product

import pytest
import torch
from torch import nn

from lifecycle import ConfigError, HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from states import Facts
from tests.lifecycle.world import FakeEngine, TinyModel, make_world


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"offload_target": "gpu"}, "offload_target"),
        ({"strategy": "twice"}, "strategy"),
        ({"audit_failure": "ignore"}, "audit_failure"),
        ({"verify": "often"}, "verify"),
        ({"model": "a/b"}, "model"),
        ({"model": ""}, "model"),
        ({"host_budget_bytes": -1}, "host_budget_bytes"),
        ({"event_timeout_s": 0.0}, "event_timeout_s"),
        ({"event_timeout_s": float("nan")}, "event_timeout_s"),
        ({"colocate": "yes"}, "colocate"),
    ],
)
def test_a_value_that_does_not_exist_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    """The error names the field and says what may stand there."""
    with pytest.raises(ConfigError, match=named):
        LifecycleConfig(**changes)  # type: ignore[arg-type]


def test_every_combination_of_the_six_settings_can_be_configured() -> None:
    """Possible combinations are not refused; guards decide later, by what the memory holds (FB-02)."""
    flags = (True, False)
    for colocate, lora, target, ref, teacher, old in product(flags, flags, ("cpu", "disk", None), flags, flags, flags):
        config = LifecycleConfig(
            colocate=colocate,
            lora=lora,
            offload_target=target,
            with_ref=ref,
            with_teacher=teacher,
            keep_old_actor=old,
        )

        assert config.strategy == "lean"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (Namespace(), (False, False, None, False)),
        (Namespace(colocate=True, lora_rank=16), (True, True, "cpu", False)),
        (Namespace(colocate=True, lora_rank=0, lora_adapter_path="a"), (True, True, "cpu", False)),
        (Namespace(colocate=True, offload_train=False, offload_train_target="disk"), (True, False, None, False)),
        (Namespace(colocate=False, offload_train=True), (False, False, "cpu", False)),
        (Namespace(colocate=True, offload_train_target="disk", keep_old_actor=True), (True, False, "disk", True)),
    ],
)
def test_the_argument_names_of_miles_and_slime_are_understood(args: Namespace, expected: tuple[object, ...]) -> None:
    """A missing argument counts as not given; offload_train follows colocate when it is None."""
    config = LifecycleConfig.from_args(args, with_ref=True)

    assert (config.colocate, config.lora, config.offload_target, config.keep_old_actor) == expected
    assert config.with_ref


def test_arguments_that_contradict_themselves_are_refused() -> None:
    """A negative rank, an unknown target."""
    with pytest.raises(ConfigError, match="lora_rank"):
        LifecycleConfig.from_args(Namespace(lora_rank=-1))
    with pytest.raises(ConfigError, match="offload_target"):
        LifecycleConfig.from_args(Namespace(colocate=True, offload_train_target="tape"))


def build(model: nn.Module, **changes: object) -> TrainerLifecycle:
    """A controller of a full-parameter run."""
    return TrainerLifecycle(
        LifecycleConfig(lora=False, **changes),  # type: ignore[arg-type]
        saver=HostArena(),
        model=model,
        optimizer=torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1, momentum=0.9),
        adapters=None,
        initial_state=TrainerState.AWAKE,
    )


def test_a_full_parameter_run_sleeps_syncs_and_trains() -> None:
    """Without LoRA the base trains: each step sends the trainable base again."""
    model, engine = nn.Linear(8, 8), FakeEngine()
    trainer = build(model)
    with trainer.handoff([engine]):
        pass
    before = engine.digests["trainable-base"]
    with trainer.step() as step:
        model(torch.ones(2, 8)).sum().backward()
        step.stepped()
        with torch.no_grad():
            model.weight -= 0.1
    with trainer.handoff([engine]):
        pass

    assert engine.digests["trainable-base"] != before
    assert trainer.snapshots.backup_tags == ()


def test_a_run_without_colocation_and_offload_syncs_from_live_weights() -> None:
    """A healthy configuration passes (FB-02, no false refusal)."""
    world, engine = make_world(colocate=False, offload_target=None), FakeEngine()
    with world.trainer.handoff([engine]):
        pass
    world.train("A")
    world.trainer.update_weights([engine])

    assert world.trainer.snapshots.backup_tags == ()


def test_lora_without_adapters_is_refused() -> None:
    """The parts must fit the configuration."""
    with pytest.raises(ConfigError, match="adapters"):
        TrainerLifecycle(
            LifecycleConfig(),
            saver=HostArena(),
            model=nn.Linear(2, 2),
            optimizer=None,
            adapters=None,
            initial_state=TrainerState.AWAKE,
        )


def test_a_disk_target_without_a_directory_is_refused() -> None:
    """Where would the bytes go?"""
    with pytest.raises(ConfigError, match="disk directory"):
        make_world(offload_target="disk")


def test_a_model_on_the_meta_device_is_refused() -> None:
    """It has no bytes to keep."""
    with pytest.raises(ConfigError, match="meta"):
        build(nn.Linear(2, 2, device="meta"))


def test_a_frozen_buffer_pattern_that_matches_nothing_is_refused() -> None:
    """A typo would silently make the buffer mutable."""
    with pytest.raises(ConfigError, match="typo"):
        make_world(frozen_buffers=("typo*",))


def test_an_optimizer_whose_first_state_is_unknown_is_refused() -> None:
    """Its state would be allocated outside the region, at the first step."""
    model = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="NAdam"):
        TrainerLifecycle(
            LifecycleConfig(lora=False),
            saver=HostArena(),
            model=model,
            optimizer=torch.optim.NAdam(model.parameters()),
            adapters=None,
            initial_state=TrainerState.AWAKE,
        )


def test_a_snapshot_store_belongs_to_one_trainer() -> None:
    """Two trainers would mix their copies."""
    world = make_world()
    with pytest.raises(Exception, match="belongs to a trainer already"):
        TrainerLifecycle(
            LifecycleConfig(lora=False),
            saver=HostArena(),
            model=nn.Linear(2, 2),
            optimizer=None,
            adapters=None,
            snapshots=world.trainer.snapshots,
            initial_state=TrainerState.AWAKE,
        )


def test_materialising_the_optimizer_changes_no_parameter() -> None:
    """Moments are made by a step without effect: the same bits before and after."""
    model = TinyModel(trainable=True)
    before = model.p.detach().clone()
    optimizer = torch.optim.AdamW([model.p], lr=0.5, weight_decay=0.1)
    trainer = TrainerLifecycle(
        LifecycleConfig(lora=False),
        saver=HostArena(),
        model=model,
        optimizer=optimizer,
        adapters=None,
        initial_state=TrainerState.AWAKE,
    )

    assert torch.equal(model.p.detach(), before)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert float(optimizer.state[model.p]["step"]) == 0.0
    assert trainer.facts().strays == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offload_target", 1),
        ("offload_target", ["cpu"]),
        ("offload_target", torch.ones(2)),
        ("strategy", None),
        ("strategy", torch.ones(2)),
        ("audit_failure", True),
        ("model", 7),
        ("model", None),
        ("frozen_buffers", "rotary*"),
        ("frozen_buffers", (1,)),
        ("host_budget_bytes", "8"),
        ("host_budget_bytes", 8.0),
        ("host_budget_bytes", True),
        ("event_timeout_s", "600"),
        ("event_timeout_s", None),
        ("event_timeout_s", True),
        ("lora", 1),
        ("with_ref", None),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(field: str, value: object) -> None:
    """Nothing is converted silently, and no foreign error gets through: a string of patterns is not a tuple of them."""
    with pytest.raises(ConfigError, match=f"^{field} is "):
        LifecycleConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_s", [float("inf"), threading.TIMEOUT_MAX * 1.01, 10**400])
def test_a_timeout_that_no_lock_can_wait_for_is_refused(timeout_s: float) -> None:
    """A lock would answer with OverflowError, at the first event and not when the configuration is built."""
    with pytest.raises(ConfigError, match="event_timeout_s"):
        LifecycleConfig(event_timeout_s=timeout_s)


def test_the_longest_timeout_is_one_that_a_lock_can_wait_for() -> None:
    """The bound is the operating system's own, and no less."""
    config = LifecycleConfig(event_timeout_s=threading.TIMEOUT_MAX)

    assert threading.Lock().acquire(timeout=config.event_timeout_s)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lora_rank", "8"),
        ("lora_rank", 8.0),
        ("lora_rank", True),
        ("lora_rank", [8]),
        ("lora_adapter_path", 3),
        ("colocate", "yes"),
        ("offload_train", "no"),
        ("offload_train", 0),
        ("keep_old_actor", "false"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(name: str, value: object) -> None:
    """A string "no" would otherwise count as yes."""
    with pytest.raises(ConfigError, match=f"{name} is "):
        LifecycleConfig.from_args(Namespace(**{name: value}))


@pytest.mark.parametrize("target", [1, "", ["disk"]])
def test_a_target_of_another_type_is_not_taken_for_the_default(target: object) -> None:
    """Only a missing target means the host."""
    with pytest.raises(ConfigError, match="offload_target is "):
        LifecycleConfig.from_args(Namespace(colocate=True, offload_train_target=target))


@pytest.mark.parametrize(("place", "peak"), [("cpu", "host"), ("gpu", "device"), (None, None)])
def test_the_memory_of_the_peak_is_read_under_the_names_that_it_has_there(place: str | None, peak: str | None) -> None:
    """Missing, the first that fits is taken; an override is heard."""
    args = Namespace(colocate=True, colocate_memory_peak_device=place)

    assert LifecycleConfig.from_args(args).memory_peak == peak
    assert LifecycleConfig.from_args(args, memory_peak="device").memory_peak == "device"


def test_a_place_of_the_peak_that_does_not_exist_is_refused() -> None:
    """Nor is a switch that is neither yes nor no."""
    for place in ("disk", 1, ["cpu"]):
        with pytest.raises(ConfigError, match="colocate_memory_peak_device is "):
            LifecycleConfig.from_args(Namespace(colocate_memory_peak_device=place))
    with pytest.raises(ConfigError, match="engine_keeps_weights is 1; use True or False"):
        LifecycleConfig(engine_keeps_weights=1)  # type: ignore[arg-type]


def test_every_argument_may_be_left_at_none() -> None:
    """As argument parsers do for what was not given."""
    names = (
        "colocate", "lora_rank", "lora_adapter_path", "offload_train", "offload_train_target", "keep_old_actor",
        "colocate_memory_peak_device",
    )  # fmt: skip
    config = LifecycleConfig.from_args(Namespace(**dict.fromkeys(names)))

    assert config == LifecycleConfig(colocate=False, lora=False, offload_target=None)


OPPOSITES = {
    "colocate": False,
    "lora": False,
    "offload_target": "disk",
    "with_ref": True,
    "with_teacher": True,
    "keep_old_actor": True,
    "strategy": "duplicate",
    "frozen_base": "file",
}


@pytest.mark.parametrize(("name", "value"), OPPOSITES.items())
def test_a_setting_reaches_the_facts_under_its_own_name(name: str, value: object) -> None:
    """One setting at a time is not what facts assume by themselves; the others are."""
    config = LifecycleConfig(**{name: value})  # type: ignore[arg-type]

    assert Facts(**config.facts_settings()) == Facts(**{name: value})  # type: ignore[arg-type]
    assert Facts(**config.facts_settings()) != Facts()


def test_facts_know_every_setting_that_they_have_a_name_for() -> None:
    """A setting that is new in both is not forgotten between them."""
    shared = {one.name for one in fields(LifecycleConfig)} & {one.name for one in fields(Facts)}

    assert LifecycleConfig().facts_settings().keys() == shared == OPPOSITES.keys()
