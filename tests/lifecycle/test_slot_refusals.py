"""State that nobody knows how to hand over makes the swap refuse, by name; what cannot fit is refused at the start."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, Optimizer, RAdam

from lifecycle import ConfigError, EventRefused, HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.memory.main_copies import main_copies_of
from tests.lifecycle.slot_world import RESTING, SlotWorld, make, make_for, same


def with_tenant(world: SlotWorld) -> SlotWorld:
    """A tenant that was trained and is to be retired."""
    world.host.registry.register("A", seed=1)
    world.trainer.reconcile_adapters()
    world.train("A")
    world.host.registry.deregister("A")
    return world


def first_state(world: SlotWorld) -> dict[str, object]:
    """The optimizer's state of the slot's first parameter."""
    optimizer = world.optimizers[0]
    return optimizer.state[optimizer.param_groups[0]["params"][0]]


def an_unknown_tensor(world: SlotWorld) -> str:
    state = first_state(world)
    state["drift"] = torch.ones(3)
    return "lora_A.slot_0.weight#drift"


def a_moment_of_another_shape(world: SlotWorld) -> str:
    first_state(world)["exp_avg"] = torch.ones(2, 2)
    return "lora_A.slot_0.weight#exp_avg has shape"


def a_number_of_unknown_meaning(world: SlotWorld) -> str:
    first_state(world)["trust"] = 0.5
    return "lora_A.slot_0.weight#trust"


def a_count_that_is_no_count(world: SlotWorld) -> str:
    first_state(world)["step"] = torch.ones(7)
    return "lora_A.slot_0.weight#step is no count"


def a_tensor_of_the_group(world: SlotWorld) -> str:
    world.optimizers[0].param_groups[0]["distance"] = torch.ones(1)
    return "tensor 'distance'"


def a_setting_that_moves(world: SlotWorld) -> str:
    world.optimizers[0].param_groups[0]["d"] = 2.0
    return "'d' has changed"


def a_setting_that_was_not_there(world: SlotWorld) -> str:
    world.optimizers[0].param_groups[0]["momentum_of_all"] = 2.0
    return "'momentum_of_all' is new"


def state_of_no_parameter(world: SlotWorld) -> str:
    state: dict[object, object] = world.optimizers[0].state  # type: ignore[assignment]
    state["average"] = {"value": torch.ones(3)}
    return "its state 'average' is that of no parameter"


UNKNOWN: list[Callable[[SlotWorld], str]] = [
    an_unknown_tensor,
    a_moment_of_another_shape,
    a_number_of_unknown_meaning,
    a_count_that_is_no_count,
    a_tensor_of_the_group,
    a_setting_that_moves,
    a_setting_that_was_not_there,
    state_of_no_parameter,
]


def make_plain(**settings: object) -> SlotWorld:
    """One slot, and an optimizer with a setting of its own; no schedule."""

    def build(parameters: list[Tensor]) -> Optimizer:
        return Adam([{"params": parameters, "d": 1.0}], lr=0.01)

    return make(slots=1, scheduled=False, optimizer=build, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_state_of_an_unknown_kind_makes_the_swap_refuse_by_name_and_nothing_is_written(
    unknown: Callable[[SlotWorld], str],
) -> None:
    """Neither retiring nor loading begins; the record is a refusal."""
    world = with_tenant(make_plain())
    name = unknown(world)
    before = world.everything()
    world.audit.records.clear()
    with pytest.raises(EventRefused) as refused:
        world.trainer.reconcile_adapters()

    assert [one.name for one in refused.value.failed] == ["slot-state-is-known"]
    assert name in refused.value.failed[0].because
    assert same(world.everything(), before)
    assert [one["event"] for one in world.audit.records] == ["lifecycle.refused"]


@pytest.mark.parametrize("state", RESTING)
def test_it_refuses_in_every_resting_state_and_only_for_the_slot_that_changes(
    state: TrainerState, tmp_path: object
) -> None:
    """State of unknown kind in the slot of another adapter does not matter."""
    world = make_for(state, tmp_path, slots=2, scheduled=False)  # type: ignore[arg-type]
    for name in ("A", "B"):
        world.host.registry.register(name)
    world.trainer.reconcile_adapters()
    an_unknown_tensor(world)
    world.trainer.prepare_optimizer()
    world.rest(state)
    world.host.registry.deregister("B")
    world.trainer.reconcile_adapters()
    world.host.registry.deregister("A")

    assert world.host.loaded().keys() == {"A"}
    assert not world.trainer.may("reconcile_adapters").holds
    assert world.trainer.facts().unknown_slot_state[0].endswith("its value before the first step is not known")


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (Adafactor, "lora_A.slot_0.weight#row_var"),
        (lambda ps: SGD(ps, lr=0.1, momentum=0.9, dampening=0.5), "lora_A.slot_0.weight#momentum_buffer is dampened"),
    ],
    ids=["Adafactor", "dampened SGD"],
)
def test_an_optimizer_whose_first_state_is_not_known_refuses_by_name(
    build: Callable[[list[Tensor]], Optimizer], name: str
) -> None:
    """It has taken its first step before the trainer was built, so that only the swap can find out."""

    def stepped(parameters: list[Tensor]) -> Optimizer:
        optimizer = build(parameters)
        for one in parameters:
            one.grad = torch.zeros_like(one)
        optimizer.step()
        return optimizer

    world = make(slots=1, scheduled=False, optimizer=stepped)
    world.host.registry.register("A")
    with pytest.raises(EventRefused, match="slot-state-is-known") as refused:
        world.trainer.reconcile_adapters()

    assert name in str(refused.value)


def test_an_optimizer_of_another_kind_with_state_that_is_known_is_handed_over() -> None:
    """It is what the state is called that counts, not the class."""

    def stepped(parameters: list[Tensor]) -> Optimizer:
        optimizer = RAdam(parameters)
        for one in parameters:
            one.grad = torch.ones_like(one)
        optimizer.step()
        return optimizer

    world = make(slots=1, scheduled=False, optimizer=stepped)
    world.host.registry.register("A")
    world.trainer.reconcile_adapters()

    assert not any(one.any() for one in world.trainer._parts.slots.tensors(0).values())


def test_a_main_copy_that_was_not_declared_refuses_the_load_and_is_named() -> None:
    """The step after it would write the old value back (FB-44)."""
    world = make("bf16 and main copies", slots=1, scheduled=False)
    world.host.registry.register("A")
    world.trainer.reconcile_adapters()
    name = next(iter(world.mains))
    group = world.optimizers[0].param_groups[0]
    group["params"][0] = group["params"][0].detach().clone()
    world.host.registry.deregister("A")
    with pytest.raises(EventRefused, match="slot-state-is-known") as refused:
        world.trainer.reconcile_adapters()

    assert f"{name}: no optimizer steps it" in refused.value.failed[0].because


def test_a_schedule_that_was_not_declared_refuses_once_it_has_moved() -> None:
    """The next tenant would start in the middle of it."""
    world = with_tenant(make(slots=1, schedulers=None))
    with pytest.raises(EventRefused, match="slot-state-is-known") as refused:
        world.trainer.reconcile_adapters()

    assert "scheduler that was not declared" in refused.value.failed[0].because


def test_nor_is_it_overlooked_when_the_optimizers_state_was_loaded_meanwhile() -> None:
    """Loading puts other group objects into the optimizer; what the settings were is known by their place."""
    world = make(slots=1, schedulers=None)
    world.optimizers[0].load_state_dict(world.optimizers[0].state_dict())
    world.trainer.prepare_optimizer()
    with_tenant(world)

    with pytest.raises(EventRefused, match="scheduler that was not declared"):
        world.trainer.reconcile_adapters()


@pytest.mark.parametrize("unknown", [a_setting_that_was_not_there, state_of_no_parameter])
def test_a_declared_schedule_does_not_vouch_for_what_it_never_saw(unknown: Callable[[SlotWorld], str]) -> None:
    """It puts back the settings that there were; what came later would be the next tenant's too."""
    world = with_tenant(make(slots=1))
    name = unknown(world)

    with pytest.raises(EventRefused, match=name):
        world.trainer.reconcile_adapters()


