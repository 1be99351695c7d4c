"""What the rows of the table rest on: groups, names, what stays resident, and who else holds memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lifecycle import HostArena
from lifecycle.errors import ConfigError
from lifecycle.memory.attach_checks import refuse_conflicts
from lifecycle.memory.inventory import Inventory
from lifecycle.saver import Backup
from states import BUFFERS, FROZEN_BASE, TRAINABLE_BASE
from tests.attach import refused, supported
from tests.attach.world import Bag, Case, attach, bits_of, frozen, numbers, one_rank


def inventory_of(case: Case) -> Inventory:
    """Without attaching it."""
    return Inventory(case.model, None, tuple(case.settings.get("frozen_buffers", ())))


def test_tensors_outside_of_parameters_and_buffers_are_named_with_their_bytes() -> None:
    """In attributes of modules and parameters, and in containers and objects there."""
    assert inventory_of(supported.four_bit()).resident == {
        "weight.quant_state.absmax": 64,
        "weight.quant_state.nested.code": 16,
    }
    assert inventory_of(supported.plain_attribute()).resident == {"cos_cached": 32, "tables.sin.0": 16}


def test_what_a_model_knows_already_is_not_named_again() -> None:
    """A list of its own parameters, a reference to itself, the same table under two names."""
    model = Bag(w=nn.Parameter(numbers(3)), b=numbers(2))
    table = numbers(4)
    model.__dict__.update(all=[model.w, model.b], me=[model, {"again": model.__dict__}])
    model.__dict__.update(one=table, two=table.view(2, 2))

    assert inventory_of(Case(model)).resident == {"one": 16, "two": 0}


def test_strays_are_looked_for_three_levels_deep() -> None:
    """An object graph has no end."""
    model = Bag(w=nn.Parameter(numbers(3)))
    model.__dict__["cache"] = {"a": {"b": {"found": numbers(1), "c": {"too deep": numbers(1)}}}}

    assert inventory_of(Case(model)).resident == {"cache.a.b.found": 4}


def test_parameters_of_a_module_that_is_no_child_are_named() -> None:
    """Modules in a plain list are registered nowhere, and neither trained nor moved."""
    model = Bag(w=nn.Parameter(numbers(3)))
    model.__dict__["hidden"] = [nn.Linear(2, 3)]

    assert inventory_of(Case(model)).resident == {"hidden.0.weight": 24, "hidden.0.bias": 12}


def test_buffers_are_mutable_unless_a_pattern_names_them() -> None:
    """Persistent or not."""
    assert set(inventory_of(supported.buffers()).base[BUFFERS]) == {"kept", "scratch"}
    found = inventory_of(supported.frozen_buffer())
    assert set(found.base[FROZEN_BASE]) == {"inv_freq"}
    assert BUFFERS not in found.base


def test_the_original_of_a_saved_module_is_frozen_and_its_copy_trains() -> None:
    """PEFT's names tell them apart."""
    base = inventory_of(supported.modules_to_save()).base

    assert "base_model.model.lm_head.original_module.weight" in base[FROZEN_BASE]
    assert "base_model.model.lm_head.modules_to_save.default.weight" in base[TRAINABLE_BASE]


@pytest.mark.parametrize("kind", ["compiled", "wrapped"])
def test_names_are_those_of_the_module_inside_of_wrappers(kind: str) -> None:
    """An engine knows no wrapper."""
    found = inventory_of(getattr(supported, kind)())

    assert set(found.base[TRAINABLE_BASE]) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_a_compiled_part_of_a_model_keeps_its_plain_names() -> None:
    """As does a model that only looks like a wrapper."""
    model = nn.ModuleDict({"module": supported.compile_only(nn.Linear(2, 2)), "head": nn.Linear(2, 2)})

    assert set(inventory_of(Case(model)).tensors()) == {"module.weight", "module.bias", "head.weight", "head.bias"}


def test_a_module_with_tensors_of_its_own_is_no_wrapper() -> None:
    """Also when its only child is called module."""
    model = Bag(module=nn.Linear(2, 2), w=nn.Parameter(numbers(2)))

    assert set(inventory_of(Case(model)).tensors()) == {"module.weight", "module.bias", "w"}


@pytest.mark.parametrize("as_view", [False, True])
def test_gradients_that_ddp_keeps_in_its_buckets_train_on(*, as_view: bool) -> None:
    """It leads gradients to its own memory at each step; they are led home again."""
    with one_rank():
        case, twin = (supported.data_parallel(gradient_as_bucket_view=as_view) for _ in range(2))
        optimizer, other = case.optimizer(), twin.optimizer()
        trainer = attach(case, optimizer)
        for _ in range(3):
            with trainer.step() as step:
                case.train(optimizer)
                step.stepped()
            twin.train(other)
            trainer.sleep(offload=True)
            trainer.wake_up()

            assert case.output() == twin.output()


