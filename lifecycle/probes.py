"""Greedy probes: the tokens that the trainer itself gives for a version, to compare an engine's with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lifecycle.errors import ConfigError
from states import ADAPTER_PREFIX, FROZEN_BASE

Tokens = tuple[tuple[int, ...], ...]
"""New token ids, one sequence a prompt."""

Generate = Callable[[str, Sequence[Sequence[int]], int], Iterable[Iterable[int]]]
"""Adapter name or ``BASE_ONLY``, prompts and how many new tokens, to the new token ids of each prompt."""


@dataclass(frozen=True, slots=True)
class GreedyProbe:
    """What is asked of the trainer for each version, and of each engine after a push whose bytes it cannot hash.

    Attributes:
        prompts: token ids, one sequence a prompt; a few, of a few tokens each, say enough.
        max_new_tokens: how many tokens are generated for each.
        min_agreement: the share of an answer's leading tokens that must be the trainer's, over all prompts together.
            1 where trainer and engine compute in float32; less where both round (bf16 on a GPU).
        generate: gives the trainer's own tokens, greedily and all of them, also after an end-of-text token; None for a
            causal language model of transformers, which the controller asks itself. It is called awake, in eval
            mode and without gradients.

    Raises:
        ConfigError: no prompts, an empty one, or a number that cannot be.
    """

    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int = 8
    min_agreement: float = 1.0
    generate: Generate | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        try:
            prompts = tuple(tuple(int(token) for token in prompt) for prompt in self.prompts)
        except (TypeError, ValueError) as error:
            raise ConfigError("prompts of a probe are sequences of token ids; give numbers, not text") from error
        if not prompts or not all(prompts):
            raise ConfigError("a probe needs at least one prompt, and no empty one")
        if not _is_whole(self.max_new_tokens) or self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens of a probe is {self.max_new_tokens!r}; use a whole number from 1")
        if not isinstance(self.min_agreement, int | float) or not 0 < self.min_agreement <= 1:
            raise ConfigError(f"min_agreement of a probe is {self.min_agreement!r}; use a share above 0, at most 1")
        if self.generate is not None and not callable(self.generate):
            raise ConfigError(f"generate of a probe is {self.generate!r}; give a function, or None")
        object.__setattr__(self, "prompts", prompts)

    def difference(self, wanted: Tokens, given: Tokens) -> tuple[int, int] | None:
        """The first prompt and token at which an answer differs, if it agrees less than it has to; else None."""
        lengths = [_agreeing(one, other) for one, other in zip(wanted, given, strict=False)]
        lengths += [0] * (len(wanted) - len(lengths))
        if sum(lengths) >= self.min_agreement * sum(map(len, wanted)) and len(given) == len(wanted):
            return None
        return next((at, length) for at, length in enumerate(lengths) if length < len(wanted[at]))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _agreeing(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def as_tokens(given: Iterable[Iterable[Any]], count: int) -> Tokens:
    """What somebody generated, as token ids.

    Raises:
        ValueError: it is not one sequence of whole numbers for each of *count* prompts.
    """
    found = tuple(tuple(int(token) for token in one) for one in given)
    if len(found) != count:
        raise ValueError(f"{len(found)} answers were given to {count} prompts")
    return found


@dataclass(frozen=True, slots=True)
class Recorded:
    """The tokens of one version.

    Attributes:
        tokens: what the trainer gave.
        base: what they depend on besides: the base's content group to its version, a digest for buffers.
    """

    tokens: Tokens
    base: Mapping[str, object]


@dataclass
class ProbeBook:
    """Recorded tokens by content group and version. The base's own stand under the frozen base, or what there is.

    Attributes:
        probe: what is recorded, None where nothing is.
        failed: versions of which nothing could be recorded, and why.
        buffers: the version of the mutable buffers when they were last read, and their digest then.
    """

    probe: GreedyProbe | None = None
    held: dict[tuple[str, int], Recorded] = field(default_factory=dict)
    failed: dict[tuple[str, int], str] = field(default_factory=dict)
    buffers: tuple[int, str] = (0, "")

    def lacks(self, group: str, version: int, base: Mapping[str, object]) -> bool:
        """Whether this version is still to be recorded, on this base."""
        known = self.held.get((group, version))
        return (group, version) not in self.failed and (known is None or known.base != base)

    def forget(self, wanted: Mapping[str, int]) -> None:
        """Drop what is recorded of versions that are not the newest any more."""
        for key in [key for key in self.held if wanted.get(key[0]) != key[1]]:
            del self.held[key]
        for key in [key for key in self.failed if wanted.get(key[0]) != key[1]]:
            del self.failed[key]


def base_group(groups: Collection[str]) -> str:
    """Under which content group the tokens of the base alone are recorded."""
    return FROZEN_BASE if FROZEN_BASE in groups else next(one for one in groups if not one.startswith(ADAPTER_PREFIX))


def greedy(model: nn.Module, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Tokens:
    """The most probable continuation of each prompt, one forward pass a token, nothing cached.

    Not ``generate()``: that follows the model's generation settings (stop tokens, penalties), and an engine does not.

    Args:
        model: a causal language model; its forward gives an object with ``logits`` ``[batch, tokens, vocabulary]``.
        prompts: token ids.
        max_new_tokens: how many for each.
    """
    device = next(model.parameters()).device
    found = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)], dtype=torch.int64, device=device)
        for _ in range(max_new_tokens):
            logits = model(input_ids=ids, use_cache=False).logits[:, -1]
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
        found.append(tuple(ids[0, len(prompt) :].tolist()))
    return tuple(found)
