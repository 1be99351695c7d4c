"""Requests to the in-process engine, and how each of its calls is decided and fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from lifecycle.engines.books import EngineBooks
from lifecycle.engines.instance import Instance
from lifecycle.engines.protocol import WEIGHTS
from lifecycle.engines.sampling import Rollout
from lifecycle.engines.tags import EngineTags
from lifecycle.errors import EngineError
from states import EngineEvent, EngineState, EngineStep


class LocalRequests:
    """What serves of a :class:`~lifecycle.engines.local.LocalEngine`, and what all of its calls have in common.

    Args:
        name: of the engine.
        books: its record, which is exact: it is moved where the thing itself is done.
        tags: its memory tags.
    """

    _instance: Instance

    def __init__(self, name: str, books: EngineBooks, tags: EngineTags) -> None:
        self.fault: Callable[[str], None] | None = None
        self._name = name
        self._books = books
        self._tags = tags
        self._lock = RLock()

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def generate(
        self,
        prompts: Tensor,
        adapter: str,
        *,
        max_new_tokens: int,
        seed: int | None = None,
        temperature: float = 1.0,
        expected: Mapping[str, int] | None = None,
        within: tuple[int, int] | None = None,
    ) -> Rollout:
        """Sample continuations under one adapter.

        Args:
            prompts: int64 ``[batch, tokens]``, no padding, on the model's device.
            adapter: a committed adapter, or :data:`BASE_ONLY`.
            max_new_tokens: tokens sampled for each prompt, at least 1.
            seed: of the random numbers; None takes torch's own generator.
            temperature: 0 takes the most probable token.
            expected: content group to the version that must answer.
            within: the number of the first prompt in a batch that several engines share, and how many prompts that has:
                with one seed the tokens are then those of one engine that got the whole batch.

        Raises:
            EngineError: an update is open, a tag is released, a tensor of the base or the adapter is
                undefined, a version is not the expected one, or the key/value buffer is too small.
        """
        with self._operation("generate", breaks=False):
            served = self._admit(adapter, expected or {})
            self._check_prompts(prompts, within)
            if max_new_tokens < 1 or temperature < 0:
                raise EngineError(self._name, "max_new_tokens must be at least 1, temperature not negative")
            generator = None if seed is None else torch.Generator(prompts.device).manual_seed(seed)
            how = {"max_new_tokens": max_new_tokens, "temperature": temperature, "generator": generator}
            return self._instance.answer(prompts, adapter, served, **how, within=within)

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        """The most probable continuations; see :class:`~lifecycle.engines.verifying.AnswersGreedily`.

        Raises:
            EngineError: as :meth:`generate`.
        """
        asked = (torch.tensor([list(one)], device=self._instance.device) for one in prompts)
        answers = [self.generate(one, adapter, max_new_tokens=max_new_tokens, temperature=0) for one in asked]
        return tuple(tuple(one.tokens[0].tolist()) for one in answers)

    def checksums(self, group: str) -> Mapping[str, str] | None:
        """SHA-256 of what it holds; see :class:`~lifecycle.engines.verifying.AnswersChecksums`.

        Raises:
            EngineError: ``weights`` is released.
        """
        with self._operation("checksums", breaks=False):
            self._tags.need([WEIGHTS], "hash weights")
            return self._instance.checksums(group) if group in dict(self._books.memory.versions) else None

    def _check_prompts(self, prompts: Tensor, within: tuple[int, int] | None) -> None:
        if prompts.dim() != 2 or prompts.dtype != torch.int64 or 0 in prompts.shape:  # noqa: PLR2004 - [batch, tokens]
            raise EngineError(self._name, "prompts must be int64 [batch, tokens], none of them empty")
        first, rows = within or (0, len(prompts))
        if not 0 <= first <= rows - len(prompts):
            raise EngineError(self._name, f"{len(prompts)} prompts from {first} on do not lie within a batch of {rows}")

    def _admit(self, adapter: str, expected: Mapping[str, int]) -> Mapping[str, int]:
        """Admit one request, and the first one after a pause; returns the versions that will answer."""
        if self._books.memory.state is EngineState.PAUSED:
            self._note_flush()
            self._do(EngineEvent.UNPAUSE)
        self._instance.need_base()
        self._do(EngineEvent.GENERATE, adapter=adapter, expected=tuple(sorted(expected.items())))
        return self._books.memory.served(adapter)

    # common

    def _do(self, event: EngineEvent, **asked: Any) -> EngineStep:
        """Decide, and note that it is done: nobody comes between, and what can fail is noted where it was done."""
        step = self._books.decided(event, **asked)
        self._books.acknowledged(step)
        return step

    def _note_flush(self) -> None:
        """Prefixes were dropped when the update began, and nothing was answered since."""
        if not self._books.memory.flushed and self._books.memory.state is not EngineState.OPEN:
            self._do(EngineEvent.FLUSH)

    def _fail_on_request(self, operation: str) -> None:
        if self.fault is not None:
            self.fault(operation)

    @contextmanager
    def _operation(self, operation: str, *, breaks: bool = True) -> Iterator[None]:
        """One call at a time. A failure while an update is open breaks that update, if *breaks*."""
        with self._lock:
            try:
                self._fail_on_request(operation)
                yield
            except BaseException as error:
                if breaks:
                    self._books.broke(f"{operation}: {error}")
                raise
