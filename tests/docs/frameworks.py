"""What a page runs with where it embeds the controller in somebody else's trainer: TRL's GRPOTrainer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from lifecycle import TrainerLifecycle, TrainerState
from lifecycle.engines.vllm import VllmEngine, held_base
from lifecycle.probes import greedy
from tests.docs.servers import vllm_over

WORDS: Final = 126
STEPS: Final = 2
PROMPTS: Final = ("t1 t15 t27 t4", "t1 t99 t3")
SETTINGS: Final = {
    "output_dir": "out",
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "disable_tqdm": True,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_completion_length": 6,
    "max_steps": STEPS,
}


def words() -> PreTrainedTokenizerFast:
    """A tokenizer of 128 words, as many as the model has ids."""
    pad, end = "<pad>", "<eos>"
    ids = {f"t{one}": one for one in range(WORDS)} | {pad: WORDS, end: WORDS + 1}
    plain = Tokenizer(models.WordLevel(ids, unk_token=pad))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token=pad, eos_token=end)


def served(trainer: TrainerLifecycle, model: nn.Module) -> VllmEngine:
    """A vLLM server over a model that is the trainer's base, and has proven that it is."""
    engine = vllm_over(model)("rollout", "http://127.0.0.1:8000")
    engine.resume(("weights", "kv_cache"))
    prompts = [[1, 15, 27, 4], [1, 99, 3]]
    with torch.no_grad():
        tokens = greedy(model, prompts, 8)
    engine.hold_base(held_base(trainer, prompts, tokens))
    return engine


def grpo_names(names: Mapping[str, Any], model: nn.Module) -> Iterator[dict[str, Any]]:
    """Around one block that trains with TRL: *names* are a trainer of that *model* with the adapter ``math``.

    Each optimizer step has two micro-batches; before each there is one rollout, while the trainer is offloaded.
    """
    trainer: TrainerLifecycle = names["trainer"]
    mine = {
        "engine": served(trainer, model),
        "tokenizer": words(),
        "dataset": Dataset.from_dict({"prompt": list(PROMPTS)}),
        "reward": lambda completions, **_: [float(at % 4) for at in range(len(completions))],
        "settings": SETTINGS,
    }
    weights = trainer.weights("the test").materialise()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # TRL's, of names that transformers gives up one day
        yield dict(names) | mine
    assert trainer.state is TrainerState.AWAKE
    taken = trainer.tally.moved
    assert taken["offload", "offloads-to-cpu"] == taken["update_weights", "sends"] == STEPS
    assert (taken["begin_step", "opens"], taken["trained", "commits"]) == (2 * STEPS + 1, STEPS + 1)
    now = trainer.weights("the test").materialise()
    changed = {name for name, one in now.items() if not torch.equal(one, weights[name])}
    assert changed, "nothing was trained"
    assert all("lora_" in name for name in changed)
    assert Path("runs/math/step_2").is_dir()
