"""A base that a server loaded by itself, and the proof that it is the trainer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lifecycle.errors import ConfigError
from states.engine_memory import is_adapter


@dataclass(frozen=True, slots=True)
class HeldBase:
    """What a server must answer before it counts as holding the trainer's base.

    The server is asked at each start of it. What it was pushed it says itself; its base came from its own files.

    Attributes:
        versions: content group of the base (``frozen-base``, ``buffers``) to the trainer's version of it.
        prompts: token ids, one sequence a prompt.
        tokens: the trainer's own greedy tokens for each prompt, without any adapter, all of one length.

    Raises:
        ConfigError: it proves nothing, or names an adapter.
    """

    versions: Mapping[str, int]
    prompts: Sequence[Sequence[int]]
    tokens: Sequence[Sequence[int]]

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
