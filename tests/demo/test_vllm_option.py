"""The demo on a vLLM server, as far as it needs none: its options, the model that it writes, how it takes rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from lifecycle.cli.app import app
from lifecycle.demo.model import load_directory, tiny_llama
from lifecycle.demo.options import DemoOptions
from lifecycle.demo.served import TOKEN_VARIABLE, Sampling, vllm_engine
from lifecycle.engines.vllm import Completions
from lifecycle.errors import ConfigError


@pytest.mark.parametrize("options", [{"engine": "vllm"}, {"engine_url": "http://x"}, {"engine": "sg"}])
def test_an_engine_and_its_address_belong_together(options: dict[str, Any]) -> None:
    """Refused before anything is built."""
    with pytest.raises(ConfigError, match="--engine"):
        DemoOptions(**options)


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a command line everybody could read it."""
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    engine = vllm_engine(DemoOptions(engine="vllm", engine_url="http://127.0.0.1:1"))

    assert engine._http._headers == {"authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(engine)


def test_credentials_of_the_address_are_not_shown() -> None:
    """Options are printed by whoever looks for a fault."""
    options = DemoOptions(engine="vllm", engine_url="http://user:s3cret@127.0.0.1:1")

    assert "s3cret" not in f"{options!r} {vllm_engine(options)!r}"


def test_the_model_is_written_for_a_server_to_load(tmp_path: Path) -> None:
    """The same weights as those that the demo trains; what is there already is not overwritten."""
    directory = tmp_path / "model"
    first = CliRunner().invoke(app, ["demo", "--write-model", str(directory), "--seed", "3"])
    second = CliRunner().invoke(app, ["demo", "--write-model", str(directory)])
    read, own = load_directory(directory, 0).trainer().state_dict(), tiny_llama(3).trainer().state_dict()

    assert (first.exit_code, second.exit_code) == (0, 2)
    assert "is not empty" in second.output
    assert all(torch.equal(read[name], one) for name, one in own.items())


def test_rollouts_of_a_server_are_tensors_of_the_demo() -> None:
    """Same shapes and dtypes as of the engine in the process; every token is asked for, and its log-probability."""

    class Engine:
        asked: Any = None

        def generate(self, prompts: Any, adapter: str, **how: Any) -> Completions:
            self.asked = prompts, adapter, how
            return Completions(((5, 6), (7, 8)), ((-0.5, -1.0), (-1.5, -2.0)), ("length",) * 2, adapter, {"a": 1}, "i")

    engine: Any = Engine()
    found = Sampling(engine).generate(torch.tensor([[1], [2]]), "a", max_new_tokens=2, seed=9, expected={"a": 1})

    assert found.tokens.tolist() == [[5, 6], [7, 8]]
    assert found.logprobs.tolist() == [[-0.5, -1.0], [-1.5, -2.0]]
    assert (found.adapter, found.versions, found.instance_id) == ("a", {"a": 1}, "i")
    assert engine.asked == (
        [[1], [2]],
        "a",
        {"max_new_tokens": 2, "expected": {"a": 1}, "logprobs": True, "stops_at_end": False},
    )
