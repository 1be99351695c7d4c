"""Slots on a GPTModel: laid out once, zero when empty, the base frozen and under its own names."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from lifecycle.adapters import AdapterHost, AdapterRegistry, MegatronAdapters
from lifecycle.adapters.protocol import ChoosesAdapters
from lifecycle.adapters.settings import AdapterSettings
from lifecycle.errors import AdapterError, ConfigError
from tests.megatron.ranks import with_adapter
from tests.megatron.world import LAYERS, SHAPES, SLOT_RANK, export, factors, forward, gpt, load

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def _host(**changes: Any) -> MegatronAdapters:
    settings: dict[str, Any] = {"slots": 2, "rank": SLOT_RANK}
    return MegatronAdapters(changes.pop("model", None) or gpt(), **(settings | changes))


def test_the_host_is_what_the_controller_asks_for() -> None:
    """It implements the protocol."""
    assert isinstance(_host(), AdapterHost)
    assert _host(slots=3).slots == 3


def test_slot_tensors_are_the_models_own_parameters_under_their_names() -> None:
    """Of every projection, the largest rank, zero, and trainable."""
    made = _host()
    parameters = dict(made.model.named_parameters())

    for slot in range(2):
        tensors = made.slot_tensors(slot)
        assert len(tensors) == 2 * len(SHAPES) * LAYERS
        for name, one in tensors.items():
            assert one is parameters[name]
            assert f".slot_{slot}." in name
            assert SLOT_RANK in one.shape
            assert one.requires_grad
            assert not one.any()


def test_the_base_keeps_its_names_its_objects_and_is_frozen() -> None:
    """As before, in the same order: the slots lie in a module of their own."""
    model = gpt()
    parameters = dict(model.named_parameters())
    found, buffers = _host(model=model).base_tensors()

    assert list(found) == list(parameters)
    assert all(found[name] is one for name, one in parameters.items())
    assert buffers == dict(model.named_buffers())
    assert not any(one.requires_grad for one in found.values())


def test_a_distributed_checkpoint_of_the_model_holds_the_base_alone() -> None:
    """Megatron would save the slots as if every rank had all of them; adapters are saved as adapters."""
    model = gpt()
    groups = {"dp_cp_group": torch.distributed.group.WORLD}
    before = set(model.sharded_state_dict(metadata=groups))
    _host(model=model)

    assert set(model.sharded_state_dict(metadata=groups)) == before


def test_sharded_factors_are_marked_for_megatrons_gradient_norm() -> None:
    """B of a column-parallel layer and A of a row-parallel one; the others are counted once over all ranks."""
    marked = {
        (name.split(".")[-2], name[-1])
        for name, one in _host().slot_tensors(0).items()
        if getattr(one, "tensor_model_parallel", False)
    }
    columns = {path.rpartition(".")[2] for path in SHAPES} - {"o_proj", "down_proj"}

    assert marked == {(one, "B") for one in columns} | {("o_proj", "A"), ("down_proj", "A")}


def test_building_slots_does_not_disturb_the_random_numbers_of_the_user() -> None:
    """The same numbers follow, with slots or without."""
    model = gpt()
    before = torch.get_rng_state()
    _host(model=model)

    assert torch.equal(torch.get_rng_state(), before)


def test_empty_slots_and_no_slot_compute_the_base_exactly() -> None:
    """Outside use() no adapter is applied, base_only() counts within it, and both are the bare model, bit for bit."""
    model = gpt()
    with torch.no_grad():
        wanted = forward(model)
        made = with_adapter(model)
        with made.use("a"):
            applied = forward(model)
            with made.base_only():
                inside = forward(model)
            again = forward(model)

        assert torch.equal(forward(model), wanted)
    assert torch.equal(inside, wanted)
    assert torch.equal(again, applied)
    assert not torch.equal(applied, wanted)


def test_training_one_slot_moves_no_other_and_padding_stays_zero() -> None:
    """Each adapter has a rank and a scale of its own; what is beyond its rank contributes nothing."""
    made = with_adapter(gpt())
    made.registry.register("b", tensors=factors(2, 3), rank=3, alpha=1)
    load(made, "b")
    before = export(made, "b")
    before = {key: one.clone() for key, one in before.items()}
    adam = made.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.1))[0]
    with made.use("a"):
        forward(made.model).pow(2).sum().backward()
    adam.step()

    assert all(torch.equal(one, before[key]) for key, one in export(made, "b").items())
    assert {one.shape for key, one in before.items() if "q_proj.lora_A" in key} == {(3, 32)}
    for name, one in made.slot_tensors(0).items():
        beyond = one[4:] if name.endswith("A") else one[:, 4:]
        assert not beyond.any()
        assert bool(one.grad is not None and one.grad.any())
    assert made.parameters_of("a") == list(made.slot_tensors(0).values())
    assert made.slot_of("b") == 1


def test_on_one_rank_an_export_copies_nothing() -> None:
    """Its tensors are views of what is read, cut to the adapter's rank."""
    made = with_adapter(gpt())
    slot = made.slot_tensors(0)
    addresses = {one.data_ptr() for one in slot.values()}
    rank, alpha, targets, tensors = made.export("a", slot.__getitem__)

    assert (rank, alpha, len(targets)) == (4, 12.0, len(SHAPES))
    assert {one.data_ptr() for one in tensors.values()} == addresses


