"""Rewards that can be learned from token ids alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ResidueReward:
    """A sampled token is worth 1 when its id has a given residue, else 0. A random policy gets 1 / *classes*.

    Attributes:
        residue: the residue that is rewarded, below *classes*.
        classes: the modulus.
    """

    residue: int
    classes: int

    def of(self, tokens: Tensor) -> Tensor:
        """The reward of each token.

        Args:
            tokens: int64, any shape.

        Returns:
            float32 of the same shape, 0 or 1.
        """
        return (tokens % self.classes == self.residue).float()


def advantages(rewards: Tensor) -> Tensor:
    """Rewards against their mean over the batch as baseline, in units of their standard deviation.

    A token's reward depends on that token alone, so later rewards are not credited to it (discount 0).

    Args:
        rewards: float32 ``[batch, new]``.
    """
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)
