"""What a server answers, and how a request is put so that nothing of its own defaults is in the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lifecycle.errors import EngineError


@dataclass(frozen=True, slots=True)
class Completions:
    """What a server generated, stamped with what it was generated from.

    Attributes:
        tokens: the new token ids of each prompt.
        logprobs: the log-probability of each under the model's own distribution, before temperature. Empty where they
            were not asked for.
        finished: why each ended: ``length``, ``stop`` or ``abort``.
        adapter: the adapter that was applied.
        versions: content group to version, of everything the tokens depend on.
        instance_id: the instance that answered.
    """

    tokens: tuple[tuple[int, ...], ...] = field(repr=False)
    logprobs: tuple[tuple[float, ...], ...] = field(repr=False)
    finished: tuple[str, ...]
    adapter: str
    versions: Mapping[str, int]
    instance_id: str


def completions(
    choices: Sequence[Mapping[str, Any]], adapter: str, versions: Mapping[str, int], instance_id: str
) -> Completions:
    """What the server's choices say."""
    return Completions(
        tokens=tokens_of(choices),
        logprobs=tuple(tuple((one.get("logprobs") or {}).get("token_logprobs") or ()) for one in choices),
        finished=tuple(str(one.get("finish_reason")) for one in choices),
        adapter=adapter,
        versions=versions,
        instance_id=instance_id,
    )


def tokens_of(choices: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, ...], ...]:
    """The token ids of each choice."""
    return tuple(tuple(one["token_ids"]) for one in choices)


def sampling(*, temperature: float, seed: int | None, logprobs: bool, stops_at_end: bool) -> dict[str, Any]:
    """The fields of a request that samples."""
    asked: dict[str, Any] = {"temperature": temperature, "ignore_eos": not stops_at_end}
    if seed is not None:
        asked["seed"] = seed
    if logprobs:
        asked |= {"logprobs": 0, "return_tokens_as_token_ids": True}
    return asked


def need_prompts(engine: str, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float) -> None:
    """Refuse what is no request.

    Raises:
        EngineError: no prompts, an empty one, or a number that cannot be.
    """
    if not prompts or not all(len(one) for one in prompts):
        raise EngineError(engine, "prompts are token ids, one sequence each, none of them empty; give at least one")
    if max_new_tokens < 1 or temperature < 0:
        raise EngineError(engine, "max_new_tokens must be at least 1, temperature not negative")
