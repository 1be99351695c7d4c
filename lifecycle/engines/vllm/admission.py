"""Whether a vLLM server admits requests: it drains before it is shut, and opens when nothing speaks against it."""

from __future__ import annotations

import time
from typing import Final

from lifecycle.engines.vllm.contact import TAGS, VllmContact, WhenBusy
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states.engine_memory import EngineEvent, EngineState, TagState

_TIMED_OUT: Final = 408
_ONCE_IDLE_S: Final = 1.0
"""A server in which nothing runs says so within this time."""
_ABORTED_S: Final = 60.0
"""Requests that were aborted have ended within this time."""


class VllmAdmission(VllmContact):
    """Pauses and what ends them."""

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
            self._flush_if_due()
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

    def _flush_if_due(self) -> None:
        """Drop cached prefixes where a call that nobody confirmed has left it unknown whether they are of before.

        Not after an update that wrote and was not committed: only the next one makes up for that.
        """
        memory = self.memory
        is_whole = set(memory.in_state(TagState.RESIDENT)) == set(TAGS) and not memory.missing_base()
        if is_whole and not memory.flushed and memory.state is EngineState.PAUSED and not self._is_half_way:
            self._flush()

    def _flush(self) -> None:
        with self._asking(EngineEvent.FLUSH) as step:
            if not step.settled:
                self._server.reset_prefix_cache()

    def _open_if_wanted(self) -> None:
        """Admit requests where nothing speaks against it, such as an adapter that it lists without a valid version."""
        if self.memory.state is EngineState.PAUSED and self._may_open():
            self._unpause()

    def _may_open(self) -> bool:
        if not self._is_wanted_open or self._served.names() - set(self.memory.adapters()):
            return False
        try:
            self._flush_if_due()
            self._books.decided(EngineEvent.UNPAUSE)
        except EngineError:
            return False
        return True
