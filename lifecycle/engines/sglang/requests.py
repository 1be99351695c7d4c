"""Requests to an SGLang server: refused here where they would wait there, or be answered with the wrong weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lifecycle.engines.asked import checked_prompts
from lifecycle.engines.sglang.calls import SglangCalls
from lifecycle.engines.sglang.contact import Contact
from lifecycle.engines.sglang.server import Answer
from lifecycle.errors import EngineError, EngineUnanswered
from states.engine_memory import BASE_ONLY, EngineEvent, EngineState

GREEDY: Final = {"temperature": 0.0, "ignore_eos": True, "repetition_penalty": 1.0}


class Requests:
    """The requests of one client.

    Args:
        engine: the engine's name.
        calls: the requests to it.
        contact: its books.
    """

    def __init__(self, engine: str, calls: SglangCalls, contact: Contact) -> None:
        self._engine = engine
        self._calls = calls
        self._contact = contact

    def send(
        self, prompts: Sequence[Sequence[int]], adapter: str, sampling: Mapping[str, Any], expected: Mapping[str, int]
    ) -> tuple[Answer, ...]:
        """Continue each prompt.

        Raises:
            EngineError: it may not be sent, or what answered is not what was asked.
        """
        ids = checked_prompts(self._engine, prompts, sampling["max_new_tokens"], sampling["temperature"])
        if self._contact.books.memory.state is EngineState.LOST:
            self._contact.ask()
        wanted = tuple(sorted(expected.items()))
        with self._contact.books.asking(EngineEvent.GENERATE, adapter=adapter, expected=wanted):
            versions = self._contact.books.memory.served(adapter)
            found = self._calls.generate(ids, None if adapter == BASE_ONLY else adapter, sampling)
        self._refuse_strangers(found)
        self._refuse_others(found, versions)
        return found

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        """Exactly this many of the most probable tokens.

        Raises:
            EngineError: as of :meth:`send`, or it answered with fewer.
        """
        found = self.send(prompts, adapter, GREEDY | {"max_new_tokens": max_new_tokens}, {})
        short = [one for one in found if len(one.tokens) != max_new_tokens]
        if short:
            said = f"{len(short[0].tokens)} token(s) and {short[0].finish!r}"
            raise EngineError(self._engine, f"a greedy probe of {max_new_tokens} tokens ended with {said}")
        return tuple(one.tokens for one in found)

    def _refuse_others(self, found: Sequence[Answer], versions: Mapping[str, int]) -> None:
        """A request that arrives while it is paused waits there, and is answered by what was pushed meanwhile."""
        for one in found:
            held = self._contact.versions_at(one.weight_version)
            others = [
                f"{group} was {held.get(group, 'none')}, asked was {version}"
                for group, version in versions.items()
                if held.get(group) != version
            ]
            if others:
                raise EngineError(
                    self._engine, f"it was updated before it answered: {'; '.join(others)}; ask it once more"
                )

    def _refuse_strangers(self, found: Sequence[Answer]) -> None:
        strange = [one.weight_version for one in found if not self._contact.is_ours(one.weight_version)]
        if strange:
            why = (
                f"an answer came from weights that are called {strange[0][:80]!r}: another instance, or another writer"
            )
            self._contact.books.lost(why)
            raise EngineUnanswered(self._engine, f"{why}; update_weights mends it")
