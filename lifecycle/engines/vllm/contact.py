"""What is known of a vLLM server, and whether it admits requests. The books are asked before each call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from threading import RLock
from typing import Any, Final

from lifecycle.engines.books import EngineBooks
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS, EngineReport
from lifecycle.engines.vllm.held_base import HeldBase
from lifecycle.engines.vllm.served import ServedAdapters
from lifecycle.engines.vllm.server import ServerInfo, VllmServer
from lifecycle.engines.vllm.serving import InFlight, sampling, tokens_in_full
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states.engine_decision import EngineStep
from states.engine_memory import EngineEvent, EngineMemory, EngineSaid, EngineState, TagState, is_adapter
from states.names import FROZEN_BASE

TAGS: Final = (WEIGHTS, KV_CACHE)
_TAG_MOVES: Final = (EngineEvent.RELEASE, EngineEvent.DISCARD, EngineEvent.RESUME)
_TIMED_OUT: Final = 408
_ONCE_IDLE_S: Final = 1.0
"""A server in which nothing runs says so within this time."""
_ABORTED_S: Final = 60.0
"""Requests that were aborted have ended within this time."""


class WhenBusy(StrEnum):
    """What a pause does with requests that do not end in time."""

    REFUSE = "refuse"
    ABORT = "abort"


class VllmContact:
    """The books of one server, and what keeps them true."""

    def __init__(
        self,
        name: str,
        server: VllmServer,
        served: ServedAdapters,
        *,
        held_base: HeldBase | None,
        drain_s: float,
        when_busy: WhenBusy,
        sizes: Mapping[str, Any],
        generate_timeout_s: float,
    ) -> None:
        self._name = name
        self._server = server
        self._served = served
        self._held = held_base
        groups = (FROZEN_BASE,) if held_base is None else tuple(held_base.versions)
        self._books = EngineBooks(name, tags=TAGS, base_groups=groups)
        self._info = ServerInfo("", "", 1, sleeps=False)
        self._base_model = ""
        self._drain_s = drain_s
        self._when_busy = when_busy
        self._sizes = sizes
        self._generate_timeout_s = generate_timeout_s
        self._lock = RLock()
        self._in_flight = InFlight()
        self._is_wanted_open = True
        self._may_run = False
        self._certain: dict[str, TagState] = {}

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def memory(self) -> EngineMemory:
        """What is known of it now, without asking it."""
        return self._books.memory

    # what it says of itself

    def report(self) -> EngineReport:
        """Ask the server who it is, what it serves and whether it sleeps, and join that with what was acknowledged.

        A base that it was told to hold (``held_base``) is proven at its first report after each start.

        Raises:
            EngineError: it does not answer, or its base is another one.
        """
        with self._lock:
            self._probe()
            if self._lacks_base() and self.memory.state is EngineState.OPEN:
                self._prove_base()
            known = self._books.report(**self._sizes, adapter_slots=self._info.adapter_slots)
            return replace(known, releases_apart=self._info.device != "cpu")

    def _probe(self) -> None:
        memory, before = self.memory, self._info.instance_id
        self._info, models, sleeps = self._server.info(), self._server.models(), self._server.is_sleeping()
        self._served.seen(models)
        self._base_model = models.base
        is_known = self._info.instance_id == before
        took_over = is_known and sleeps and memory.state is EngineState.OPEN
        # "Sleeps" is also said while it still drains: by a pause that nobody confirmed, or somebody else's.
        self._may_run = sleeps and (self._may_run or took_over or memory.state is EngineState.LOST)
        if took_over:
            self._certain = {}
            self._books.lost("it was paused or released by somebody else")
        kept = dict(memory.versions) | _sent(memory) if is_known and not took_over else {}
        versions: dict[str, int | None] = dict.fromkeys(memory.base_groups) if took_over else {}
        versions |= {one: held for one, held in kept.items() if is_adapter(one) and self._served.serves(one, held)}
        said = EngineSaid(
            instance_id=self._info.instance_id,
            is_open=not sleeps,
            tags=dict.fromkeys(TAGS, TagState.RESIDENT) if not sleeps else self._remembered(is_known=is_known),
            versions=versions,
            tells_adapters=True,
        )
        self._books.probed(said)

    def _remembered(self, *, is_known: bool) -> dict[str, TagState]:
        """Where memory is although the server only says that not all is well: no call that failed was about that."""
        return self._certain if is_known and self.memory.state is EngineState.LOST else {}

    def _probe_if_lost(self) -> None:
        if self.memory.state is EngineState.LOST:
            self._probe()

    @contextmanager
    def _asking(self, event: EngineEvent, **asked: Any) -> Iterator[EngineStep]:
        """As :meth:`~lifecycle.engines.books.EngineBooks.asking`; other failures than of memory leave that known."""
        tags = dict(self.memory.tags)
        try:
            with self._books.asking(event, **asked) as step:
                yield step
        except BaseException:
            known = event not in _TAG_MOVES and TagState.UNKNOWN not in tags.values()
            self._certain = tags if known else {}
            raise

    # the base

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
            raise EngineError(self._name, f"{why}; start it on the model that the trainer began with, in its dtype")
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

    # admission

    def pause(self) -> None:
        """Admit no requests, and let those that run end. It stays so until :meth:`unpause`.

        Raises:
            EngineError: requests were still running after ``drain_s`` and are not to be aborted, or it did not answer.
        """
        with self._lock:
            self._probe_if_lost()
            self._pause()
            self._is_wanted_open = False

    def unpause(self) -> None:
        """Admit requests again.

        Raises:
            EngineError: memory is released, the base is not whole, an update is open, or it did not answer.
        """
        with self._lock:
            self._probe_if_lost()
            self._is_wanted_open = True
            self._unpause()

    def _unpause(self) -> None:
        with self._asking(EngineEvent.UNPAUSE) as step:
            if not step.settled:
                self._server.admit()

    def _pause(self) -> None:
        with self._asking(EngineEvent.PAUSE) as step:
            if not step.settled or self._may_run:
                self._drain()
        self._may_run = False

    def _drain(self) -> None:
        """Until nothing runs: first what this client has sent, for what arrives later would wait there unseen."""
        began_s = time.monotonic()
        own = self._in_flight.left(self._drain_s)
        if own and self._when_busy is WhenBusy.REFUSE:
            raise self._busy(own)
        try:
            if not own:
                self._server.drain(max(began_s + self._drain_s - time.monotonic(), _ONCE_IDLE_S))
                return
        except EngineUnanswered as error:
            if error.status is not None or not error.reached or time.monotonic() - began_s < self._drain_s:
                raise
            if self._when_busy is WhenBusy.REFUSE:
                left = self._server.requests()
                if self.memory.state is EngineState.OPEN:  # as before; one that was paused may not be whole
                    self._server.admit()
                raise self._busy(left) from error
        self._end_those_that_run()

    def _end_those_that_run(self) -> None:
        """Also those of this client that arrive only now: each hold ends what has arrived by then."""
        last_s = time.monotonic() + _ABORTED_S
        self._server.hold()
        while own := self._in_flight.left(_ONCE_IDLE_S):
            if time.monotonic() > last_s:
                raise EngineUnanswered(self._name, f"{own} request(s) that were aborted do not end; is it stuck?")
            self._server.hold()

    def _busy(self, left: int | None) -> EngineRefused:
        stays = "it serves on" if self.memory.state is EngineState.OPEN else "it admits no others"
        why = f"{'some' if left is None else left} request(s) still run after {self._drain_s:g} s; {stays}"
        remedy = "wait for them, raise drain_s, or abort them (when_busy='abort')"
        return EngineRefused(self._name, f"{why}; {remedy}", status=_TIMED_OUT)

    def _open_if_wanted(self) -> None:
        """Admit requests where nothing speaks against it, such as an adapter that it lists without a valid version."""
        if self.memory.state is not EngineState.PAUSED or not self._may_open():
            return
        self._unpause()

    def _may_open(self) -> bool:
        if not self._is_wanted_open or self._served.names() - set(self.memory.adapters()):
            return False
        try:
            self._books.decided(EngineEvent.UNPAUSE)
        except EngineError:
            return False
        return True

    def _or_lost(self, call: Any, what: str) -> None:
        """A call that no event stands for; if it fails, what the server does is unknown."""
        try:
            call()
        except EngineError as error:
            self._books.lost(f"{what}: {error.why}")
            raise


def _sent(memory: EngineMemory) -> dict[str, int]:
    """What the open update has sent."""
    return {group: version for group, version in memory.touched if version is not None}
