"""The trainer's half of vLLM's weight transfer, where vLLM is not installed: its class stands in for vLLM's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch

from lifecycle.engines.vllm import source
from lifecycle.errors import ConfigError

PLACE = "vllm.distributed.weight_transfer.base"


@dataclass(frozen=True)
class _ParamMeta:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with the two names that are used of it."""
    module: Any = ModuleType(PLACE)
    module.ParamMeta, module.WeightSource = _ParamMeta, type("WeightSource", (), {})
    parts = PLACE.split(".")
    for depth in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:depth]), ModuleType(".".join(parts[:depth])))
    monkeypatch.setitem(sys.modules, PLACE, module)
    source._class.cache_clear()
    yield module
    source._class.cache_clear()


def test_a_source_tells_and_streams_checkpoint_names_without_a_copy(vllm: Any) -> None:
    """What PEFT puts around a name is gone; each pass is a fresh one over the same memory."""
    held = {"base_model.model.model.q_proj.base_layer.weight": torch.ones(2, 3), "lm_head.weight": torch.ones(4)}
    made = source.weight_source(held)
    passes = [{name: one.data_ptr() for name, one in made} for _ in range(2)]

    assert isinstance(made, vllm.WeightSource)
    assert [(one.name, one.dtype, one.shape) for one in made.metadata()] == [
        ("model.q_proj.weight", torch.float32, (2, 3)),
        ("lm_head.weight", torch.float32, (4,)),
    ]
    assert passes[0] == passes[1] == dict(zip(passes[0], (one.data_ptr() for one in held.values()), strict=True))


@pytest.mark.usefixtures("vllm")
def test_what_is_renamed_to_none_is_not_sent() -> None:
    """Such as a buffer that vLLM computes for itself."""
    made = source.weight_source({"a": torch.ones(1), "b": torch.ones(1)}, rename={"a": None, "b": "c"}.get)

    assert [name for name, _ in made] == ["c"]


def test_two_tensors_under_one_name_are_refused() -> None:
    """One of them would be lost."""
    with pytest.raises(ConfigError, match="both be sent as x"):
        source.weight_source({"a": torch.ones(1), "b": torch.ones(1)}, rename=lambda _: "x")


def test_where_vllm_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to do."""
    monkeypatch.setitem(sys.modules, "vllm", None)
    source._class.cache_clear()
    with pytest.raises(ConfigError, match="where vLLM is installed"):
        source.weight_source({"a": torch.ones(1)})
