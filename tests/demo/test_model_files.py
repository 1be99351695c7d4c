"""A model directory is data: nothing in it is run, and nothing but its own safetensors is read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lifecycle.demo.model import load_directory, tiny_llama
from lifecycle.errors import ConfigError

RAN: list[str] = []


def _run() -> None:
    RAN.append("code of the file")


class _Bomb:
    """Notes that it was read from a pickle."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _run, ()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A saved model."""
    tiny_llama(3).trainer().save_pretrained(tmp_path)  # type: ignore[operator]
    return tmp_path


def _config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _index(directory: Path, weight_map: object) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def _pickle_only(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb()))


def _good_pickle_only(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    torch.save(tiny_llama(3).trainer().state_dict(), directory / "pytorch_model.bin")


def _index_to_a_pickle(directory: Path) -> None:
    weights = tiny_llama(3).trainer().state_dict()
    (directory / "model.safetensors").rename(directory / "decoy.safetensors")
    torch.save(weights, directory / "part.bin")
    _index(directory, dict.fromkeys(weights, "part.bin"))


def _index_to_elsewhere(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "decoy.safetensors")
    _index(directory, {"lm_head.weight": "../other.safetensors"})


def _config_to_elsewhere(directory: Path) -> None:
    _config(directory, transformers_weights="../other.safetensors")


def _adapter(directory: Path) -> None:
    (directory / "adapter_config.json").write_text('{"base_model_name_or_path": "somewhere/else"}')


def _code(directory: Path) -> None:
    (directory / "modeling_own.py").write_text("raise SystemExit('code of the directory')\n")
    _config(directory, model_type="own", auto_map={"AutoModelForCausalLM": "modeling_own.Own"})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_pickle_only, "no *.safetensors file"),
        (_good_pickle_only, "no *.safetensors file"),
        (_index_to_a_pickle, "names 'part.bin'"),
        (_index_to_elsewhere, "names '../other.safetensors'"),
        (_config_to_elsewhere, "names '../other.safetensors'"),
        (lambda directory: _index(directory, None), "without a weight_map"),
        (lambda directory: (directory / "model.safetensors.index.json").write_text("{"), "an unreadable model"),
        (lambda directory: (directory / "config.json").write_text("[]"), "no JSON object"),
        (_adapter, "is an adapter"),
        (_code, "cannot be read as a causal language model"),
    ],
)
def test_a_directory_that_would_be_more_than_data_is_refused(
    directory: Path, make: Callable[[Path], object], why: str
) -> None:
    """One line that names the option and the reason; nothing of the directory was run."""
    make(directory)
    with pytest.raises(ConfigError, match=r"^--model ") as error:
        load_directory(directory, seed=0)

    assert why in str(error.value)
    assert "\n" not in str(error.value)
    assert RAN == []


def test_a_model_in_parts_is_read(tmp_path: Path) -> None:
    """The control: an index that names safetensors beside it is a model like any other."""
    saved = tiny_llama(3).trainer()
    saved.save_pretrained(tmp_path, max_shard_size="4MB")  # type: ignore[operator]
    loaded = load_directory(tmp_path, seed=0).trainer()

    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in saved.state_dict().items())


def test_a_pickle_beside_safetensors_is_not_opened(directory: Path) -> None:
    """Many directories hold both; the pickle does run code, were it read."""
    bomb = directory / "pytorch_model.bin"
    bomb.write_bytes(pickle.dumps(_Bomb()))
    load_directory(directory, seed=0)

    assert RAN == []
    pickle.loads(bomb.read_bytes())  # noqa: S301 - our own, made above
    assert RAN.pop() == "code of the file"
