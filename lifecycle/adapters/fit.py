"""Fitting an adapter into a slot: which modules it has, whether its shapes are right, and padding with zeros.

A smaller rank is padded: the extra rows of A and columns of B are zero. They contribute nothing, and
they stay zero in training, since the gradient of each is a product with the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

from lifecycle.adapters.files import AdapterFiles
from lifecycle.adapters.peft_config import PeftConfig
from lifecycle.adapters.peft_kinds import EMBEDDING, WHOLE_LAYER, kind_named
from lifecycle.errors import AdapterError

_KEY: Final = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
_DTYPES: Final = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_NAMED: Final = 3

Factors = Mapping[str, tuple[Tensor, Tensor]]
"""Module path to A ``[r, in]`` and B ``[out, r]``."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The shape of every slot.

    Attributes:
        rank: the rank that slots are allocated with.
        modules: path of each module that has slots to the target name it was found by; in the model's order.
        shapes: path to (in, out) features.
    """

    rank: int
    modules: Mapping[str, str]
    shapes: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class FittedAdapter:
    """An adapter that fits, at its own rank.

    Attributes:
        rank: its rank.
        alpha: the scale is alpha / rank.
        target_modules: target names of the modules it has, sorted.
        factors: by module path.
    """

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    factors: Factors = field(repr=False)


def peft_key(module: str, side: str) -> str:
    """The name under which PEFT saves one factor: *side* is ``A`` or ``B``."""
    return f"base_model.model.{module}.lora_{side}.weight"


def fit_files(adapter: str, files: AdapterFiles, layout: SlotLayout) -> FittedAdapter:
    """Check a directory's adapter against the slots.

    Raises:
        AdapterError: its rank is too large, its targets and its tensors disagree, or a shape is wrong.
    """
    fitted = fit_tensors(adapter, files.tensors, files.config.rank, files.config.alpha, layout)
    _check_targets(adapter, files.config, fitted.factors, layout)
    return fitted


def fit_tensors(
    adapter: str, tensors: Mapping[str, Tensor], rank: int, alpha: float, layout: SlotLayout
) -> FittedAdapter:
    """Check tensors under PEFT names against the slots.

    Raises:
        AdapterError: a rank, name, shape or value is wrong, or a partner is missing.
    """
    check_rank(adapter, rank, layout)
    _check_values(adapter, tensors)
    _refuse_other_layers(adapter, tensors)
    sides: dict[str, dict[str, Tensor]] = {"A": {}, "B": {}}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise AdapterError(adapter, f"{key!r} is no tensor of a plain LoRA adapter; it would be left out")
        if match["module"] not in layout.modules:
            raise AdapterError(adapter, f"{match['module']} has no slots; the slots are on {_targets_of(layout)}")
        sides[match["side"]][match["module"]] = tensor
    lonely = sorted(sides["A"].keys() ^ sides["B"].keys())
    if lonely:
        raise AdapterError(adapter, f"lora_A or lora_B is missing for {_some(lonely)}")
    for module, (features_in, features_out) in layout.shapes.items():
        if module in sides["A"]:
            _check_shape(adapter, peft_key(module, "A"), sides["A"][module], (rank, features_in))
            _check_shape(adapter, peft_key(module, "B"), sides["B"][module], (features_out, rank))
    factors = {module: (down, sides["B"][module]) for module, down in sides["A"].items()}
    targets = tuple(sorted({layout.modules[module] for module in factors}))
    return FittedAdapter(rank, alpha, targets, factors)


def fresh(
    adapter: str, seed: int, rank: int, alpha: float, targets: tuple[str, ...] | None, layout: SlotLayout
) -> FittedAdapter:
    """A new adapter: A uniform as PEFT starts it, B zero, so that it computes nothing yet.

    Args:
        adapter: for messages.
        seed: of a generator of its own.
        rank: its rank.
        alpha: the scale is alpha / rank.
        targets: target names; None means all.
        layout: the slots.

    Raises:
        AdapterError: the rank is too large, or a target has no slots.
    """
    check_rank(adapter, rank, layout)
    wanted = set(layout.modules.values()) if targets is None else set(targets)
    unknown = sorted(wanted - set(layout.modules.values()))
    if unknown:
        raise AdapterError(adapter, f"{_some(unknown)} has no slots; the slots are on {_targets_of(layout)}")
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for module in sorted(path for path, target in layout.modules.items() if target in wanted):
        features_in, features_out = layout.shapes[module]
        down = torch.empty(rank, features_in, dtype=torch.float32, device="cpu")
        nn.init.kaiming_uniform_(down, a=math.sqrt(5), generator=generator)
        factors[module] = (down, torch.zeros(features_out, rank, dtype=torch.float32, device="cpu"))
    return FittedAdapter(rank, alpha, tuple(sorted(wanted)), factors)


def pad(adapter: str, name: str, value: Tensor | None, slot: Tensor) -> Tensor:
    """*value* in the upper left corner of a CPU tensor of zeros, of the slot tensor's shape and dtype.

    Args:
        adapter: for messages.
        name: of the slot tensor, for messages.
        value: at the adapter's own rank; None when the adapter does not have this module.
        slot: the slot's tensor; its bytes are not read.

    Raises:
        AdapterError: a value does not fit the slot's dtype.
    """
    padded = torch.zeros(slot.shape, dtype=slot.dtype, device="cpu")
    if value is not None:
        padded[: value.shape[0], : value.shape[1]].copy_(value.detach())
        if not bool(torch.isfinite(padded).all()):
            raise AdapterError(adapter, f"{name}: a value of {value.dtype} is too large for the slot's {slot.dtype}")
    return padded


def pad_exact(adapter: str, name: str, value: Tensor | None, slot: Tensor) -> Tensor | None:
    """What :func:`pad` gives, in float32: for a main copy. None where the slot's dtype has every bit of the value."""
    if value is None or value.element_size() <= slot.element_size() or slot.dtype.itemsize >= torch.float32.itemsize:
        return None
    return pad(adapter, name, value, torch.empty(slot.shape, dtype=torch.float32, device="meta"))