def test_adapters_can_be_closed_off_for_a_reference() -> None:
    """Inside, the base is computed and using an adapter is refused in the holder's name."""
    made = with_adapter(gpt())
    with torch.no_grad():
        wanted = forward(made.model)
        with made.use("a"), made.without_adapters("a reference"):
            found = forward(made.model)
            with pytest.raises(AdapterError, match="adapters are off inside of a reference"), made.use("a"):
                pass

    assert isinstance(made, ChoosesAdapters)
    assert torch.equal(found, wanted)


def test_retiring_the_adapter_in_use_needs_a_successor() -> None:
    """Without one it is refused; with one the block goes on with it, and an undo brings the first back."""
    made = with_adapter(gpt())
    made.registry.register("b", tensors=factors(2, 3), rank=3)
    load(made, "b")
    with torch.no_grad(), made.use("b"):
        wanted = forward(made.model)
    with torch.no_grad(), made.use("a"):
        before, loaded = forward(made.model), made.loaded()
        with pytest.raises(AdapterError, match="in use and nobody who stays was named"):
            made.uninstall("a")
    with torch.no_grad(), made.use("a", successor="b"):
        made.uninstall("a")
        found = forward(made.model)
        made.reinstate(loaded)
        again = forward(made.model)

    assert torch.equal(found, wanted)
    assert torch.equal(again, before)


def test_an_adapter_that_is_served_only_gets_no_gradients() -> None:
    """Its slot is frozen as long as it is loaded."""
    made = _host()
    made.registry.register("still", tensors=factors(1, 4), rank=4, settings=AdapterSettings(trainable=False))
    load(made, "still")

    assert made.frozen() == {"still"}
    assert not any(one.requires_grad for one in made.slot_tensors(0).values())
    assert all(one.requires_grad for one in made.slot_tensors(1).values())


def test_bits_that_a_slot_of_16_bits_rounds_away_are_kept_for_main_copies() -> None:
    """What is prepared has them in float32, padded like the slot."""
    made, given = _host(dtype=torch.bfloat16), factors(1, 4)
    made.registry.register("a", tensors=given, rank=4)
    prepared = made.prepare(made.desired()["a"])
    name = "lora_slots.slot_0.model.layers.1.mlp.down_proj.lora_A"

    assert prepared.tensors[name].dtype == torch.bfloat16
    assert prepared.exact.keys() == prepared.tensors.keys()
    assert torch.equal(prepared.exact[name][:4], given["base_model.model.model.layers.1.mlp.down_proj.lora_A.weight"])
    assert not prepared.exact[name][4:].any()


def test_tensors_of_another_model_are_refused_when_they_are_registered() -> None:
    """Shapes are those of the whole Hugging Face layout."""
    made, given = _host(), factors(1, 4)
    key = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"

    with pytest.raises(AdapterError, match=r"k_proj.lora_B.weight has shape \(32, 4\), the model and .* \(16, 4\)"):
        made.registry.register("a", tensors=given | {key: torch.ones(32, 4)}, rank=4)


