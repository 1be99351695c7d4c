"""A vLLM server as a rollout engine. Read docs/engines.md for what is and is not covered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.engines.http import EngineHttp
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.engines.vllm.contact import WhenBusy
from lifecycle.engines.vllm.held_base import HeldBase
from lifecycle.engines.vllm.memory import VllmMemory
from lifecycle.engines.vllm.served import ServedAdapters
from lifecycle.engines.vllm.server import VllmServer
from lifecycle.errors import AdapterError, ConfigError, EngineError
from lifecycle.weights.digests import digest
from states import ADAPTER_PREFIX, adapter_group
from states.engine_memory import EngineEvent, is_adapter


class VllmEngine(VllmMemory):
    """A :class:`~lifecycle.engines.protocol.RolloutEngine` over the HTTP interface of vLLM 0.32.

    The server runs on this host as the same user, with ``--enable-lora``, ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`` and
    ``VLLM_SERVER_DEV_MODE=1``. Calls of several threads wait for each other, but for requests that generate.

    Args:
        name: unique among the engines of a run.
        url: ``http://HOST:PORT``.
        token: what the server was started with as ``--api-key``.
        held_base: the proof that the base which the server loaded is the trainer's; see :class:`HeldBase`. Without one
            it counts as holding no base until :meth:`hold_base`.
        directory: where adapters lie while they are served, see :class:`~lifecycle.engines.adapter_files.AdapterFiles`.
        timeout_s: bound of a call that does little.
        load_timeout_s: bound of a call that reads or moves weights.
        generate_timeout_s: bound of one :meth:`generate`.
        drain_s: how long a pause waits for requests that run.
        when_busy: what it does then: refuse and serve on, or abort them.
        device_bytes: device memory of each tag, for the plan of a hand-over.
        mirror_bytes: host memory that it takes for its weights while they are released.
        http: how the server is called; made of url, token and timeout_s when None.

    Raises:
        ConfigError: a value that cannot work. The server is not asked yet.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        token: str | None = None,
        held_base: HeldBase | None = None,
        directory: str | Path | None = None,
        timeout_s: float = 60.0,
        load_timeout_s: float = 600.0,
        generate_timeout_s: float = 600.0,
        drain_s: float = 60.0,
        when_busy: str = WhenBusy.REFUSE.value,
        device_bytes: Mapping[str, int] | None = None,
        mirror_bytes: int = 0,
        http: EngineHttp | None = None,
    ) -> None:
        if when_busy not in tuple(WhenBusy):
            raise ConfigError(f"when_busy is {when_busy!r}; use {' or '.join(WhenBusy)}")
        bounds = (load_timeout_s, generate_timeout_s, drain_s)
        if not all(isinstance(one, int | float) and one > 0 for one in bounds):
            raise ConfigError("load_timeout_s, generate_timeout_s and drain_s are numbers of seconds above 0")
        self._http = http or EngineHttp(name, url, token=token, timeout_s=timeout_s)
        self._files = AdapterFiles(directory)
        server = VllmServer(name, self._http, load_timeout_s=load_timeout_s)
        super().__init__(
            name,
            server,
            ServedAdapters(name, server, self._files),
            held_base=held_base,
            drain_s=drain_s,
            when_busy=WhenBusy(when_busy),
            sizes={"device_bytes": dict(device_bytes or {}), "mirror_bytes": mirror_bytes},
            generate_timeout_s=generate_timeout_s,
        )

    def __repr__(self) -> str:
        return f"VllmEngine({self._name!r}, {self._http.url!r})"

    def close(self) -> None:
        """Leave the server: it serves none of our adapters any more, as far as it answers, and their files are gone.

        Whether it admits requests is as before, unless that would be to serve a base that was not proven.
        """
        with self._lock:
            try:
                self._probe()
                if self._served.names():
                    self._unload_all()
            except EngineError as error:
                self._leave_asleep(error)
            self._http.close()

    def _unload_all(self) -> None:
        self.begin_update()
        for name in sorted(self._served.names()):
            self.unload_adapter(name)
        self.commit_update()

    def _leave_asleep(self, because: EngineError) -> None:
        try:
            self._served.seen(self._server.models())
            self._served.drop_all_but(())
        except EngineError as error:
            because = error
        self._books.lost(f"it was closed: {because.why}")
        self._served.tidy()

    # content

    def begin_update(self) -> None:
        """Admit no requests, drain, and drop adapters that a push left behind when it was cut short.

        Raises:
            EngineError: requests do not end, ``weights`` is released, or it did not answer.
        """
        with self._lock:
            self._probe_if_lost()
            self.abort_update()
            self._pause()
            with self._asking(EngineEvent.BEGIN_UPDATE):
                self._served.seen(self._server.models())
                self._served.drop_all_but(self.memory.adapters())

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Acknowledge a version whose bytes are those that the server's own base is proven to have; refuse any other.

        A server that was paused when it was asked what it holds has not proven its base yet. It does so now.

        Raises:
            EngineError: no update is open, or the server lacks these bytes: over HTTP alone vLLM takes no base weights.
        """
        with self._lock:
            self._books.decided(EngineEvent.SEND_BASE, group=group, version=version)
            found, held = digest(dict(tensors)), self._held
            is_held = held is not None and (held.versions.get(group) == version or held.digests.get(group) == found)
            if is_held and self._lacks_base():
                with self._while_it_serves(within_update=True):
                    self._prove_base()
            if not is_held or group not in dict(self.memory.versions):
                lacks = f"it lacks {group} version {version}, and base weights are not sent over HTTP"
                known_way = "start it on the trainer's own base and prove that with hold_base(held_base(...))"
                other_way = "or push it on a GPU by vLLM's weight transfer with weight_source(lease), and then prove it"
                raise EngineError(self._name, f"{lacks}; {known_way}, {other_way}")
            self._books.declared({group: version})

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Serve one version of an adapter, in place of the one before it.

        Raises:
            EngineRefused: the server does not take it; what it served before it serves on.
            EngineError: no update is open, the payload is none, or what it serves is unknown now.
        """
        with self._lock:
            group = adapter_group(payload.name)
            self._books.decided(EngineEvent.LOAD_ADAPTER, group=group, version=payload.version)
            self._need_factors(payload)
            try:
                path = self._files.write(payload)
            except AdapterError as error:
                raise EngineError(self._name, str(error)) from error
            with self._asking(EngineEvent.LOAD_ADAPTER, group=group, version=payload.version):
                self._served.put(payload.name, path)

    def _need_factors(self, payload: AdapterPayload) -> None:
        """Check what vLLM does not: a factor of another width, or one that is not finite, it copies without a word."""
        for name, one in payload.tensors.items():
            rank_at = 0 if ".lora_A." in name else 1
            if one.dim() != 2 or one.shape[rank_at] != payload.rank:  # noqa: PLR2004 - a matrix
                raise EngineError(
                    self._name, f"{payload.name}: {name} is {tuple(one.shape)}, its rank is {payload.rank}"
                )
            if not bool(torch.isfinite(one).all()):
                raise EngineError(self._name, f"{payload.name}: {name} has values that are not finite; it is not sent")

    def unload_adapter(self, name: str) -> None:
        """Serve one adapter no longer. One that is not served is no error.

        Raises:
            EngineError: no update is open, or it did not answer.
        """
        with self._lock, self._asking(EngineEvent.UNLOAD_ADAPTER, group=adapter_group(name)):
            self._served.drop(name)

    def commit_update(self) -> None:
        """Forget cached prefixes, see that it serves what it was sent, and admit requests again.

        Raises:
            EngineError: no update is open, a call of it failed, the caches were not reset, or the server was restarted
                meanwhile or lists something else than it was sent.
        """
        with self._lock:
            self._flush()
            with self._asking(EngineEvent.COMMIT_UPDATE):
                self._confirm()
            self._served.tidy()
            self._open_if_wanted()

    def _confirm(self) -> None:
        instance = self._server.info().instance_id
        if instance != self.memory.instance_id:
            raise EngineError(self._name, f"it was restarted during the update ({instance} answers); push again")
        self._served.seen(self._server.models())
        memory = self.memory
        wanted = dict(memory.versions) | {group: one for group, one in memory.touched if one is not None}
        wrong = [
            group for group, one in wanted.items()
            if is_adapter(group) and not self._served.serves(group, one)
        ]  # fmt: skip
        if wrong:
            raise EngineError(self._name, f"it does not list what it was sent ({', '.join(wrong)}); push again")

    def abort_update(self) -> None:
        """Give up the open update, if there is one: what it sent is not served.

        If it had sent nothing, requests are admitted again; else none are until an update was committed, as its caches
        were not flushed since.
        """
        with self._lock, self._asking(EngineEvent.ABORT_UPDATE) as step:
            if step.settled:
                return
            touched = [group.removeprefix(ADAPTER_PREFIX) for group, _ in self.memory.touched if is_adapter(group)]
            for name in touched:
                self._served.drop(name)
        with self._lock:
            self._served.tidy()
            self._open_if_wanted()