def check_rank(adapter: str, rank: int, layout: SlotLayout) -> None:
    """Check that a rank fits.

    Raises:
        AdapterError: it is larger than that of the slots.
    """
    if rank > layout.rank:
        raise AdapterError(adapter, f"its rank is {rank}, the slots have rank {layout.rank}; attach with a larger rank")


def _check_values(adapter: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse what is not floating point (16 to 64 bits), has no bytes, or holds NaN or infinity."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided or tensor.is_meta:
            raise AdapterError(adapter, f"{name} is {tensor.layout} {tensor.dtype} on {tensor.device.type}; a dense "
                                        "tensor of float16, bfloat16, float32 or float64 is needed")  # fmt: skip
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterError(adapter, f"{name} holds NaN or infinity")


def _refuse_other_layers(adapter: str, names: Iterable[str]) -> None:
    """Embeddings are no linear modules, and a layer of the base is nobody's adapter."""
    for mark, kind in ((".lora_embedding_", EMBEDDING), (".base_layer.", WHOLE_LAYER)):
        found = next((name for name in names if mark in name), None)
        if found is not None:
            raise AdapterError(adapter, f"the file holds {found!r}: {kind_named(kind).told()}")


def _check_shape(adapter: str, key: str, tensor: Tensor, wanted: tuple[int, int]) -> None:
    if tuple(tensor.shape) != wanted:
        raise AdapterError(adapter, f"{key} has shape {tuple(tensor.shape)}, the model and the rank want {wanted}")


def _check_targets(adapter: str, config: PeftConfig, factors: Factors, layout: SlotLayout) -> None:
    """What the configuration targets and what the file holds must be the same modules."""
    if config.target_modules is None:
        return
    named = {one: {path for path in layout.modules if is_target(path, one)} for one in config.target_modules}
    idle = sorted(one for one, paths in named.items() if not paths)
    if idle:
        raise AdapterError(adapter, f"its target {_some(idle)} has no slots; the slots are on {_targets_of(layout)}")
    expected = set().union(*named.values())
    extra = sorted(factors.keys() - expected)
    if extra:
        raise AdapterError(adapter, f"the file holds {_some(extra)}, which its configuration does not target")
    missing = sorted(expected - factors.keys())
    if missing and not config.narrowed:
        raise AdapterError(adapter, f"the file lacks {_some(missing)}, which its configuration targets")


def is_target(path: str, target: str) -> bool:
    """Whether a target name means the module at *path*: the whole path, or its end after a dot."""
    return path == target or path.endswith(f".{target}")


def _targets_of(layout: SlotLayout) -> str:
    return ", ".join(sorted(set(layout.modules.values())))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