def test_an_optimizer_whose_state_holds_something_else_than_states_can_be_attached() -> None:
    """It is refused when a slot changes hands, not with an error from deep inside before that."""

    def build(parameters: list[Tensor]) -> Optimizer:
        optimizer = Adam(parameters, lr=0.01)
        state: dict[object, object] = optimizer.state  # type: ignore[assignment]
        state["count"] = 3
        return optimizer

    world = make(slots=1, scheduled=False, optimizer=build)
    world.host.registry.register("A")

    with pytest.raises(EventRefused, match="its state 'count' is that of no parameter"):
        world.trainer.reconcile_adapters()


def test_a_count_that_a_group_shares_with_other_parameters_refuses() -> None:
    """To reset it would reset theirs."""
    other = nn.Parameter(torch.zeros(2))

    def build(parameters: list[Tensor]) -> Optimizer:
        optimizer = Adam([*parameters, other], lr=0.01)
        optimizer.param_groups[0]["step"] = 3
        return optimizer

    world = make(slots=1, scheduled=False, optimizer=build)
    world.host.registry.register("A")

    with pytest.raises(EventRefused, match="the group's step counts for a tensor of no name too"):
        world.trainer.reconcile_adapters()


def parameter(dtype: torch.dtype = torch.bfloat16) -> nn.Parameter:
    return nn.Parameter(torch.zeros(2, 3, dtype=dtype))


