"""SGLang as a :class:`~lifecycle.engines.protocol.RolloutEngine`, over HTTP. Checked against SGLang 0.5.23.

What ends SGLang's process is never sent: a resume of a tag that is not released, a second release, a release while
requests run, a write into released weights. The books are asked before each call, and the instance is compared first: a
server that was started anew has nothing released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from torch import Tensor

from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.engines.http import EngineHttp
from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.engines.sglang.admission import Admission
from lifecycle.engines.sglang.calls import SglangCalls
from lifecycle.engines.sglang.contact import Contact
from lifecycle.engines.sglang.pushing import Pushing
from lifecycle.engines.sglang.requests import Requests
from lifecycle.engines.sglang.server import Answer
from lifecycle.errors import ConfigError
from states.engine_memory import EngineEvent, EngineState, TagState
from states.handover_needs import WEIGHTS
from states.names import FROZEN_BASE


class SglangEngine:
    """One SGLang server. Start it with ``--enable-memory-saver`` and ``--enable-lora``; see docs/engines.md.

    It is paused before memory is released and while it is updated, and admits requests again once it is whole.

    Args:
        name: unique among the engines of a run.
        url: ``http://HOST:PORT``.
        token: its ``--api-key``.
        admin_token: its ``--admin-api-key``, where it has one.
        tp_size: its tensor-parallel ranks.
        holds_host_mirror: whether it was started with ``--enable-weights-cpu-backup``; without it a release throws the
            weights away, and the base is pushed again. None: as it says itself.
        base_groups: content groups of the base that must be whole before it serves.
        at_start: versions that it holds when it was just started, ``{"frozen-base": 1}`` where it has loaded the very
            checkpoint that the trainer has. Nothing: its base is pushed first.
        adapter_files: where adapters lie while it loads them; it must see the same path. None: in ``/dev/shm``.
        by_value: send adapters in the request, for a server on another host. What cannot be read then ends its process.
        pinned: keep adapters in its device memory; at most ``--max-loras-per-batch`` - 1 of them.
        drain_s: how long a pause waits for requests that run; then it is refused.
        base_chunk_bytes: base weights go in requests of about this size, 4/3 of it on the wire.
        timeout_s: for calls that ask.
        slow_s: for calls that move memory or weights, and for requests.
        client: an ``httpx.Client`` of the caller.

    Raises:
        ConfigError: arguments that cannot work. The server is not asked yet.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        token: str | None = None,
        admin_token: str | None = None,
        tp_size: int = 1,
        holds_host_mirror: bool | None = None,
        base_groups: Iterable[str] = (FROZEN_BASE,),
        at_start: Mapping[str, int] | None = None,
        adapter_files: AdapterFiles | str | Path | None = None,
        by_value: bool = False,
        pinned: bool = False,
        drain_s: float = 30.0,
        base_chunk_bytes: int = 256 * 2**20,
        timeout_s: float = 60.0,
        slow_s: float = 300.0,
        client: httpx.Client | None = None,
    ) -> None:
        _check(tp_size, base_chunk_bytes, drain_s)
        self._name = name
        self._http = [
            EngineHttp(name, url, token=bearer, timeout_s=timeout_s, retries=retries, client=client)
            for bearer, retries in ((token, 3), (admin_token or token, 3), (token, 0))
        ]
        self._calls = calls = SglangCalls(name, *self._http, tp_size=tp_size, slow_s=slow_s)
        groups = tuple(base_groups)
        self._contact = Contact(
            name, calls, tp_size=tp_size, mirrors=holds_host_mirror, base_groups=groups, at_start=at_start or {}
        )
        self._requests = Requests(name, calls, self._contact)
        self._admission = Admission(name, calls, self._contact, drain_s=drain_s)
        files = adapter_files if isinstance(adapter_files, AdapterFiles) else AdapterFiles(adapter_files)
        self._pushing = Pushing(
            name, calls, self._contact, files=None if by_value else files, pinned=pinned, chunk_bytes=base_chunk_bytes
        )

    def __repr__(self) -> str:
        return f"SglangEngine({self._name!r}, {self._http[0].url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The server stays as it is."""
        for one in self._http:
            one.close()

    # what it says of itself

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def report(self) -> EngineReport:
        """Ask the server which instance it is, what stands there, and which adapters it has.

        A tag whose move was not acknowledged stays unknown: SGLang cannot be asked, and to try would end it. It is
        started anew then, and gets everything again.
        """
        server = self._contact.ask()
        mirror_bytes = server.device_bytes.get(WEIGHTS, 0) if server.has_mirror else 0
        found = self._contact.books.report(
            device_bytes=server.device_bytes, mirror_bytes=mirror_bytes, adapter_slots=server.adapter_slots
        )
        unknown = self._contact.books.memory.in_state(TagState.UNKNOWN)
        if unknown and not found.unknown:
            why = (
                f"whether {', '.join(unknown)} came or went was not acknowledged, and SGLang cannot say; start it anew"
            )
            return replace(found, unknown=why, versions={}, discards=not server.has_mirror)
        return replace(found, discards=not server.has_mirror)

    def declare(self, versions: Mapping[str, int]) -> None:
        """Say that this instance holds these versions, such as of a base that it has loaded from the same checkpoint.

        Raises:
            EngineError: it does not answer.
        """
        self._contact.ask()
        self._contact.books.declared(versions)
        self._contact.write()

    # content

    def begin_update(self) -> None:
        """Wait for requests that run, pause it, and open an update. One that was left open is given up first.

        Raises:
            EngineError: it does not answer, requests still run, or ``weights`` is not resident.
        """
        server = self._contact.ask()
        if self._contact.books.memory.state is EngineState.UPDATING:
            self._pushing.abort()
        self._admission.pause()
        self._pushing.begin(server)

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Write one base group, by value. SGLang leaves out names that its model does not have, and does not say so.

        Raises:
            EngineError: no update is open, or a chunk failed.
        """
        self._pushing.send_base(group, version, tensors)

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Load one adapter; one of that name is unloaded first, for SGLang refuses to replace. It is paused meanwhile.

        Raises:
            EngineError: no update is open, the base under it is undefined, it does not fit, or it was refused.
        """
        self._pushing.load_adapter(payload)

    def unload_adapter(self, name: str) -> None:
        """Drop one adapter. One that is not there is dropped already.

        Raises:
            EngineError: no update is open, or it was refused.
        """
        self._pushing.unload_adapter(name)

    def commit_update(self) -> None:
        """Drop cached prefixes, write the versions down at the server, and serve.

        Raises:
            EngineError: no update is open, a call of it failed, the caches were not dropped, or another instance than
                at its beginning answers.
        """
        self._pushing.commit()
        self._admission.open_if_whole()

    def abort_update(self) -> None:
        """Give up: what was touched holds no version and adapters among it are unloaded. It stays paused."""
        self._pushing.abort()

    # memory

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Wait for requests that run, pause it, and give back the memory of these tags.

        Raises:
            EngineError: an unknown tag, requests still run, an update is open, or it was not started for this.
        """
        self._admission.release(tags, discard=discard)

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again; those that are resident never reach the server.

        Raises:
            EngineError: an unknown tag, or one of which it is unknown whether it is released.
        """
        self._admission.resume(tags)

    # serving

    def pause(self) -> None:
        """Wait for requests that run, and admit none. It stays so until :meth:`unpause`.

        Raises:
            EngineError: requests still run after ``drain_s``; it names how many.
        """
        self._contact.ask()
        self._admission.pause()
        self._admission.held = True

    def unpause(self) -> None:
        """Admit requests again.

        Raises:
            EngineError: a tag is not resident, or the base is not whole.
        """
        self._contact.ask()
        self._admission.held = False
        self._admission.open_if_whole()
        with self._contact.books.asking(EngineEvent.UNPAUSE):
            pass  # it is open by now; where it could not be, this says why

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        adapter: str,
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        expected: Mapping[str, int] | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> tuple[Answer, ...]:
        """Continue each prompt under one adapter.

        Args:
            prompts: token ids.
            adapter: a committed adapter, or :data:`BASE_ONLY`.
            max_new_tokens: at least 1.
            temperature: 0 takes the most probable token.
            expected: content group to the version that must answer.
            sampling: more of SGLang's sampling parameters.

        Raises:
            EngineError: it is paused, a tag is released, a version is missing or another than expected. Nothing was
                sent then: a request that meets a paused SGLang waits for ever. Or another instance has answered.
        """
        how = {"temperature": temperature, "max_new_tokens": max_new_tokens} | dict(sampling or {})
        return self._requests.send(prompts, adapter, how, expected or {})

    def greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        """The most probable continuation of each prompt; see :class:`~lifecycle.engines.verifying.AnswersGreedily`."""
        return self._requests.greedy(adapter, prompts, max_new_tokens)


def _check(tp_size: int, base_chunk_bytes: int, drain_s: float) -> None:
    counts = all(isinstance(one, int) and one >= 1 for one in (tp_size, base_chunk_bytes))
    if not counts or not isinstance(drain_s, int | float) or not drain_s >= 0:
        raise ConfigError("tp_size and base_chunk_bytes are at least 1, drain_s is a number and not negative")
