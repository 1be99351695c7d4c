"""A base that a server loaded by itself, and the proof that it is the trainer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lifecycle.errors import ConfigError
from lifecycle.weights.digests import digest
from lifecycle.weights.leases import WeightLease
from states import Facts
from states.engine_memory import is_adapter


class LendsWeights(Protocol):
    """What is needed of the controller."""

    def facts(self) -> Facts:
        """Where everything stands."""

    def weights(self, holder: str, *, groups: Sequence[str] | None = None) -> WeightLease:
        """A lease over content groups."""


@dataclass(frozen=True, slots=True)
class HeldBase:
    """What a server must answer before it counts as holding the trainer's base.

    The server is asked at each start of it. What it was pushed it says itself; its base came from its own files.

    Attributes:
        versions: content group of the base (``frozen-base``, ``buffers``) to the trainer's version of it.
        prompts: token ids, one sequence a prompt.
        tokens: the trainer's own greedy tokens for each prompt, without any adapter, all of one length.
        digests: content group to :func:`~lifecycle.weights.digests.digest` of its tensors. A group that the trainer
            gives a new version although its bytes are the same (buffers, at every step) need not be sent then.

    Raises:
        ConfigError: it proves nothing, or names an adapter.
    """

    versions: Mapping[str, int]
    prompts: Sequence[Sequence[int]]
    tokens: Sequence[Sequence[int]]
    digests: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what can be checked without a server."""
        lengths = {len(one) for one in self.tokens}
        if not self.prompts or len(self.prompts) != len(self.tokens) or len(lengths) != 1 or 0 in lengths:
            raise ConfigError(
                "a held base is proven by tokens: give at least one prompt, and as many tokens for each of them"
            )
        adapters = sorted(filter(is_adapter, self.versions))
        if adapters or not self.versions:
            raise ConfigError(f"a held base is of base groups, these are {', '.join(adapters) or 'none'}; name those")

    @property
    def new_tokens(self) -> int:
        """How many tokens each prompt gets."""
        return len(self.tokens[0])

    def differing(self, answered: Sequence[Sequence[int]]) -> str:
        """Where an answer is another one, empty where it is the same."""
        for index, (wanted, found) in enumerate(zip(self.tokens, answered, strict=True)):
            if list(wanted) != list(found):
                return f"prompt {index} gives {list(found)}, the trainer's own base gives {list(wanted)}"
        return ""


def held_base(trainer: LendsWeights, prompts: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> HeldBase:
    """The trainer's base of this moment, as a server should hold it. Reads all of it once, for its digests.

    Args:
        trainer: the controller.
        prompts: token ids, one sequence a prompt.
        tokens: the trainer's own greedy tokens for each, without any adapter.

    Raises:
        ConfigError: the tokens prove nothing.
    """
    found = {one.group: one.version for one in trainer.facts().contents if not is_adapter(one.group)}
    digests = {}
    for group in found:
        with trainer.weights("what a server should hold", groups=[group]) as lease:
            digests[group] = digest(lease)
    return HeldBase(found, prompts, tokens, digests)
