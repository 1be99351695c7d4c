"""The policy gradient: log-probabilities of sampled tokens, and the loss that a rollout gives."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lifecycle.demo.options import Training
from lifecycle.engines.sampling import token_logprobs


def policy_logprobs(model: nn.Module, prompts: Tensor, tokens: Tensor) -> Tensor:
    """The trainer's own log-probabilities of tokens that an engine sampled at temperature 1.

    Args:
        model: a causal language model, awake.
        prompts: int64 ``[batch, tokens]``.
        tokens: int64 ``[batch, new]``.

    Returns:
        float32 ``[batch, new]``.
    """
    logits = model(input_ids=torch.cat([prompts, tokens], dim=1), use_cache=False).logits
    return token_logprobs(logits[:, prompts.shape[1] - 1 : -1], tokens, 1.0)


def policy_loss(now: Tensor, sampled: Tensor, advantage: Tensor, ref: Tensor | None, training: Training) -> Tensor:
    """REINFORCE with a baseline, on a rollout that is used for several steps.

    Args:
        now: log-probabilities under the policy that trains, with gradient, ``[batch, new]``.
        sampled: the engine's, of the policy that sampled, same shape.
        advantage: same shape.
        ref: the ref model's, same shape, or None.
        training: clipping and the weight of the divergence.

    Returns:
        A scalar: the clipped objective, plus the weighted divergence from the ref model.
    """
    ratio = torch.exp(now - sampled)
    clipped = ratio.clamp(1 - training.clip, 1 + training.clip)
    loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    if ref is None:
        return loss
    return loss + training.kl_weight * divergence(now, ref).mean()


def divergence(now: Tensor, ref: Tensor) -> Tensor:
    """An estimate of KL(policy, ref) for each sampled token: never negative, and exact on average."""
    towards = ref - now
    return torch.exp(towards) - towards - 1
