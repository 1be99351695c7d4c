"""The numbers: a loaded adapter computes what PEFT computes, and padding stays zero in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from lifecycle.adapters import PeftAdapters, save_adapter
from lifecycle.engines.protocol import AdapterPayload
from tests.adapters.world import (
    IDS,
    SLOT_RANK,
    factors,
    host,
    llama,
    load,
    logits,
    peft_directory,
    read_by_peft,
    unload,
)


def close(one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding."""
    return torch.allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("rank", "changes"),
    [
        (1, {}),
        (3, {"lora_alpha": 7}),
        (SLOT_RANK, {"lora_alpha": 16}),
        (4, {"use_rslora": True}),
        (2, {"target_modules": ["q_proj"]}),
        (2, {"layers_to_transform": [1]}),
        (2, {"exclude_modules": ["model.layers.0.self_attn.q_proj"]}),
        (2, {"target_modules": r".*\.0\..*down_proj"}),
        (2, {"lora_dropout": 0.1}),
    ],
)
def test_a_loaded_adapter_computes_what_peft_computes(tmp_path: Path, rank: int, changes: dict[str, Any]) -> None:
    """Smaller ranks, alpha, rsLoRA, fewer modules or layers; in a slot beside another adapter."""
    directory = peft_directory(tmp_path / "a", seed=2, rank=rank, **changes)
    made = host()
    made.registry.register("other", tensors=factors(9, 5), rank=5, alpha=40)
    made.registry.register("a", path=directory)
    load(made, "other")
    load(made, "a")
    with made.use("a"):
        found = logits(made.model)

    assert close(found, read_by_peft(directory))
    assert not torch.allclose(found, logits(llama()), atol=1e-3)


@pytest.mark.parametrize("changes", [{}, {"use_rslora": True}, {"layers_to_transform": [1]}])
def test_an_exported_adapter_is_read_by_peft_and_computes_the_same(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Load, export, save, and let PEFT read it: no rank, scale or name is lost on the way."""
    made = host()
    made.registry.register("a", path=peft_directory(tmp_path / "a", seed=2, rank=3, **changes))
    load(made, "a")
    with made.use("a"):
        wanted = logits(made.model)
    rank, alpha, targets, tensors = made.export("a", lambda name: made.slot_tensors(0)[name])
    save_adapter(tmp_path / "b", AdapterPayload("a", 1, rank, alpha, targets, tensors))

    assert close(read_by_peft(tmp_path / "b"), wanted)


def train(made: PeftAdapters, name: str, optimizer: Optimizer, steps: int = 3) -> None:
    """Steps on a loss that this adapter can lower; gradients are kept as zeros."""
    for _ in range(steps):
        with made.use(name):
            loss = made.model(input_ids=IDS).logits.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def padding(made: PeftAdapters, name: str, rank: int) -> list[Tensor]:
    """What lies beyond an adapter's own rank."""
    tensors = made.slot_tensors(made.slot_of(name))
    return [one[rank:] if "lora_A" in key else one[:, rank:] for key, one in tensors.items()]


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("start", ["fresh", "tensors"])
def test_padding_stays_zero_in_training(kind: type[Optimizer], start: str) -> None:
    """Rows, columns and whole modules that an adapter does not have never come to life, weight decay or not."""
    made = host()
    arguments: dict[str, Any] = {"target_modules": ["q_proj"]}
    if start == "tensors":
        arguments = {"tensors": factors(1, 3, ("q_proj",))}
    made.registry.register("a", rank=3, **arguments)
    load(made, "a")
    before = {name: one.detach().clone() for name, one in made.slot_tensors(0).items()}
    optimizers = made.optimizers(lambda parameters: kind(parameters, lr=0.01, weight_decay=0.1))
    train(made, "a", optimizers[0])

    assert not any(bool(one.any()) for one in padding(made, "a", 3))
    for name, one in made.slot_tensors(0).items():
        assert bool(one.any()) == ("q_proj" in name)
        assert torch.equal(one, before[name]) == ("down_proj" in name)


def test_training_one_adapter_leaves_the_others_and_the_base_bit_identical() -> None:
    """Momentum of another slot does not go on where gradients are kept as zeros (FB-36)."""
    made = host()
    for name, seed in (("a", 1), ("b", 2)):
        made.registry.register(name, tensors=factors(seed, 4), rank=4)
        load(made, name)
    optimizers = made.optimizers(lambda parameters: Adam(parameters, lr=0.01))
    train(made, "b", optimizers[made.slot_of("b")])
    still = {**made.slot_tensors(1), **made.slot_tensors(2), **made.base_tensors()[0]}
    before = {name: one.detach().clone() for name, one in still.items()}
    train(made, "a", optimizers[made.slot_of("a")])

    assert list(optimizers) == [0, 1, 2]
    assert all(torch.equal(before[name], one) for name, one in still.items())
    assert not torch.equal(
        made.slot_tensors(0)[next(iter(made.slot_tensors(0)))], factors(1, 4)[next(iter(factors(1, 4)))]
    )


def test_interleaved_training_equals_training_alone() -> None:
    """Each adapter is what it would have become by itself, bit for bit (FB-36)."""
    seeds = {"a": 1, "b": 2}

    def run(names: list[str]) -> dict[str, list[Tensor]]:
        made = host()
        optimizers: dict[int, Optimizer] = {}
        for name in sorted(set(names)):
            made.registry.register(name, rank=4, seed=seeds[name])
            load(made, name)
            optimizers = optimizers or made.optimizers(lambda parameters: Adam(parameters, lr=0.01))
        for name in names:
            train(made, name, optimizers[made.slot_of(name)], steps=1)
        return {name: [one.detach().clone() for one in made.parameters_of(name)] for name in set(names)}

    together = run(["a", "b", "b", "a", "a", "b"])
    alone = {"a": run(["a"] * 3)["a"], "b": run(["b"] * 3)["b"]}

    for name in ("a", "b"):
        assert all(torch.equal(one, other) for one, other in zip(together[name], alone[name], strict=True))


def test_the_next_tenant_of_a_slot_starts_like_the_first() -> None:
    """Rank and scale of the last tenant are gone with it (FB-35)."""
    directory_like = {"tensors": factors(5, 4), "rank": 4, "alpha": 4}
    first = host(slots=1)
    first.registry.register("b", **directory_like)  # type: ignore[arg-type]
    load(first, "b")
    with first.use("b"):
        wanted = logits(first.model)
    made = host(slots=1)
    made.registry.register("a", tensors=factors(1, 2), rank=2, alpha=32)
    load(made, "a")
    made.registry.deregister("a")
    unload(made, "a")
    made.registry.register("b", **directory_like)  # type: ignore[arg-type]
    load(made, "b")
    with made.use("b"):
        found = logits(made.model)

    assert torch.equal(found, wanted)
