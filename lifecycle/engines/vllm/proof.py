"""What a vLLM server says of itself, and the proof that its base is the trainer's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lifecycle.engines.protocol import EngineReport
from lifecycle.engines.vllm.admission import VllmAdmission
from lifecycle.engines.vllm.held_base import HeldBase
from lifecycle.engines.vllm.serving import sampling, tokens_in_full
from lifecycle.errors import EngineError
from states.engine_memory import EngineState, TagState


class OtherBaseError(EngineError):
    """The server answered, and its base is not the trainer's."""


class VllmProof(VllmAdmission):
    """Reports, and the base that they count."""

    def report(self) -> EngineReport:
        """Ask the server who it is, what it serves and whether it sleeps, and join that with what was acknowledged.

        A base that it was told to hold (``held_base``) is proven at its first report after each start. A server that is
        shut although nothing speaks against it is opened: the call that should have done that was not confirmed.

        Raises:
            EngineError: it does not answer, or its base is another one.
        """
        with self._lock:
            self._probe()
            self._open_if_wanted()  # a call that was not confirmed may have left it shut
            if self._lacks_base() and self.memory.state is EngineState.OPEN:
                self._prove_base()
            known = self._books.report(**self._sizes, adapter_slots=self._info.adapter_slots)
            return replace(known, releases_apart=self._info.device != "cpu")

    def hold_base(self, held: HeldBase) -> None:
        """Take the server's own base for the trainer's, if it proves to be.

        Args:
            held: the versions that it then counts as, and the proof.

        Raises:
            EngineError: it does not answer, cannot serve now, or its base is another one.
        """
        with self._lock:
            self._held = held
            self._probe()
            with self._while_it_serves():
                self._prove_base()

    def _lacks_base(self) -> bool:
        return self._held is not None and not self._held.versions.keys() <= dict(self.memory.versions).keys()

    def _prove_base(self) -> None:
        held = self._held
        assert held is not None
        difference = held.differing(self._greedy(self._base_model, held.prompts, held.new_tokens))
        if difference:
            why = f"its base is not the trainer's: {difference}"
            raise OtherBaseError(self._name, f"{why}; start it on the model that the trainer began with, in its dtype")
        self._books.declared(held.versions)

    def _greedy(self, model: str, prompts: Sequence[Sequence[int]], count: int) -> tuple[tuple[int, ...], ...]:
        asked = sampling(temperature=0.0, seed=None, logprobs=False, stops_at_end=False)
        choices = self._server.complete(model, prompts, count, self._generate_timeout_s, **asked)
        return tokens_in_full(self._name, choices, count)

    @contextmanager
    def _while_it_serves(self, *, within_update: bool = False) -> Iterator[None]:
        """Admit requests for the length of the block, where memory is there and it is merely paused."""
        memory = self.memory
        missing = [tag for tag, state in memory.tags if state is not TagState.RESIDENT]
        refusing = (EngineState.LOST,) if within_update else (EngineState.LOST, EngineState.UPDATING)
        if missing or memory.state in refusing:
            why = f"it is {memory.state}" + (f", not resident: {', '.join(missing)}" if missing else "")
            raise EngineError(self._name, f"it cannot serve: {why}; commit or abort the update, resume the tags")
        if memory.state is EngineState.OPEN:
            yield
            return
        self._or_lost(self._server.admit, "admitting requests for a probe")
        try:
            yield
        finally:
            self._or_lost(self._server.hold, "holding requests after a probe")
