"""How an engine can be asked what it really holds: by checksums, or by what it answers. Both are optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from states.engine_memory import BASE_ONLY

__all__ = ["BASE_ONLY", "AnswersChecksums", "AnswersGreedily"]


@runtime_checkable
class AnswersChecksums(Protocol):
    """An engine that can hash the bytes it serves."""

    def checksums(self, group: str) -> Mapping[str, str] | None:
        """SHA-256 of each tensor of a content group, as it lies in the engine.

        Args:
            group: ``adapter/NAME`` or a base group.

        Returns:
            Tensor name (of an adapter its PEFT name, of the base the trainer's) to the hex digest of its contiguous
            bytes in the dtype it was sent in; None where the engine cannot say.

        Raises:
            EngineError: it could not be asked.
        """


@runtime_checkable
class AnswersGreedily(Protocol):
    """An engine that can be asked for tokens right after a commit, also while it is fenced by the controller."""

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        """The most probable continuation of each prompt: no sampling, no penalties, no stop at an end-of-text token.

        Args:
            adapter: a name, or :data:`BASE_ONLY`.
            prompts: token ids, one sequence a prompt.
            max_new_tokens: how many new tokens each prompt gets, neither more nor less.

        Returns:
            The new token ids of each prompt, in the order of the prompts.

        Raises:
            EngineError: it could not be asked, or cannot serve (a tag is released).
        """
