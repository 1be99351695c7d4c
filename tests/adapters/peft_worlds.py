"""Directories of every kind that PEFT itself has written, one for each row of the table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import peft
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from lifecycle.adapters import PeftAdapters
from lifecycle.adapters import peft_kinds as kinds
from tests.adapters.world import SLOT_RANK, TARGETS, quiet
from tests.models import llama

Make = Callable[[Path], Path]
HEAD: Final = ("q_proj", "lm_head")


@dataclass(frozen=True)
class Handled:
    """How a handled adapter is made, and the base that it is for."""

    make: Make
    targets: tuple[str, ...] = TARGETS
    tied: bool = False

    def base(self) -> nn.Module:
        """The base, new."""
        return llama(tied=self.tied)

    def host(self) -> PeftAdapters:
        """Slots on the base."""
        return PeftAdapters(self.base(), slots=2, rank=SLOT_RANK, target_modules=self.targets)


def by_peft(
    base: Callable[[], nn.Module] = llama,
    dtype: torch.dtype = torch.float32,
    save: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Make:
    """An adapter whose factors are not zero, written by PEFT."""

    def make(directory: Path) -> Path:
        settings: dict[str, Any] = {"r": 3, "target_modules": list(TARGETS), "lora_alpha": 6}
        with quiet():
            model: Any = peft.get_peft_model(base(), peft.LoraConfig(**(settings | changes)))
            generator = torch.Generator().manual_seed(5)
            for name, one in model.named_parameters():
                if "lora_" in name:
                    one.data = (torch.randn(one.shape, generator=generator) * 0.1).to(dtype)
            model.save_pretrained(directory, **(save or {}))
        return directory

    return make


def converted(directory: Path) -> Path:
    """PiSSA, trained a little, and converted by PEFT when it was saved."""
    with quiet():
        model: Any = peft.get_peft_model(
            llama(), peft.LoraConfig(r=3, lora_alpha=6, target_modules=list(TARGETS), init_lora_weights="pissa")
        )
        config = model.peft_config["default"]
        config.init_lora_weights = True
        model.save_pretrained(directory.with_name("start"))
        config.init_lora_weights = "pissa"
        with torch.no_grad():
            for name, one in model.named_parameters():
                if "lora_" in name:
                    one.add_(0.05)
        model.save_pretrained(directory, path_initial_model_for_weight_conversion=str(directory.with_name("start")))
    return directory


def of_another_method(directory: Path) -> Path:
    """IA3."""
    with quiet():
        config = peft.IA3Config(target_modules=list(TARGETS), feedforward_modules=["down_proj"])
        peft.get_peft_model(llama(), config).save_pretrained(directory)
    return directory


def gpt2() -> nn.Module:
    """Its projections are Conv1D."""
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=32, bos_token_id=None, eos_token_id=None
    )
    return GPT2LMHeadModel(config).eval()


def tied() -> nn.Module:
    """Embedding and output layer share one parameter."""
    return llama(tied=True)


HANDLED: Final[dict[str, Handled]] = {
    "rank and alpha of its own": Handled(by_peft(r=5, lora_alpha=7)),
    "rsLoRA": Handled(by_peft(use_rslora=True)),
    "fewer target modules": Handled(by_peft(target_modules=["q_proj"])),
    "target modules by a pattern": Handled(by_peft(target_modules=r".*\.0\..*down_proj")),
    "some layers only": Handled(by_peft(layers_to_transform=[1])),
    "dropout": Handled(by_peft(lora_dropout=0.3)),
    "a start that leaves the base as it is (gaussian, orthogonal, eva)": Handled(by_peft(init_lora_weights="gaussian")),
    "PiSSA, OLoRA or CorDA that was converted": Handled(converted),
    "output layer (lm_head) as a target, tied or not": Handled(
        by_peft(tied, target_modules=list(HEAD), save={"save_embedding_layers": False}), HEAD, tied=True
    ),
    "factors of 16 bits": Handled(by_peft(dtype=torch.bfloat16)),
}
"""One adapter for each handled row."""

REFUSED: Final[dict[str, tuple[Make, ...]]] = {
    "a rank for some modules": (by_peft(rank_pattern={"q_proj": 2}),),
    "an alpha for some modules": (by_peft(alpha_pattern={"q_proj": 2}),),
    "DoRA": (by_peft(use_dora=True),),
    "biases that train": (by_peft(bias="lora_only"), by_peft(bias="all")),
    "LoRA with a bias": (by_peft(lora_bias=True),),
    "modules_to_save": (by_peft(modules_to_save=["lm_head"]),),
    "tokens that train": (by_peft(trainable_token_indices=[1, 2]),),
    kinds.EMBEDDING: (
        by_peft(target_modules=["q_proj", "embed_tokens"]),
        by_peft(tied, target_modules=["embed_tokens"], save={"save_embedding_layers": False}),
    ),
    "adapter on tied layers (ensure_weight_tying)": (
        by_peft(tied, target_modules=["lm_head"], ensure_weight_tying=True, save={"save_embedding_layers": False}),
    ),
    kinds.WHOLE_LAYER: (by_peft(target_modules=list(HEAD)),),
    kinds.CONV1D: (by_peft(gpt2, target_modules=["c_attn"]),),
    "a start that changes the base (pissa, olora, loftq, corda, lora_ga)": (
        by_peft(init_lora_weights="pissa"),
        by_peft(init_lora_weights="olora"),
        by_peft(init_lora_weights="lora_ga"),
    ),
    kinds.QUANTISED: (),
    kinds.NOT_LINEAR: (by_peft(target_modules=[], target_parameters=["layers.0.mlp.down_proj.weight"]),),
    "layers that are used twice": (by_peft(layer_replication=[[0, 2], [1, 2]]),),
    kinds.OTHER: (by_peft(use_qalora=True), by_peft(alora_invocation_tokens=[1])),
    "another method than LoRA": (of_another_method,),
}
"""Adapters for each refused row; none where it is the base alone that is refused."""


class Packed(nn.Parameter):
    """A weight whose values are packed, as quantisation libraries have them: the class says so."""


def packed_linear() -> nn.Module:
    """A linear module with such a weight, packed in bytes."""
    layer = nn.Linear(4, 6, bias=False)
    layer.weight = Packed(torch.zeros(12, 1, dtype=torch.uint8), requires_grad=False)
    return nn.ModuleDict({"q_proj": layer})


def not_packed_yet() -> nn.Module:
    """The same before it is packed: libraries do it when the model moves to the device."""
    layer = nn.Linear(4, 6, bias=False)
    layer.weight = Packed(torch.zeros(6, 4), requires_grad=False)
    return nn.ModuleDict({"q_proj": layer})


def eight_bits() -> nn.Module:
    """Plain bytes in a plain parameter."""
    layer = nn.Linear(4, 6, bias=False)
    layer.weight = nn.Parameter(torch.zeros(6, 4, dtype=torch.int8), requires_grad=False)
    return nn.ModuleDict({"q_proj": layer})


@dataclass(frozen=True)
class Base:
    """A base that is refused, and the target that it is refused for."""

    build: Callable[[], nn.Module]
    target: str = "q_proj"
    named: tuple[str, ...] = field(default=())


BASES: Final[dict[str, tuple[Base, ...]]] = {
    kinds.EMBEDDING: (
        Base(llama, "embed_tokens", ("model.embed_tokens is Embedding",)),
        Base(tied, "embed_tokens", ("model.embed_tokens is Embedding",)),
    ),
    kinds.CONV1D: (Base(gpt2, "c_attn", ("c_attn is Conv1D",)),),
    kinds.QUANTISED: (
        Base(packed_linear, named=("Packed of torch.uint8",)),
        Base(not_packed_yet, named=("Packed of torch.float32",)),
        Base(eight_bits, named=("torch.int8",)),
    ),
    kinds.NOT_LINEAR: (
        Base(lambda: nn.ModuleDict({"conv": nn.Conv2d(2, 2, 1)}), "conv", ("conv is Conv2d",)),
        Base(lambda: nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2)}), "attention", ("MultiheadAttention",)),
    ),
}
"""Bases for each row that is about the base."""


@contextmanager
def unchanged(model: nn.Module) -> Any:
    """The model has the modules and flags inside that it has afterwards."""

    def looks() -> tuple[list[tuple[str, type]], list[tuple[str, bool]], list[Tensor]]:
        flags = [(name, one.requires_grad) for name, one in model.named_parameters()]
        return [(name, type(one)) for name, one in model.named_modules()], flags, list(model.parameters())

    before = looks()
    yield
    after = looks()
    assert after[:2] == before[:2]
    assert all(one is other for one, other in zip(after[2], before[2], strict=True))
