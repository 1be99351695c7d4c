"""Sampling tokens from a causal language model, with the log-probabilities they were sampled with."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache


@dataclass(frozen=True, slots=True)
class Rollout:
    """What an engine generated, stamped with what it was generated from.

    Attributes:
        tokens: int64 ``[batch, new]``, the sampled tokens.
        logprobs: float32 ``[batch, new]``, log-probability of each under the distribution it was drawn
            from (after temperature); at temperature 0 under the model's own distribution.
        adapter: the adapter that was applied.
        versions: content group to version, of everything the tokens depend on.
        instance_id: the engine instance.
    """

    tokens: Tensor = field(repr=False)
    logprobs: Tensor = field(repr=False)
    adapter: str
    versions: Mapping[str, int]
    instance_id: str


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Log-probability of each token, float32.

    Args:
        logits: ``[..., vocabulary]``, any float dtype.
        tokens: int64 ``[...]``.
        temperature: divides the logits; 0 leaves them as they are.
    """
    scaled = logits.float() / (temperature or 1.0)
    return torch.log_softmax(scaled, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def cache_argument(model: nn.Module) -> str:
    """The name under which this version of transformers takes a key/value cache."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


@torch.no_grad()
def sample(
    model: nn.Module,
    prompts: Tensor,
    cache: Cache,
    held_tokens: int,
    *,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator | None,
    within: tuple[int, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample *max_new_tokens* tokens for each prompt, one forward pass a token.

    Args:
        model: a causal language model; its forward gives an object with ``logits``.
        prompts: int64 ``[batch, tokens]``.
        cache: holds the first *held_tokens* of the prompts; is filled on.
        held_tokens: how many prompt tokens need no forward pass.
        max_new_tokens: at least 1.
        temperature: 0 takes the most probable token.
        generator: of the random numbers; None takes torch's own.
        within: the number of the first prompt in a larger batch, and how many prompts that has: each prompt then gets
            the random numbers that it gets there from an equal generator. None: these prompts are the batch.

    Returns:
        tokens and log-probabilities as in :class:`Rollout`.
    """
    name = cache_argument(model)
    step = prompts[:, held_tokens:]
    tokens, logprobs = [], []
    for _ in range(max_new_tokens):
        logits = model(input_ids=step, use_cache=True, logits_to_keep=1, **{name: cache}).logits[:, -1].float()
        step = _draw(logits, temperature, generator, within)
        tokens.append(step)
        logprobs.append(token_logprobs(logits, step.squeeze(-1), temperature).unsqueeze(-1))
    return torch.cat(tokens, dim=1), torch.cat(logprobs, dim=1)


def _draw(
    logits: Tensor, temperature: float, generator: torch.Generator | None, within: tuple[int, int] | None
) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    if within is None:
        return torch.multinomial(probabilities, 1, generator=generator)
    first, rows = within
    # What multinomial does for one draw, with the whole batch's random numbers.
    noise = probabilities.new_empty(rows, probabilities.shape[-1]).exponential_(generator=generator)
    return (probabilities / noise[first : first + len(probabilities)]).argmax(dim=-1, keepdim=True)
