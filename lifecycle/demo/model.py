"""The model that the demo trains: a small Llama with random weights, or any causal language model in a directory."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from lifecycle.demo.model_files import check_model_files
from lifecycle.errors import ConfigError
from lifecycle.private import make_folder
from lifecycle.wording import first_line

_TINY: Final = {
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.06,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True)
class DemoModel:
    """A base model, twice: for the trainer with its weights, for the engine with none of them.

    Attributes:
        trainer: makes the model that trains, float32, on the host.
        engine: makes the same architecture with other random weights: what it serves must have been pushed.
        vocabulary: number of token ids.
        target_modules: suffixes of the linear modules that adapters apply to.
        kv_bytes: bytes of keys and values that one token of one prompt takes, in float32.
    """

    trainer: Callable[[], nn.Module]
    engine: Callable[[], nn.Module]
    vocabulary: int
    target_modules: tuple[str, ...]
    kv_bytes: int


def tiny_llama(seed: int) -> DemoModel:
    """A Llama of about 12 MiB. Needs no network, no file and no tokenizer.

    Args:
        seed: of its weights; the engine's own weights come from the seed after it.
    """
    config = LlamaConfig(**_TINY)
    return _described(
        lambda: _seeded(LlamaForCausalLM, config, seed), lambda: _seeded(LlamaForCausalLM, config, seed + 1)
    )


def write_tiny_llama(directory: Path, seed: int) -> None:
    """Write the small Llama as a Hugging Face directory, which a server loads and :func:`load_directory` reads.

    Args:
        directory: made if it is not there; must be empty.
        seed: of its weights.

    Raises:
        ConfigError: it holds something already, or cannot be written.
    """
    try:
        make_folder(directory)
        if any(directory.iterdir()):
            raise ConfigError(f"--write-model {directory} is not empty; name a new directory")
        tiny_llama(seed).trainer().save_pretrained(directory)  # type: ignore[operator]
    except OSError as error:
        raise ConfigError(f"--write-model {directory} cannot be written: {error.strerror}") from error


def load_directory(directory: Path, seed: int) -> DemoModel:
    """A Hugging Face causal language model from local safetensors files, in float32.

    Args:
        directory: holds ``config.json`` and weights.
        seed: of the engine's own weights.

    Raises:
        ConfigError: it is no such directory, or cannot be read.
    """
    check_model_files(directory)

    def load() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that the demo does not need, such as a tokenizer
            model: nn.Module = AutoModelForCausalLM.from_pretrained(
                directory, local_files_only=True, use_safetensors=True, dtype=torch.float32, trust_remote_code=False
            )
        return model

    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        return _described(load, lambda: _seeded(AutoModelForCausalLM.from_config, config, seed + 1))
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"--model {directory} cannot be read as a causal language model: {first_line(error)}"
        ) from error


def _seeded(build: Callable[..., Any], config: Any, seed: int) -> nn.Module:
    """Build with weights from *seed*, leaving torch's own generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = build(config).to(torch.float32)
    return model


def _described(trainer: Callable[[], nn.Module], engine: Callable[[], nn.Module]) -> DemoModel:
    """Read off a model what the rest of the demo needs to know. It is kept for the first caller."""
    model = trainer()
    targets = _linear_names(model)
    if not targets:
        raise ConfigError("the model has no linear modules inside its layers, so adapters have nothing to apply to")
    config: Any = model.config.get_text_config()  # type: ignore[operator,union-attr]
    made = [model]
    return DemoModel(
        trainer=lambda: made.pop() if made else trainer(),
        engine=engine,
        vocabulary=int(config.vocab_size),
        target_modules=targets,
        kv_bytes=_kv_bytes(config),
    )


def _linear_names(model: nn.Module) -> tuple[str, ...]:
    """Suffixes of all linear modules but the output layer."""
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    found = {name for name, one in model.named_modules() if isinstance(one, nn.Linear) and one is not head}
    return tuple(sorted({name.rsplit(".", 1)[-1] for name in found}))


def _kv_bytes(config: Any) -> int:
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * 4 * int(config.num_hidden_layers) * int(heads) * int(width)


def adapter_rank(directory: Path) -> int:
    """The LoRA rank that a PEFT directory names, 0 when it names none (whoever loads it will say why).

    Args:
        directory: holds ``adapter_config.json``.
    """
    try:
        rank = json.loads((directory / "adapter_config.json").read_text(encoding="utf-8")).get("r", 0)
    except (OSError, ValueError, AttributeError):
        return 0
    return rank if isinstance(rank, int) and rank > 0 else 0
