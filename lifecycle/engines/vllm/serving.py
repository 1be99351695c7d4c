"""What a server answers, and how a request is put so that nothing of its own defaults is in the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from lifecycle.errors import EngineError, EngineUnanswered


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


class InFlight:
    """Requests of this client that are under way.

    The server knows of a request only once it has arrived. One that arrives while it is paused waits there, and is
    answered by whatever is served afterwards: so a pause waits for those that were sent, not only for those that run.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """One request, for as long as it is not answered."""
        with self._changed:
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def left(self, timeout_s: float) -> int:
        """How many are not answered after this time; returns as soon as there are none."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count, timeout_s)
            return self._count


def completions(
    engine: str,
    choices: Sequence[Mapping[str, Any]],
    adapter: str,
    versions: Mapping[str, int],
    instance_id: str,
    *,
    logprobs: bool,
) -> Completions:
    """What the server's choices say.

    Raises:
        EngineUnanswered: log-probabilities were asked for, and there is not one for each token.
    """
    return Completions(
        tokens=tokens_of(choices),
        logprobs=tuple(_logprobs(engine, one) if logprobs else () for one in choices),
        finished=tuple(str(one.get("finish_reason")) for one in choices),
        adapter=adapter,
        versions=versions,
        instance_id=instance_id,
    )


def _logprobs(engine: str, choice: Mapping[str, Any]) -> tuple[float, ...]:
    told = choice.get("logprobs")
    found = (told.get("token_logprobs") if isinstance(told, dict) else None) or []
    if len(found) != len(choice["token_ids"]) or not all(isinstance(one, int | float) for one in found):
        why = f"it gave {len(found)} log-probabilities to {len(choice['token_ids'])} tokens; vLLM 0.32 gives one each"
        raise EngineUnanswered(engine, why)
    return tuple(found)


def tokens_of(choices: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, ...], ...]:
    """The token ids of each choice."""
    return tuple(tuple(one["token_ids"]) for one in choices)


def tokens_in_full(engine: str, choices: Sequence[Mapping[str, Any]], count: int) -> tuple[tuple[int, ...], ...]:
    """The token ids of each choice, where each has so many.

    Raises:
        EngineError: one has fewer: the server ends an answer at its ``--max-model-len``, whatever was asked for.
    """
    found = tokens_of(choices)
    for index, one in enumerate(found):
        if len(one) != count:
            why = f"prompt {index} was answered with {len(one)} token(s), {count} were asked for"
            remedy = "prompt and answer have to fit into its --max-model-len; ask for fewer, or raise that"
            raise EngineError(engine, f"{why} ({choices[index].get('finish_reason')}); {remedy}")
    return found


def sampling(*, temperature: float, seed: int | None, logprobs: bool, stops_at_end: bool) -> dict[str, Any]:
    """The fields of a request that samples."""
    asked: dict[str, Any] = {"temperature": temperature, "ignore_eos": not stops_at_end}
    if seed is not None:
        asked["seed"] = seed
    if logprobs:
        asked |= {"logprobs": 0, "return_tokens_as_token_ids": True}
    return asked
