"""Reading a PEFT directory: what is wrong is named, and nothing is executed, followed or mapped."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from lifecycle.adapters import PeftAdapters
from lifecycle.adapters.fit import peft_key
from lifecycle.errors import AdapterError
from tests.adapters.world import SLOT_RANK, change_config, change_weights, factors, host, peft_directory

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
DOWN = peft_key("model.layers.0.mlp.down_proj", "A")
UP = peft_key("model.layers.0.mlp.down_proj", "B")


@pytest.fixture(scope="module")
def slots() -> PeftAdapters:
    """Slots that are never filled."""
    return host()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A good adapter of rank 4."""
    return peft_directory(tmp_path / "good", seed=1, rank=4)


def refused(slots: PeftAdapters, path: Path) -> str:
    """Why the registration of *path* is refused. It leaves no trace and touches no slot."""
    before = slots.registry.snapshot()
    with pytest.raises(AdapterError) as caught:
        slots.registry.register("bad", path=path)
    assert caught.value.adapter == "bad"
    assert slots.registry.snapshot() == before
    assert not any(bool(one.any()) for slot in range(slots.slots) for one in slots.slot_tensors(slot).values())
    return caught.value.why


def test_what_is_no_directory_is_refused(slots: PeftAdapters, tmp_path: Path) -> None:
    """A missing directory, and a file in its place."""
    (tmp_path / "file").write_text("x")

    for path in ("missing", "file", "file/below", "long" * 2000, "null\0"):
        told = refused(slots, tmp_path / path)
        assert "is no directory" in told
        assert "give the directory that holds the files" in told


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_missing_file_is_named(slots: PeftAdapters, directory: Path, name: str) -> None:
    """Either file."""
    (directory / name).unlink()

    assert f"has no {name}" in refused(slots, directory)


def test_a_pickle_is_refused_by_name_and_not_opened(slots: PeftAdapters, directory: Path, tmp_path: Path) -> None:
    """A pickle can run code; it is not even looked into."""
    trap = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (trap,))

    (directory / WEIGHTS).unlink()
    (directory / "adapter_model.bin").write_bytes(pickle.dumps(Trap()))

    assert "adapter_model.bin is a pickle" in refused(slots, directory)
    assert not trap.exists()


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_link_that_leads_out_of_the_directory_is_refused(
    slots: PeftAdapters, directory: Path, tmp_path: Path, name: str
) -> None:
    """Nobody is made to read another file."""
    (directory / name).rename(tmp_path / name)
    (directory / name).symlink_to(tmp_path / name)

    assert "leads out of" in refused(slots, directory)


def test_a_link_inside_the_directory_is_followed(slots: PeftAdapters, directory: Path) -> None:
    """And a link to the directory itself is the user's choice."""
    (directory / WEIGHTS).rename(directory / "real")
    (directory / WEIGHTS).symlink_to("real")
    link = directory.with_name("link")
    link.symlink_to(directory)

    slots.registry.register("linked", path=link)
    slots.registry.deregister("linked")
    slots.registry.retire_adapters()


def test_links_in_a_circle_are_refused(slots: PeftAdapters, directory: Path) -> None:
    """No traceback of the standard library."""
    (directory / WEIGHTS).unlink()
    (directory / WEIGHTS).symlink_to(WEIGHTS)

    assert WEIGHTS in refused(slots, directory)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_what_is_no_regular_file_is_refused_at_once(slots: PeftAdapters, directory: Path, name: str) -> None:
    """A directory, and a pipe without a writer, which does not block."""
    (directory / name).unlink()
    (directory / name).mkdir()
    why_directory = refused(slots, directory)
    (directory / name).rmdir()
    os.mkfifo(directory / name)
    why_pipe = refused(slots, directory)

    assert name in why_directory
    assert "is no regular file" in why_pipe


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_a_truncated_weights_file_is_refused(slots: PeftAdapters, directory: Path, kept: int) -> None:
    """Cut within the length, the header, or the last byte."""
    content = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(content[:kept])

    assert "truncated or malformed" in refused(slots, directory)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 64,
        b"\x00" * 64,
        b"PK\x03\x04 a zip file, which is what a pickle of torch looks like",
        (2**62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (58).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}    1234',
        (58).to_bytes(8, "little") + b'{"a":{"dtype":"ZZZ","shape":[1],"data_offsets":[0,4]}}    1234',
    ],
)
def test_a_malformed_weights_file_is_refused(slots: PeftAdapters, directory: Path, content: bytes) -> None:
    """Not safetensors, an absurd length, a header that lies."""
    (directory / WEIGHTS).write_bytes(content)

    assert "truncated or malformed" in refused(slots, directory)