def test_fsdp_goes_on_reading_the_old_memory_of_a_shard_that_was_moved() -> None:
    """Why DTensors are refused: pointing the local tensor elsewhere changes nothing that is computed."""
    with one_rank():
        model = nn.Sequential(nn.Linear(4, 4, bias=False))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        before = model(numbers(2, 4))
        model.reshard()
        shard = next(model.parameters())
        shard._local_tensor.data = torch.zeros_like(shard.to_local())
        after = model(numbers(2, 4))

    assert torch.equal(before, after)
    assert bool(after.any())


def test_a_flat_buffer_that_was_let_go_of_is_no_obstacle() -> None:
    """The remedy works: the same views are attached once nobody else holds the storage."""
    with refused.held_flat() as refusal, pytest.raises(ConfigError, match="flat buffer"):
        refusal.run()

    attach(Case(refusal.model))


def test_a_state_dict_that_is_still_held_is_no_obstacle() -> None:
    """It refers to whole parameters, which nobody writes through it."""
    model = Bag(w=nn.Parameter(numbers(3)), f=frozen(numbers(2)))
    held = model.state_dict()

    attach(Case(model))

    assert bits_of(held["w"]) == bits_of(model.w)


def test_a_flat_buffer_that_was_adopted_stays_one_with_its_views() -> None:
    """What a framework gathers into it, the model sees, before and after a sleep."""
    case = supported.adopted()
    trainer = attach(case, case.optimizer())
    trainer.sleep(offload=True)
    trainer.wake_up()
    (flat,) = case.model.flat
    flat.fill_(3)

    assert bits_of(case.model.b) == bits_of(torch.full((14,), 3.0))


def test_interleaved_views_share_no_byte() -> None:
    """Columns of one matrix, frozen and trainable, are fine; one element more and they overlap."""
    matrix = numbers(4, 6)
    fine = Bag(left=frozen(matrix[:, :3]), right=nn.Parameter(matrix[:, 3:]))
    wrong = Bag(left=frozen(matrix[:, :4]), right=nn.Parameter(matrix[:, 3:]))

    Inventory(fine, None, ())
    with pytest.raises(ConfigError, match="left, right: tensors of two content groups"):
        Inventory(wrong, None, ())


def test_a_dimension_of_size_one_is_no_expansion() -> None:
    """Position ids are often made so; a truly expanded buffer has to be frozen by name."""
    model = Bag(ids=torch.arange(6).expand(1, -1), scalar=torch.tensor(1.0).expand(1, 1))
    Inventory(model, None, ())
    wide = Bag(ids=torch.arange(6).expand(2, -1))

    with pytest.raises(ConfigError, match="frozen_buffers"):
        Inventory(wide, None, ())
    Inventory(wide, None, ("ids",))


def test_two_trainers_may_not_share_a_region_either() -> None:
    """A framework's one region for everything: the first sleep would take the other's memory."""
    saver = HostArena()
    memory = saver.allocate(64, "default", Backup.CPU).view(torch.float32)
    actor, critic = Bag(w=nn.Parameter(memory[:8])), Bag(v=nn.Parameter(memory[8:]))
    saver.adopt({"all": memory}, "default", Backup.CPU, paused=False)
    first, second = Inventory(actor, None, ()), Inventory(critic, None, ())
    refuse_conflicts("actor", saver, first)

    with pytest.raises(ConfigError, match="v: parameters or a region that two trainers share"):
        refuse_conflicts("critic", saver, second)


def test_two_trainers_may_not_share_a_parameter_that_was_never_placed() -> None:
    """Without a target weights lie in no region, and gradients are paused all the same."""
    actor = Case(Bag(trunk=nn.Parameter(numbers(3))), settings={"offload_target": None})
    trainer = attach(actor)
    critic = Case(actor.model, settings={"offload_target": None, "model": "critic"}, saver=actor.saver)

    with pytest.raises(ConfigError, match="trunk: parameters or a region that two trainers share"):
        attach(critic)
    trainer.sleep()


def test_who_is_gone_or_has_the_same_name_is_in_nobodys_way() -> None:
    """A trainer is built anew over the same model, and a model is handed on."""
    model, saver = Bag(w=nn.Parameter(numbers(3))), HostArena()
    first, second = Inventory(model, None, ()), Inventory(model, None, ())
    refuse_conflicts("actor", saver, first)
    refuse_conflicts("actor", saver, second)
    refuse_conflicts("critic", HostArena(), Inventory(model, None, ()))
    del first, second

    refuse_conflicts("critic", saver, Inventory(model, None, ()))


def test_a_refusal_names_a_few_tensors_and_counts_the_others() -> None:
    """A model has thousands."""
    model = nn.ModuleList(nn.Linear(2, 2, device="meta") for _ in range(5))

    with pytest.raises(ConfigError, match=r"^0\.weight, 0\.bias, 1\.weight and 7 more: meta tensor: "):
        Inventory(model, None, ())