P = parameter()
WRONG_MAINS: dict[str, tuple[object, dict[str, Tensor], list[Tensor], str]] = {
    "no mapping": ([1], {"p": P}, [], "main_copies is list"),
    "an unknown name": ({"q": torch.zeros(2, 3)}, {"p": P}, [], "names 'q'"),
    "an unknown tensor": ({parameter(): torch.zeros(2, 3)}, {"p": P}, [], "names a tensor"),
    "another dtype": ({"p": torch.zeros(2, 3, dtype=torch.float64)}, {"p": P}, [], "is torch.float64"),
    "no tensor": ({"p": 3}, {"p": P}, [], "is int"),
    "another shape": ({"p": torch.zeros(6)}, {"p": P}, [], r"has shape \(6,\)"),
    "a parameter of 32 bits": ({"p": torch.zeros(2, 3)}, {"p": parameter(torch.float32)}, [], "needs no main copy"),
    "another device": ({"p": torch.zeros(2, 3, device="meta")}, {"p": P}, [], "is on meta"),
    "one that nothing holds": ({"p": torch.zeros(2, 3)}, {"p": P}, [], "no optimizer holds"),
    "an expanded one": ({"p": torch.zeros(1, 3).expand(2, 3)}, {"p": P}, [], "expanded"),
}


@pytest.mark.parametrize("wrong", WRONG_MAINS)
def test_main_copies_that_do_not_fit_are_refused_with_the_parameters_name(wrong: str) -> None:
    """Before anything is allocated."""
    given, trainable, held, told = WRONG_MAINS[wrong]
    optimizers = (Adam(held),) if held else ()

    with pytest.raises(ConfigError, match=told):
        main_copies_of(given, trainable, optimizers)  # type: ignore[arg-type]


def test_an_optimizer_holds_a_parameter_or_its_main_copy_and_each_copy_is_of_one_parameter() -> None:
    """Two that are stepped would drift apart."""
    first, second, main = parameter(), parameter(), torch.zeros(2, 3, requires_grad=True)
    with pytest.raises(ConfigError, match="may hold the copy only"):
        main_copies_of({"p": main}, {"p": first}, (Adam([first, main]),))
    with pytest.raises(ConfigError, match="two parameters"):
        main_copies_of({"p": main, "q": main}, {"p": first, "q": second}, (Adam([main]),))

    assert main_copies_of({first: main}, {"p": first}, (Adam([main]),)) == {"p": main}


class FreeSchedule:
    """A scheduler that does not say which optimizer it drives."""

    def state_dict(self) -> dict[str, object]:
        """Nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Nothing."""


def test_a_scheduler_of_an_optimizer_that_steps_more_than_the_slot_is_refused() -> None:
    """To begin it anew would change the learning rate of the rest."""

    def build(parameters: list[Tensor]) -> Optimizer:
        return Adam([*parameters, nn.Parameter(torch.zeros(2))], lr=0.01)

    with pytest.raises(ConfigError, match="the scheduler of slot 0 would drive an optimizer which steps"):
        make(slots=1, optimizer=build)


def test_schedulers_that_do_not_fit_are_refused_with_the_slot() -> None:
    """No such slot, no scheduler, another optimizer's, one for two slots."""
    good = make(slots=2)
    one, two = good.schedulers[0], good.schedulers[1]
    free = FreeSchedule()
    wrong: list[tuple[object, str]] = [
        ({0: free, 1: free}, "slot 1 and another one"),
        ([one], "schedulers is list"),
        ({2: one}, "names slot 2"),
        ({True: one}, "names slot True"),
        ({0: object()}, r"slot 0 is object without state_dict\(\)"),
        ({0: two}, "drives another optimizer"),
    ]
    for given, told in wrong:
        with pytest.raises(ConfigError, match=told):
            TrainerLifecycle(
                LifecycleConfig(frozen_buffers=("*inv_freq",)),
                saver=HostArena(),
                model=good.host.model,
                optimizer=good.optimizers,
                adapters=good.host,
                schedulers=given,  # type: ignore[arg-type]
                initial_state=TrainerState.AWAKE,
            )


def test_partial_is_keep_or_nothing() -> None:
    """Another word is an error before anything is asked."""
    with pytest.raises(ConfigError, match="partial is 'all'"):
        make(slots=1).trainer.reconcile_adapters(partial="all")
