"""A small Llama with slots, adapters by seed, and PEFT directories made by PEFT itself."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peft
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lifecycle.adapters import AdapterRegistry, PeftAdapters
from lifecycle.adapters.fit import peft_key
from tests.models import llama

TARGETS = ("q_proj", "down_proj")
SLOT_RANK = 8
IDS = torch.tensor([[1, 5, 9, 2, 7], [3, 3, 60, 11, 0]])


def host(slots: int = 3, **changes: Any) -> PeftAdapters:
    """Slots on the Llama of seed 0."""
    settings: dict[str, Any] = {"rank": SLOT_RANK, "target_modules": TARGETS}
    return PeftAdapters(llama(), slots=slots, **(settings | changes))


def load(into: PeftAdapters, name: str) -> None:
    """What the controller does with a registered adapter: prepare, write bytes, install."""
    prepared = into.prepare(into.desired()[name])
    write(into, prepared.desired.slot, prepared.tensors)
    into.install(prepared)


def unload(into: PeftAdapters, name: str) -> None:
    """What the controller does with a retired one: zero the bytes, uninstall, and commit."""
    slot, gone = into.slot_of(name), into.loaded()[name]
    write(into, slot, {key: torch.zeros_like(one) for key, one in into.slot_tensors(slot).items()})
    into.uninstall(name)
    into.freed((gone,))


def write(into: PeftAdapters, slot: int, values: Mapping[str, Tensor]) -> None:
    """Write the bytes of a slot."""
    with torch.no_grad():
        for name, one in into.slot_tensors(slot).items():
            one.copy_(values[name])


def logits(model: Any) -> Tensor:
    """Logits for the ids of these tests, without gradient."""
    with torch.no_grad():
        found: Tensor = model(input_ids=IDS).logits
    return found


def factors(seed: int, rank: int, targets: tuple[str, ...] = TARGETS) -> dict[str, Tensor]:
    """Random tensors under PEFT names, B not zero, for every module of the targets."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for path, module in llama().named_modules():
        if isinstance(module, nn.Linear) and path.endswith(targets):
            found[peft_key(path, "A")] = torch.randn(rank, module.in_features, generator=generator)
            found[peft_key(path, "B")] = torch.randn(module.out_features, rank, generator=generator) * 0.1
    return found


def peft_directory(directory: Path, seed: int, rank: int, **changes: Any) -> Path:
    """A directory that PEFT itself has written, of an adapter that is not zero."""
    settings: dict[str, Any] = {"target_modules": list(TARGETS), "lora_alpha": 6, "init_lora_weights": False}
    with quiet():
        model = peft.get_peft_model(llama(), peft.LoraConfig(r=rank, **(settings | changes)))
        generator = torch.Generator().manual_seed(seed)
        for name, one in model.named_parameters():
            if "lora_" in name:
                one.data = torch.randn(one.shape, generator=generator) * 0.1
        model.save_pretrained(directory)
    return directory


def read_by_peft(directory: Path) -> Tensor:
    """The logits that PEFT computes with a directory."""
    with quiet():
        return logits(peft.PeftModel.from_pretrained(llama(), directory))


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that PEFT causes in transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def change_config(directory: Path, **changes: object) -> Path:
    """Change keys of ``adapter_config.json``."""
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return directory


def change_weights(directory: Path, changes: Mapping[str, Tensor | None]) -> Path:
    """Replace, add or (None) remove tensors of ``adapter_model.safetensors``."""
    path = directory / "adapter_model.safetensors"
    tensors: dict[str, Tensor | None] = {**load_file(path), **changes}
    save_file({name: one for name, one in tensors.items() if one is not None}, path)
    return directory


def registry_of(*names: str, slots: int = 3) -> AdapterRegistry:
    """A registry alone, with these adapters pending."""
    registry = AdapterRegistry(slots=slots)
    for name in names:
        registry.register(name)
    return registry
