"""Building the slots: find the modules that get them, wrap the model, start every slot at zero."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

import torch
from torch import nn

from lifecycle.adapters.fit import SlotLayout, is_target
from lifecycle.adapters.peft_kinds import CONV1D, EMBEDDING, NOT_LINEAR, QUANTISED, kind_named
from lifecycle.errors import ConfigError

LLAMA_TARGETS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear modules of a Llama's layers."""

_DTYPES: Final = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_OTHER_MODULES: Final = {"Embedding": EMBEDDING, "Conv1D": CONV1D, "QuantLinear": QUANTISED}

_ALONE: Final = Lock()
"""What warnings are shown and what random numbers come next is one for all threads: one model at a time is wrapped."""
_WRAPPED: Final = (
    "the model has been wrapped by PEFT already; give the unwrapped model, or attach it without slots (lora=False)"
)


def find_modules(model: nn.Module, rank: int, target_modules: Sequence[str]) -> SlotLayout:
    """Which modules get slots. Changes nothing.

    Raises:
        ConfigError: a bad rank, a model that PEFT has wrapped, a target that no module has, or that is not linear.
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ConfigError(f"rank is {rank!r}; slots have a rank of at least 1")
    if isinstance(target_modules, str) or not target_modules:
        raise ConfigError(f"target_modules is {target_modules!r}; give a sequence of module name suffixes")
    if any(hasattr(one, "base_layer") or hasattr(one, "original_module") for one in model.modules()):
        raise ConfigError(_WRAPPED)
    modules: dict[str, str] = {}
    shapes: dict[str, tuple[int, int]] = {}
    for path, module in model.named_modules():
        target = next((one for one in target_modules if is_target(path, one)), None)
        if target is None:
            continue
        _refuse_unfit(path, module)
        modules[path] = target
        shapes[path] = (int(module.in_features), int(module.out_features))
    missing = sorted(set(target_modules) - set(modules.values()))
    if missing:
        linear = {path.rpartition(".")[2] for path, one in model.named_modules() if isinstance(one, nn.Linear)}
        raise ConfigError(
            f"the model has no module named {', '.join(missing)}; "
            f"its linear modules are named {', '.join(sorted(linear)) or '(there are none)'}"
        )
    return SlotLayout(rank, modules, shapes)


def _refuse_unfit(path: str, module: nn.Module) -> None:
    """Refuse a module that PEFT would give another kind of adapter than two factors, or whose weight is packed.

    Raises:
        ConfigError: in the words of the table in :mod:`lifecycle.adapters.peft_kinds`.
    """
    if isinstance(module, nn.Linear):
        weight = module.weight
        # A class of its own is how quantised weights tell what they are, packed or not yet.
        plain = type(weight) is nn.Parameter and weight.shape == (module.out_features, module.in_features)
        if plain and weight.dtype in _DTYPES:
            return
        found, kind = f"{type(module).__name__} with {type(weight).__name__} of {weight.dtype}", QUANTISED
    else:
        found, kind = type(module).__name__, _OTHER_MODULES.get(type(module).__name__, NOT_LINEAR)
    raise ConfigError(f"{path} is {found}: {kind_named(kind).told()}")


def build_slots(model: nn.Module, slots: int, layout: SlotLayout, dtype: torch.dtype | None) -> Any:
    """Wrap the model in a ``PeftModel`` with *slots* adapters of zeros. The base is frozen.

    Raises:
        ConfigError: peft is not installed, or the model is wrapped already.
    """
    try:
        import peft  # noqa: PLC0415 - an extra, needed only where slots are built
    except ImportError as error:
        raise ConfigError("adapter slots need peft; install adapter-lifecycle[peft]") from error
    if isinstance(model, peft.PeftModel):
        raise ConfigError(_WRAPPED)

    def config() -> Any:
        return peft.LoraConfig(
            r=layout.rank,
            lora_alpha=layout.rank,
            lora_dropout=0.0,
            target_modules=sorted(set(layout.modules.values())),
            bias="none",
            init_lora_weights=False,
        )

    # PEFT draws random numbers for every layer it makes; the user's own sequence goes on as if it had not.
    with _ALONE, torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT asks transformers under a name that newer releases of it are about to drop.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        # What it warns of, where the output layer is tied and a target, is merging; slots are never merged.
        warnings.filterwarnings("ignore", message="Model has `tie_word_embeddings=True`", category=UserWarning)
        wrapped = peft.get_peft_model(model, config(), adapter_name="slot_0")
        for slot in range(1, slots):
            wrapped.add_adapter(f"slot_{slot}", config())
    _zero_slots(wrapped, layout, dtype)
    return wrapped


def _zero_slots(wrapped: Any, layout: SlotLayout, dtype: torch.dtype | None) -> None:
    """Empty slots compute nothing: every factor is zero, in the dtype that slots are to have."""
    for path in layout.modules:
        layer: Any = wrapped.get_submodule(f"base_model.model.{path}")
        for factor in (layer.lora_A, layer.lora_B):
            if dtype is not None:
                factor.to(dtype)
            for one in factor.parameters():
                nn.init.zeros_(one)
