"""What slots on a GPTModel compute, against the same model in transformers and against merged matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lifecycle.adapters import MegatronAdapters, save_adapter
from lifecycle.adapters.fit import peft_key
from lifecycle.engines.protocol import AdapterPayload
from tests.adapters.world import llama, logits, peft_directory, read_by_peft
from tests.megatron.ranks import gradients, with_adapter
from tests.megatron.world import GROUPS, HEADS, HIDDEN, LAYERS, SHAPES, SLOT_RANK, factors, forward, gpt, load

TARGETS = [path.rpartition(".")[2] for path in SHAPES]


def _fused(queries: Tensor, keys: Tensor, values: Tensor, groups: int) -> Tensor:
    """Rows as megatron has them: of each query group its query heads, its key and its value."""
    heads = [one.chunk(groups) for one in (queries, keys, values)]
    return torch.cat([one[group] for group in range(groups) for one in heads])


def _like_llama(model: Any) -> nn.Module:
    """Give the GPTModel the weights of the Llama, which is returned."""
    found = llama()
    theirs, ours = dict(found.named_parameters()), dict(model.named_parameters())
    values = {
        "embedding.word_embeddings.weight": theirs["model.embed_tokens.weight"],
        "output_layer.weight": theirs["lm_head.weight"],
        "decoder.final_layernorm.weight": theirs["model.norm.weight"],
    }
    for number in range(LAYERS):
        of = {key.removeprefix(f"model.layers.{number}."): one for key, one in theirs.items()}
        qkv = [of[f"self_attn.{one}_proj.weight"] for one in "qkv"]
        gate, up = of["mlp.gate_proj.weight"], of["mlp.up_proj.weight"]
        values |= {
            f"decoder.layers.{number}.input_layernorm.weight": of["input_layernorm.weight"],
            f"decoder.layers.{number}.pre_mlp_layernorm.weight": of["post_attention_layernorm.weight"],
            f"decoder.layers.{number}.self_attention.linear_qkv.weight": _fused(qkv[0], qkv[1], qkv[2], GROUPS),
            f"decoder.layers.{number}.self_attention.linear_proj.weight": of["self_attn.o_proj.weight"],
            f"decoder.layers.{number}.mlp.linear_fc1.weight": torch.cat([gate, up]),
            f"decoder.layers.{number}.mlp.linear_fc2.weight": of["mlp.down_proj.weight"],
        }
    assert values.keys() == ours.keys()
    with torch.no_grad():
        for name, one in values.items():
            ours[name].copy_(one)
    return found


@pytest.mark.parametrize("targets", [TARGETS, ["q_proj", "v_proj"], ["up_proj"]])
def test_a_directory_written_by_peft_computes_what_peft_computes(tmp_path: Path, targets: list[str]) -> None:
    """A Llama and the GPTModel with its weights: the same logits alone, and with the adapter."""
    model = gpt(positions="rope")
    base = logits(_like_llama(model))
    directory = peft_directory(tmp_path / "a", seed=3, rank=5, target_modules=targets)
    made = MegatronAdapters(model, slots=2, rank=SLOT_RANK)
    made.registry.register("a", path=directory)
    load(made, "a")
    with torch.no_grad(), made.use("a"):
        found = forward(model)
    with torch.no_grad():
        alone = forward(model)

    assert (alone - base).abs().max() < 1e-4
    assert (found - read_by_peft(directory)).abs().max() < 1e-4
    assert (found - base).abs().max() > 0.1


def test_a_directory_that_is_imported_and_saved_again_is_the_same(tmp_path: Path) -> None:
    """Bit for bit, under the same names, and PEFT reads it."""
    directory = peft_directory(tmp_path / "a", seed=3, rank=5, target_modules=TARGETS)
    made = MegatronAdapters(gpt(), slots=1, rank=SLOT_RANK)
    made.registry.register("a", path=directory)
    load(made, "a")
    payload = AdapterPayload("a", 1, *made.export("a", made.slot_tensors(0).__getitem__))
    saved = save_adapter(tmp_path / "b", payload)
    before, after = (load_file(one / "adapter_model.safetensors") for one in (directory, saved))

    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert torch.equal(read_by_peft(saved), read_by_peft(directory))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_query_groups": HEADS},
        {"num_query_groups": 1},
        {"gated_linear_unit": False, "activation_func": nn.functional.gelu},
        {"add_bias_linear": True},
    ],
)
def test_an_adapter_is_the_base_with_its_products_added(changes: dict[str, Any]) -> None:
    """W + alpha / rank · B A of each projection, fused by hand, in float64, for every kind of attention and MLP."""
    groups = changes.get("num_query_groups", GROUPS)
    plain = not changes.get("gated_linear_unit", True)
    values = {}
    for key, one in factors(1, 4, dtype=torch.float64).items():
        is_key = key.endswith(("k_proj.lora_B.weight", "v_proj.lora_B.weight"))
        values[key] = one.repeat(HEADS, 1)[: HIDDEN // HEADS * groups] if is_key else one
    values = {key: one for key, one in values.items() if not (plain and "gate_proj" in key)}
    targets = [one for one in TARGETS if not (plain and one == "gate_proj")]
    made = MegatronAdapters(gpt(dtype=torch.float64, **changes), slots=1, rank=SLOT_RANK, target_modules=targets)
    made.registry.register("a", tensors=values, rank=4, alpha=12)
    load(made, "a")
    with torch.no_grad(), made.use("a"):
        found = forward(made.model)

    assert (found - _merged(made.model, values, groups)).abs().max() < 1e-12


def _merged(model: Any, values: dict[str, Tensor], groups: int) -> Tensor:
    """Logits of the base after the products were added to its weights."""

    def product(path: str) -> Tensor:
        return 3 * values[peft_key(path, "B")] @ values[peft_key(path, "A")]

    with torch.no_grad():
        for number in range(LAYERS):
            attention, mlp = f"model.layers.{number}.self_attn", f"model.layers.{number}.mlp"
            inner = [path for path in (f"{mlp}.gate_proj", f"{mlp}.up_proj") if peft_key(path, "A") in values]
            queries, keys, contents = (product(f"{attention}.{one}_proj") for one in "qkv")
            block = model.decoder.layers[number]
            block.self_attention.linear_qkv.weight += _fused(queries, keys, contents, groups)
            block.self_attention.linear_proj.weight += product(f"{attention}.o_proj")
            block.mlp.linear_fc1.weight += torch.cat([product(path) for path in inner])
            block.mlp.linear_fc2.weight += product(f"{mlp}.down_proj")
        return forward(model)


def test_gradients_are_what_finite_differences_say() -> None:
    """Of one number in each factor of the first layer, in float64."""
    made = with_adapter(gpt(dtype=torch.float64))

    def loss() -> Tensor:
        with made.use("a"):
            return forward(made.model).pow(2).sum() / 100

    loss().backward()
    found = gradients(made, "a")
    for path in SHAPES:
        for side in "AB":
            name = f"lora_slots.slot_0.model.layers.0.{path}.lora_{side}"
            number, around = made.slot_tensors(0)[name].data[1, 2:3], []
            for step in (1e-5, -2e-5):
                number += step
                with torch.no_grad():
                    around.append(float(loss()))
            number += 1e-5
            wanted = (around[0] - around[1]) / 2e-5

            assert float(found[peft_key(f"model.layers.0.{path}", side)][1, 2]) == pytest.approx(wanted, rel=1e-5)


def test_slots_of_a_base_of_16_bits_are_float32() -> None:
    """They train in full precision, and what they add is rounded once, with the output."""
    made = with_adapter(gpt(dtype=torch.bfloat16).bfloat16())
    with torch.no_grad(), made.use("a"):
        found = forward(made.model)

    assert {one.dtype for one in made.slot_tensors(0).values()} == {torch.float32}
    assert found.dtype == torch.bfloat16
    assert not torch.equal(found, forward(made.model))
