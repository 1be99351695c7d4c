"""One update of an SGLang server: base weights by value, adapters by path or by value, then commit or abort."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from torch import Tensor

from lifecycle.adapters.peft_config import render_config
from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.engines.sglang.admission import IDLE_S
from lifecycle.engines.sglang.calls import SglangCalls
from lifecycle.engines.sglang.contact import Contact
from lifecycle.engines.sglang.server import SglangServer
from lifecycle.engines.sglang.tensors import chunks
from lifecycle.errors import AdapterError, EngineError, EngineRefused, EngineUnanswered
from states.engine_memory import EngineEvent
from states.names import ADAPTER_PREFIX, adapter_group

BY_VALUE: Final = "__tensor__"
"""What SGLang names as the path of an adapter that was sent by value."""


class Pushing:
    """The open update of one server.

    Args:
        engine: its name.
        calls: the requests to it.
        contact: its books.
        files: where adapters lie while they are loaded; None sends them by value.
        pinned: keep adapters in device memory.
        chunk_bytes: base weights go in requests of about this size.
    """

    def __init__(
        self,
        engine: str,
        calls: SglangCalls,
        contact: Contact,
        *,
        files: AdapterFiles | None,
        pinned: bool,
        chunk_bytes: int,
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._contact = contact
        self._files = files
        self._pinned = pinned
        self._chunk_bytes = chunk_bytes
        self._there: set[str] = set()
        self._writing = False

    def begin(self, server: SglangServer) -> None:
        """Open an update. The server is paused."""
        there = set(self._calls.adapters()) if server.takes_adapters else set()
        with self._contact.books.asking(EngineEvent.BEGIN_UPDATE):
            self._there, self._writing = there, False

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Write one base group."""
        with self._contact.books.asking(EngineEvent.SEND_BASE, group=group, version=version):
            self._open_writing()
            for chunk in chunks(tensors, self._chunk_bytes):
                self._calls.send_weights(chunk)

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Load an adapter; everything that can be checked is checked before the one of that name is unloaded."""
        name, books = payload.name, self._contact.books
        group = adapter_group(name)
        books.decided(EngineEvent.LOAD_ADAPTER, group=group, version=payload.version)
        self._refuse_what_does_not_fit(payload)
        with self._written(payload) as path:
            self.unload_adapter(name)
            with books.asking(EngineEvent.LOAD_ADAPTER, group=group, version=payload.version):
                self._load(payload, path)
        self._there.add(name)
        self._contact.paths[name] = path or BY_VALUE

    def unload_adapter(self, name: str) -> None:
        """Drop an adapter, if it is there."""
        with self._contact.books.asking(EngineEvent.UNLOAD_ADAPTER, group=adapter_group(name)):
            if name in self._there:
                self._calls.unload_adapter(name)
        self._there.discard(name)
        self._contact.paths.pop(name, None)

    def commit(self) -> None:
        """Serve what was sent, under the versions it was sent with."""
        books = self._contact.books
        with books.asking(EngineEvent.FLUSH) as step:
            self._end_writing()
            if not step.settled:
                self._calls.flush(IDLE_S)
        with books.asking(EngineEvent.COMMIT_UPDATE):
            self._need_same_instance()  # before its versions are written down, and once nothing more is asked of it
            self._contact.write()
            self._need_same_instance()

    def abort(self) -> None:
        """Give the update up. Adapters that it has loaded are unloaded, so that nobody is served by them."""
        books = self._contact.books
        loaded = [group for group, version in books.memory.touched if version is not None]
        with books.asking(EngineEvent.ABORT_UPDATE) as step:
            if step.settled:
                return
            with suppress(EngineRefused):  # none is open any more: that is what is wanted
                self._end_writing()
            for name in (group.removeprefix(ADAPTER_PREFIX) for group in loaded if group.startswith(ADAPTER_PREFIX)):
                with suppress(EngineRefused):
                    self._calls.unload_adapter(name)
                self._there.discard(name)

    def _need_same_instance(self) -> None:
        if not self._contact.is_same_instance():
            raise EngineUnanswered(self._engine, "it was started anew during the update; the next pass sends it again")

    def _load(self, payload: AdapterPayload, path: str | None) -> None:
        try:
            self._load_once(payload, path)
        except EngineRefused as error:
            if "incomplete unload" not in error.answer:
                raise
            self._calls.unload_adapter(payload.name)  # one that did not end on every rank, or was not acknowledged
            self._load_once(payload, path)

    def _load_once(self, payload: AdapterPayload, path: str | None) -> None:
        if path is not None:
            self._calls.load_adapter(payload.name, path, pinned=self._pinned)
            return
        config = json.loads(render_config(payload.rank, payload.alpha, payload.target_modules))
        self._calls.load_adapter_tensors(payload.name, config, payload.tensors, pinned=self._pinned)

    def _open_writing(self) -> None:
        if self._writing:
            return
        try:
            self._calls.begin_weights()
        except EngineRefused as error:
            if "already open" not in error.answer:
                raise
            self._calls.end_weights()  # left open by an update that was cut short
            self._calls.begin_weights()
        self._writing = True

    def _end_writing(self) -> None:
        if self._writing:
            self._calls.end_weights()
            self._writing = False

    def _refuse_what_does_not_fit(self, payload: AdapterPayload) -> None:
        server = self._contact.server
        if server is None or not server.takes_adapters:
            why = "it takes no adapters; start it with --enable-lora, and one server for each data-parallel replica"
            raise EngineError(self._engine, why)
        if server.rank_max is not None and payload.rank > server.rank_max:
            why = (
                f"adapter {payload.name} has rank {payload.rank}, it was started with --max-lora-rank {server.rank_max}"
            )
            raise EngineError(self._engine, why)
        others = len(self._there - {payload.name})
        if server.adapter_slots is not None and others >= server.adapter_slots:
            why = f"it has {others} adapters and was started with --max-loaded-loras {server.adapter_slots}"
            raise EngineError(self._engine, f"{why}: it would drop one by itself; unload one first")

    @contextmanager
    def _written(self, payload: AdapterPayload) -> Iterator[str | None]:
        if self._files is None:
            yield None
            return
        try:
            with self._files.written(payload) as path:
                yield str(Path(path))
        except AdapterError as error:
            raise EngineError(self._engine, str(error)) from error
