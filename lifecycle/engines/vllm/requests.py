"""What a vLLM server is asked by who trains: tokens, greedy tokens, checksums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from lifecycle.engines.asked import checked_prompts
from lifecycle.engines.vllm.proof import VllmProof
from lifecycle.engines.vllm.serving import Completions, completions, sampling
from lifecycle.errors import EngineError
from states import FROZEN_BASE
from states.engine_memory import BASE_ONLY, EngineEvent

_SHA256_OF_NOTHING: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_STACKED: Final = (".qkv_proj.", ".gate_up_proj.", ".experts.")
_PLACE: Final = "dp0:pp0:pcp0:tp0:"


class VllmRequests(VllmProof):
    """Requests, each checked against the books before it is sent."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        adapter: str,
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int | None = None,
        expected: Mapping[str, int] | None = None,
        logprobs: bool = False,
        stops_at_end: bool = True,
    ) -> Completions:
        """Sample continuations under one adapter. Several threads may generate at once; a pause waits for them.

        Args:
            prompts: token ids, one sequence a prompt, of any lengths.
            adapter: a committed adapter, or :data:`~states.engine_memory.BASE_ONLY`.
            max_new_tokens: at most so many for each prompt.
            temperature: 0 takes the most probable token.
            seed: of each prompt's own random numbers; None takes the server's.
            expected: content group to the version that must answer.
            logprobs: also ask for the log-probability of each token.
            stops_at_end: end at an end-of-text token.

        Raises:
            EngineError: it may not serve this now (paused, released, stale), did not answer, or another instance did.
        """
        ids = checked_prompts(self._name, prompts, max_new_tokens, temperature)
        asked = sampling(temperature=temperature, seed=seed, logprobs=logprobs, stops_at_end=stops_at_end)
        with ExitStack() as under_way:
            with self._lock:
                self._ready_to_serve()
                self._books.decided(EngineEvent.GENERATE, adapter=adapter, expected=tuple((expected or {}).items()))
                versions, instance, model = self.memory.served(adapter), self.memory.instance_id, self._model(adapter)
                under_way.enter_context(self._in_flight.one())  # before anybody else can pause it
            choices = self._server.complete(model, ids, max_new_tokens, self._generate_timeout_s, **asked)
        self._need_instance(instance)
        return completions(self._name, choices, adapter, versions, instance, logprobs=logprobs)

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        """The most probable continuation of each prompt, of exactly so many tokens.

        A server that is merely paused serves it and is paused again.

        Args:
            adapter: a committed adapter, or :data:`~states.engine_memory.BASE_ONLY`.
            prompts: token ids, one sequence a prompt.
            max_new_tokens: how many each prompt gets.

        Raises:
            EngineError: a tag is released, an update is open, the adapter has no version, it did not answer, or with
                fewer tokens.
        """
        ids = checked_prompts(self._name, prompts, max_new_tokens, 0.0)
        with self._lock:
            self._probe_if_lost()
            held, instance = self.memory.adapters(), self.memory.instance_id
            if adapter != BASE_ONLY and adapter not in held:
                why = f"adapter {adapter!r} has no valid version here, there are: {', '.join(held) or 'none'}"
                raise EngineError(self._name, f"{why}; push it, or ask for BASE_ONLY")
            with self._while_it_serves():
                found = self._greedy(self._model(adapter), ids, max_new_tokens)
            self._need_instance(instance)
        return found

    def checksums(self, group: str) -> Mapping[str, str] | None:
        """SHA-256 of each tensor of a base group, by checkpoint name, where the server can say it of all of them.

        ``/weight_checker`` covers no adapter. It hashes tensors as vLLM holds them: stacked ones (q, k and v in one)
        are no tensors of the trainer, and the CPU build has packed some away and hashes nothing. Then it cannot say.

        Args:
            group: ``adapter/NAME`` or a base group; of the others than the frozen base it cannot say.

        Raises:
            EngineError: it did not answer.
        """
        if group != FROZEN_BASE:
            return None
        found = self._server.weight_checksums()
        told = {
            name.removeprefix(_PLACE).replace(".base_layer.", "."): digest
            for name, digest in found.items()
            if name.startswith(_PLACE) and digest != _SHA256_OF_NOTHING
        }
        stacked = any(part in name for name in told for part in _STACKED)
        return told if told and len(told) == len(found) and not stacked else None

    def _ready_to_serve(self) -> None:
        self._probe_if_lost()
        self._open_if_wanted()

    def _model(self, adapter: str) -> str:
        return self._base_model if adapter == BASE_ONLY else adapter

    def _need_instance(self, instance: str) -> None:
        """An answer counts only if the instance that it was asked of is still the one that answers."""
        found = self._server.info().instance_id
        if found != instance:
            with self._lock:
                self._books.lost(f"it was restarted ({found} answers)")
            raise EngineError(self._name, f"it was restarted while it generated ({found} answers); push, and ask again")
