"""Each row of the table of PEFT kinds, on a real PEFT model: handled shown by numbers, refused by its words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor

from lifecycle.adapters import PeftAdapters, save_adapter
from lifecycle.adapters import peft_kinds as kinds
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AdapterError, ConfigError
from tests.adapters.peft_worlds import BASES, HANDLED, REFUSED, Handled, unchanged
from tests.adapters.world import host, load, logits, quiet


def close(one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding."""
    return torch.allclose(one, other, rtol=0, atol=1e-5)


def by_peft(case: Handled, directory: Path) -> Tensor:
    """What PEFT computes with a directory."""
    with quiet():
        return logits(peft.PeftModel.from_pretrained(case.base(), directory))


def loaded(case: Handled, directory: Path) -> PeftAdapters:
    """The adapter in the second slot, beside another one."""
    made = case.host()
    made.registry.register("other", rank=2, seed=3)
    made.registry.register("a", path=directory)
    load(made, "other")
    load(made, "a")
    return made


def exported(made: PeftAdapters, directory: Path) -> Path:
    """The adapter, saved from its slot."""
    rank, alpha, targets, tensors = made.export("a", lambda name: made.slot_tensors(1)[name])
    return save_adapter(directory, AdapterPayload("a", 1, rank, alpha, targets, tensors))


def test_every_row_has_a_case_and_every_case_a_row() -> None:
    """A row that nobody tries is no promise."""
    assert list(HANDLED) == [row.kind for row in kinds.HANDLED]
    assert list(REFUSED) == [row.kind for row in kinds.REFUSED]
    assert [kind for kind, made in REFUSED.items() if not made and kind not in BASES] == []


@pytest.mark.parametrize("kind", HANDLED)
def test_a_handled_kind_computes_in_its_slot_what_peft_computes(kind: str, tmp_path: Path) -> None:
    """And something else than the base."""
    case = HANDLED[kind]
    directory = case.make(tmp_path / "a")
    made = loaded(case, directory)
    with made.use("a"):
        found = logits(made.model)

    assert close(found, by_peft(case, directory))
    assert not torch.allclose(found, logits(case.base()), atol=1e-3)


@pytest.mark.parametrize("kind", HANDLED)
def test_what_is_exported_computes_the_same_for_peft_and_for_an_engine(kind: str, tmp_path: Path) -> None:
    """One scale, whoever works it out: by PEFT's rule, or by ``lora_alpha / r`` as some engines do."""
    case = HANDLED[kind]
    made = loaded(case, case.make(tmp_path / "a"))
    with made.use("a"):
        wanted = logits(made.model)
    written = exported(made, tmp_path / "b")
    given, found = (json.loads((one / "adapter_config.json").read_text()) for one in (tmp_path / "a", written))
    scale = given["lora_alpha"] / (math.sqrt(given["r"]) if given["use_rslora"] else given["r"])

    assert close(by_peft(case, written), wanted)
    assert found["r"] == given["r"]
    assert math.isclose(found["lora_alpha"] / found["r"], scale, rel_tol=1e-15)
    assert not found["use_rslora"]
    assert set(found["target_modules"]) <= set(case.targets)


def test_an_export_that_is_loaded_again_is_the_same_bit_by_bit(tmp_path: Path) -> None:
    """Nothing drifts on the way through a slot and a file, rsLoRA's scale neither."""
    case = HANDLED["rsLoRA"]
    made = loaded(case, case.make(tmp_path / "a"))
    again = loaded(case, exported(made, tmp_path / "b"))
    with made.use("a"), again.use("a"):
        assert torch.equal(logits(made.model), logits(again.model))

    assert made.loaded()["a"] == again.loaded()["a"]
    assert all(torch.equal(one, again.slot_tensors(1)[name]) for name, one in made.slot_tensors(1).items())


@pytest.mark.parametrize(
    ("kind", "index"), [(kind, index) for kind, made in REFUSED.items() for index in range(len(made))]
)
def test_a_refused_kind_is_refused_in_the_words_of_its_row(kind: str, index: int, tmp_path: Path) -> None:
    """The key is named, what to do is said, and nothing is registered."""
    row, made = kinds.kind_named(kind), host()
    directory = REFUSED[kind][index](tmp_path / "a")
    with unchanged(made.model), pytest.raises(AdapterError) as caught:
        made.registry.register("a", path=directory)

    assert row.told() in str(caught.value)
    assert not row.keys or any(f" has {key} " in str(caught.value) for key in row.keys)
    assert made.desired() == {}


@pytest.mark.parametrize(
    ("kind", "index"), [(kind, index) for kind, made in BASES.items() for index in range(len(made))]
)
def test_a_base_that_cannot_have_slots_is_refused_in_the_words_of_its_row(kind: str, index: int) -> None:
    """Before the model is touched."""
    base = BASES[kind][index]
    model: Any = base.build()
    with unchanged(model), pytest.raises(ConfigError) as caught:
        PeftAdapters(model, slots=1, rank=2, target_modules=(base.target,))

    assert kinds.kind_named(kind).told() in str(caught.value)
    assert [name for name in base.named if name not in str(caught.value)] == []


def test_the_page_shows_every_row() -> None:
    """With why and remedy, and every refused row says what to do."""
    page = kinds.peft_page()

    for row in kinds.PEFT_KINDS:
        assert f"| {row.kind} | " in page
        assert f" | {row.why} | {row.remedy or '-'} |" in page
        assert row.handled or row.remedy
    assert len({row.kind for row in kinds.PEFT_KINDS}) == len(kinds.PEFT_KINDS)