def test_a_weights_file_without_tensors_is_refused(slots: PeftAdapters, directory: Path) -> None:
    """An empty adapter would pass for one that does nothing."""
    (directory / WEIGHTS).write_bytes((2).to_bytes(8, "little") + b"{}")

    assert "holds no tensor" in refused(slots, directory)


def test_a_file_larger_than_any_slot_is_refused_before_it_is_read(slots: PeftAdapters, directory: Path) -> None:
    """A sparse file of a terabyte costs nothing to refuse."""
    os.truncate(directory / WEIGHTS, 2**40)
    why_weights = refused(slots, directory)
    os.truncate(directory / CONFIG, 2**40)

    assert "has 1099511627776 bytes" in why_weights
    assert f"{CONFIG} has 1099511627776 bytes" in refused(slots, directory)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe{}", "is no JSON"),
        (b"[" * 200_000, "is no JSON"),
        (b"[]", "holds list"),
        (b"null", "holds NoneType"),
        (b"{}", "peft_type None"),
    ],
)
def test_a_malformed_configuration_is_refused(slots: PeftAdapters, directory: Path, content: bytes, why: str) -> None:
    """Not JSON, not an object, nothing in it."""
    (directory / CONFIG).write_bytes(content)

    assert why in refused(slots, directory)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"peft_type": "IA3"}, "peft_type 'IA3'"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "bias 'all'"),
        ({"bias": None}, "bias None"),
        ({"lora_bias": True}, "lora_bias"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"target_parameters": ["w"]}, "target_parameters"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"a_key_of_tomorrow": {"on": 1}}, "a_key_of_tomorrow"),
        ({"init_lora_weights": "pissa"}, "changes the base model"),
        ({"init_lora_weights": 1}, "changes the base model"),
        ({"use_rslora": "yes"}, "use_rslora"),
        ({"r": 0}, "r 0"),
        ({"r": "4"}, "r '4'"),
        ({"r": True}, "r True"),
        ({"r": None}, "r None"),
        ({"lora_alpha": 0}, "lora_alpha 0"),
        ({"lora_alpha": float("nan")}, "lora_alpha nan"),
        ({"lora_alpha": None}, "lora_alpha None"),
        (
            {"lora_alpha": 1.7e308, "use_rslora": True},
            "is not finite; give a smaller lora_alpha",
        ),
        ({"target_modules": None}, "target_modules 'None'"),
        ({"target_modules": []}, "target_modules"),
        ({"target_modules": [1]}, "target_modules"),
    ],
)
def test_what_the_slots_cannot_do_is_refused_by_name(
    slots: PeftAdapters, directory: Path, changes: dict[str, Any], why: str
) -> None:
    """No setting that changes what an adapter computes is passed over in silence."""
    assert why in refused(slots, change_config(directory, **changes))


def test_a_key_that_is_not_known_but_off_is_accepted(slots: PeftAdapters, directory: Path) -> None:
    """Newer releases of PEFT write more keys."""
    change_config(directory, a_key_of_tomorrow=None, another=False, a_third={}, init_lora_weights="gaussian")

    slots.registry.register("newer", path=directory)
    slots.registry.deregister("newer")
    slots.registry.retire_adapters()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_refused(slots: PeftAdapters, directory: Path, value: float) -> None:
    """One value in one tensor is enough."""
    tensor = factors(1, 4)[UP]
    tensor[3, 2] = value

    assert refused(slots, change_weights(directory, {UP: tensor})) == f"{UP} holds NaN or infinity"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.complex64, torch.float8_e4m3fn])
