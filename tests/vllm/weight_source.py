"""Runs where vLLM is installed: a lease as vLLM's own ``WeightSource``, read twice, from an offloaded trainer."""

from __future__ import annotations

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm.distributed.weight_transfer.base import WeightSource, layerwise_groups

from lifecycle import HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.engines.vllm.source import weight_source


def main() -> None:
    """Print what was found as one JSON object."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    wanted = {name: one.detach().clone() for name, one in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters())
    arena = HostArena()
    trainer = TrainerLifecycle(
        LifecycleConfig(offload_target="cpu", lora=False), saver=arena, model=model, optimizer=optimizer, adapters=None,
        initial_state=TrainerState.AWAKE,
    )  # fmt: skip
    trainer.sleep(offload=True)
    held = arena.usage().host_bytes
    with trainer.weights("push", groups=["trainable-base"]) as lease:
        source = weight_source(lease)
        first = [(names, [one.clone() for one in tensors]) for names, tensors in source.iter_groups()]
        passes = [{name: one.data_ptr() for name, one in source} for _ in range(2)]
        told = {
            "is_vllms": isinstance(source, WeightSource),
            "state": str(trainer.state),
            "groups_are_vllms": [names for names, _ in first] == layerwise_groups(list(wanted)),
            "metadata": [[one.name, str(one.dtype), list(one.shape)] for one in source.metadata()],
            "wanted": [[name, str(one.dtype), list(one.shape)] for name, one in wanted.items()],
            "bytes_are_equal": all(
                torch.equal(one, wanted[name]) for names, ones in first for name, one in zip(names, ones, strict=True)
            ),
            "same_memory_each_pass": passes[0] == passes[1],
            "copied_bytes": arena.usage().host_bytes - held,
        }
    trainer.wake_up()
    arena.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
