"""The model that several suites build: a Llama of two layers with random weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import LlamaConfig, LlamaForCausalLM


def llama(seed: int = 0, *, tied: bool = False) -> nn.Module:
    """A Llama of two layers with random weights, float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).eval()


def step_rounding(optimizer: Optimizer, parameters: Mapping[str, Tensor], mains: Mapping[str, Tensor]) -> None:
    """Step as Megatron does it: gradients go to the main copies, the optimizer steps those, parameters are rounded."""
    pairs = [(one, mains[name]) for name, one in parameters.items() if name in mains]
    for parameter, main in pairs:
        assert parameter.grad is not None
        main.grad = parameter.grad.float()
    optimizer.step()
    with torch.no_grad():
        for parameter, main in pairs:
            parameter.copy_(main)