def test_a_dtype_that_is_no_float_of_16_to_64_bits_is_refused(
    slots: PeftAdapters, directory: Path, dtype: torch.dtype
) -> None:
    """Numbers that would be cast to something else."""
    why = refused(slots, change_weights(directory, {UP: torch.zeros(32, 4).to(dtype)}))

    assert str(dtype) in why


@pytest.mark.parametrize(
    ("key", "shape"), [(DOWN, (3, 48)), (DOWN, (4, 47)), (DOWN, (48, 4)), (DOWN, (4, 48, 1)), (UP, (32, 5)), (UP, (0,))]
)
def test_a_wrong_shape_is_refused_and_named(
    slots: PeftAdapters, directory: Path, key: str, shape: tuple[int, ...]
) -> None:
    """Of either factor, in either dimension."""
    why = refused(slots, change_weights(directory, {key: torch.zeros(shape)}))

    assert why.startswith(f"{key} has shape {shape}, the model and the rank want")


def test_a_rank_that_disagrees_with_the_tensors_is_refused(slots: PeftAdapters, directory: Path) -> None:
    """The configuration says 2, the tensors are of rank 4."""
    assert "has shape (4, " in refused(slots, change_config(directory, r=2))


def test_a_rank_larger_than_the_slots_is_refused(slots: PeftAdapters, tmp_path: Path) -> None:
    """Slots are allocated once."""
    wide = peft_directory(tmp_path / "wide", seed=1, rank=SLOT_RANK + 1)

    assert "its rank is 9, the slots have rank 8" in refused(slots, wide)


@pytest.mark.parametrize("target", ["k_proj", "lm_head", "no_such_module"])
def test_a_target_without_slots_is_refused(slots: PeftAdapters, directory: Path, target: str) -> None:
    """Whether the model has it or not."""
    why = refused(slots, change_config(directory, target_modules=["q_proj", "down_proj", target]))

    assert f"its target {target} has no slots" in why


def test_a_tensor_of_a_module_without_slots_is_refused(slots: PeftAdapters, directory: Path) -> None:
    """It is not left out in silence."""
    key = peft_key("model.layers.0.self_attn.k_proj", "A")

    assert "k_proj has no slots" in refused(slots, change_weights(directory, {key: torch.zeros(4, 32)}))


@pytest.mark.parametrize(
    "key",
    [
        "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias",
        "base_model.model.lm_head.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "x",
    ],
)
def test_an_extra_key_is_refused(slots: PeftAdapters, directory: Path, key: str) -> None:
    """DoRA vectors, biases, full modules, names of other tools."""
    why = refused(slots, change_weights(directory, {key: torch.zeros(4)}))

    assert why == f"{key!r} is no tensor of a plain LoRA adapter; it would be left out"


def test_a_missing_partner_is_refused(slots: PeftAdapters, directory: Path) -> None:
    """A without B."""
    assert "lora_A or lora_B is missing for model.layers.0.mlp.down_proj" in refused(
        slots, change_weights(directory, {UP: None})
    )


def test_a_file_that_lacks_a_targeted_module_is_refused(slots: PeftAdapters, directory: Path) -> None:
    """PEFT would warn and go on with a module that does nothing."""
    why = refused(slots, change_weights(directory, {UP: None, DOWN: None}))

    assert why == "the file lacks model.layers.0.mlp.down_proj, which its configuration targets"


def test_a_file_that_holds_a_module_it_does_not_target_is_refused(slots: PeftAdapters, directory: Path) -> None:
    """PEFT would drop it."""
    why = refused(slots, change_config(directory, target_modules=["q_proj"]))

    assert why.startswith("the file holds model.layers.0.mlp.down_proj")


def test_a_directory_that_changed_after_its_registration_fails_when_it_is_prepared(directory: Path) -> None:
    """What is read then is compared with what was registered, before it is parsed."""
    slots = host()
    slots.registry.register("a", path=directory)
    (directory / WEIGHTS).write_bytes(b"")

    with pytest.raises(AdapterError, match=r"adapter_model\.safetensors has changed since it was registered"):
        slots.prepare(slots.desired()["a"])
