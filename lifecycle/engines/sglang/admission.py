"""Admission and memory of an SGLang server: drained and paused before a release, open again when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from lifecycle.engines.sglang.calls import SglangCalls
from lifecycle.engines.sglang.contact import TAGS, Contact
from lifecycle.errors import EngineError, EngineRefused
from states.engine_memory import EngineEvent, EngineState, TagState

IDLE_S: Final = 10.0
"""A paused server is idle within this time: nothing runs, and the last batch is put away."""


class Admission:
    """When one server admits requests, and which of its tags are resident.

    Args:
        engine: its name.
        calls: the requests to it.
        contact: its books.
        drain_s: how long a pause waits for requests that run.

    Attributes:
        held: the user has paused it; it does not open by itself then.
    """

    def __init__(self, engine: str, calls: SglangCalls, contact: Contact, *, drain_s: float) -> None:
        self._engine = engine
        self._calls = calls
        self._contact = contact
        self._drain_s = drain_s
        self.held = False

    def pause(self) -> None:
        """Wait for requests that run, and admit none.

        Raises:
            EngineError: they still run after the time; it names how many. It admits requests as before.
        """
        with self._contact.books.asking(EngineEvent.PAUSE) as step:
            if not step.settled:
                self._drain()
                self._calls.pause()

    def open_if_whole(self) -> None:
        """Admit requests, unless the user has paused it or something is missing. No call opens it just by ending."""
        books = self._contact.books
        memory = books.memory
        ready = memory.state is EngineState.PAUSED and not self.held and not memory.missing_base()
        if not ready or len(memory.in_state(TagState.RESIDENT)) < len(memory.tags):
            return
        if not memory.flushed:
            with books.asking(EngineEvent.FLUSH):
                self._calls.flush(IDLE_S)
        with books.asking(EngineEvent.UNPAUSE):
            self._calls.proceed()

    def release(self, tags: Iterable[str], *, discard: bool) -> None:
        """Give back the memory of these tags; of those that are resident only."""
        wanted = self._known(tags)
        server = self._contact.ask()
        if wanted and not server.has_saver:
            raise EngineError(self._engine, "it gives no memory back; start it with --enable-memory-saver")
        self.pause()
        books = self._contact.books
        with books.asking(EngineEvent.DISCARD if discard else EngineEvent.RELEASE, tags=wanted) as step:
            mapped = tuple(tag for tag in step.tags if books.memory.tag(tag) is TagState.RESIDENT)
            if mapped:
                self._calls.flush(IDLE_S)  # refused unless nothing runs: SGLang ends its process otherwise
                self._move(mapped, self._calls.release)
        if step.tags:
            self._contact.write()

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again; of those that are released only."""
        wanted = self._known(tags)
        self._contact.ask()
        with self._contact.books.asking(EngineEvent.RESUME, tags=wanted) as step:
            if step.tags:
                self._move(step.tags, self._calls.resume)
        if step.tags:
            self._contact.write()
        self.open_if_whole()

    def _drain(self) -> None:
        try:
            self._calls.flush(self._drain_s)
        except EngineRefused as error:
            busy = self._calls.busy()
            why = f"{busy} request(s) still run or wait after {self._drain_s:g} s; end them, or raise drain_s"
            raise EngineRefused(self._engine, why, status=error.status, answer=error.answer) from error

    def _move(self, tags: tuple[str, ...], call: Callable[[Iterable[str]], None]) -> None:
        """Between the two marks it is unknown where the tags are, and the first one says so."""
        self._contact.write(moving=tags)
        try:
            call(tags)
        except EngineRefused:
            self._contact.write()
            raise

    def _known(self, tags: Iterable[str]) -> tuple[str, ...]:
        wanted = tuple(tags)
        strange = sorted(set(wanted) - set(TAGS))
        if strange:
            raise EngineError(self._engine, f"it has no tag {', '.join(strange)}; there are {', '.join(TAGS)}")
        return wanted