def test_an_adapter_that_is_not_loaded_can_be_neither_used_nor_exported() -> None:
    """The error says what is."""
    made = with_adapter(gpt())

    with pytest.raises(AdapterError, match=r"not loaded \(loaded: a\)"), made.use("b"):
        pass
    with pytest.raises(AdapterError, match="not loaded"):
        made.export("b", made.slot_tensors(0).__getitem__)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"slots": 0}, "slots is 0"),
        ({"target_modules": "q_proj"}, "target_modules is 'q_proj'"),
        ({"target_modules": ("q_proj", "qkv")}, "no projection named qkv; it has down_proj, gate_proj, k_proj"),
        ({"target_modules": ("q_proj", "lm_head")}, "lm_head is split by vocabulary"),
        ({"target_modules": ("model.embed_tokens",)}, "embed_tokens is split by vocabulary"),
        ({"registry": AdapterRegistry(slots=3)}, "the registry has 3 slots, the host is to have 2"),
        ({"model": nn.Linear(2, 2)}, "the model is Linear; give megatron-core's GPTModel itself"),
    ],
)
def test_slots_that_cannot_be_built_are_refused(changes: dict[str, Any], why: str) -> None:
    """Before the model is touched."""
    with pytest.raises(ConfigError, match=why):
        _host(**changes)


class TELayerNormColumnParallelLinear(nn.Module):
    """Named as the layer of Transformer Engine."""


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("config.sequence_parallel", True, "sequence_parallel is on"),
        ("config.pipeline_model_parallel_size", 2, "one stage of a pipeline"),
        ("post_process", False, "one stage of a pipeline"),
        ("config.multi_latent_attention", True, "multi-latent attention has no linear_qkv"),
        ("config.attention_output_gate", True, "attention_output_gate puts a gate into linear_qkv"),
        (
            "decoder.layers.1.self_attention.linear_qkv",
            TELayerNormColumnParallelLinear(),
            "layers.1.self_attention.linear_qkv is TELayerNormColumnParallelLinear; slots need megatron-core's own",
        ),
        ("decoder.layers.0.mlp.linear_fc1.gather_output", True, "linear_fc1 gathers its output"),
        ("decoder.layers.0.mlp.linear_fc2.input_is_parallel", False, "linear_fc2 splits its input itself"),
        ("decoder.layers.0.mlp.linear_fc2.is_expert", True, "linear_fc2 belongs to experts"),
        ("decoder.layers.0.mlp.linear_fc2.input_size", 7, "linear_fc2 is 32 x 7, the model's configuration says"),
    ],
)
def test_a_model_on_which_slots_would_compute_something_wrong_is_refused(path: str, value: object, why: str) -> None:
    """The model is as it was: not frozen, and without slots."""
    model = gpt()
    owner, _, name = path.rpartition(".")
    target: Any = model
    for step in filter(None, owner.split(".")):
        target = target[int(step)] if step.isdigit() else getattr(target, step)
    setattr(target, name, value)

    with pytest.raises(ConfigError, match=why):
        _host(model=model)
    assert not hasattr(model, "lora_slots")
    assert all(one.requires_grad for one in model.parameters())


def test_experts_are_refused_and_the_attention_beside_them_is_not() -> None:
    """A mixture of experts has no one gate_proj."""
    model = gpt(num_moe_experts=2, moe_ffn_hidden_size=16, moe_router_topk=2)

    with pytest.raises(ConfigError, match=r"mlp\.linear_fc1 belongs to experts"):
        _host(model=model)
    made = with_adapter(model, target_modules=ATTENTION, targets=ATTENTION)
    assert sorted(made.loaded()) == ["a"]


def test_a_model_has_one_host() -> None:
    """A second one would add to the first one's output."""
    model = gpt()
    _host(model=model)

    with pytest.raises(ConfigError, match="has slots already"):
        _host(model=model)


def test_without_megatron_core_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    model = gpt()
    monkeypatch.setitem(sys.modules, "megatron.core.models.gpt", None)

    with pytest.raises(ConfigError, match=r"install adapter-lifecycle\[megatron\]"):
        _host(model=model)
