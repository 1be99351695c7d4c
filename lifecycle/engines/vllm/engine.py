"""A vLLM server as a rollout engine. Read docs/engines.md for what is and is not covered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lifecycle.engines.adapter_files import AdapterFiles
from lifecycle.engines.http import EngineHttp
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS, AdapterPayload
from lifecycle.engines.vllm.contact import TAGS, WhenBusy
from lifecycle.engines.vllm.held_base import HeldBase
from lifecycle.engines.vllm.requests import VllmRequests
from lifecycle.engines.vllm.served import ServedAdapters
from lifecycle.engines.vllm.server import VllmServer
from lifecycle.errors import AdapterError, ConfigError, EngineError
from lifecycle.weights.digests import digest
from states import ADAPTER_PREFIX, adapter_group
from states.engine_memory import EngineEvent, EngineSaid, TagState, is_adapter

_AWAY: Final = (TagState.RELEASED, TagState.DISCARDED, TagState.UNKNOWN)


class VllmEngine(VllmRequests):
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
        if not min(load_timeout_s, generate_timeout_s, drain_s) > 0:
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
        """Serve none of our adapters any more, as far as the server answers, and remove their files."""
        with self._lock:
            try:
                self._served.seen(self._server.models())
                self._served.drop_all_but(())
            except EngineError as error:
                self._books.lost(f"it did not answer when it was closed: {error.why}")
            self._served.tidy()
            self._http.close()

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
            self._is_held_back = True

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Acknowledge a version whose bytes are those that the server's own base was proven to have; refuse any other.

        Raises:
            EngineError: no update is open, or the server lacks these bytes: over HTTP alone vLLM takes no base weights.
        """
        with self._lock:
            self._books.decided(EngineEvent.SEND_BASE, group=group, version=version)
            found = digest(dict(tensors))
            known = self._held.digests.get(group) if self._held is not None else None
            if known != found or group not in dict(self.memory.versions):
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
            with self._asking(EngineEvent.FLUSH) as step:
                if not step.settled:
                    self._server.reset_prefix_cache()
            with self._asking(EngineEvent.COMMIT_UPDATE):
                self._confirm()
            self._is_held_back = False
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

        If it had sent nothing, requests are admitted again; else none are until an update was committed.
        """
        with self._lock, self._asking(EngineEvent.ABORT_UPDATE) as step:
            if step.settled:
                return
            touched = [group.removeprefix(ADAPTER_PREFIX) for group, _ in self.memory.touched if is_adapter(group)]
            for name in touched:
                self._served.drop(name)
        with self._lock:
            self._served.tidy()
            self._is_held_back = bool(touched)
            self._open_if_wanted()

    # memory

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Drain, and give back the memory of these tags; those already released are skipped.

        vLLM releases ``weights`` only together with ``kv_cache``, and ``kv_cache`` alone only on a device.

        Args:
            tags: ``weights``, ``kv_cache`` or both.
            discard: keep no copy of the weights (sleep level 2).

        Raises:
            EngineError: a set of tags that it cannot release, requests do not end, or it did not answer.
        """
        with self._lock:
            self._probe_if_lost()
            wanted = tuple(tags)
            self._need_releasable(wanted, discard=discard)
            self._pause()
            event = EngineEvent.DISCARD if discard else EngineEvent.RELEASE
            with self._asking(event, tags=wanted) as step:
                if WEIGHTS in step.tags:
                    self._server.sleep(2 if discard else 1)
                elif step.tags:
                    self._server.release_kv_cache()

    def _need_releasable(self, wanted: tuple[str, ...], *, discard: bool) -> None:
        states = dict(self.memory.tags)
        going = [tag for tag in TAGS if tag in wanted and states[tag] is TagState.RESIDENT]
        if going and not self._info.sleeps:
            raise EngineError(self._name, "its memory cannot be released; start it with --enable-sleep-mode")
        if going == [WEIGHTS] and states[KV_CACHE] is TagState.RESIDENT:
            raise EngineError(self._name, f"it releases {WEIGHTS} only together with {KV_CACHE}; name both")
        if going == [KV_CACHE] and (self._info.device == "cpu" or states[WEIGHTS] is not TagState.RESIDENT):
            why = "on the CPU" if self._info.device == "cpu" else f"while {WEIGHTS} is released"
            raise EngineError(self._name, f"it does not release {KV_CACHE} alone {why}; release both from resident")
        if discard and WEIGHTS in wanted and states[WEIGHTS] is TagState.RELEASED:
            raise EngineError(self._name, f"it cannot discard {WEIGHTS} while they are released; resume them first")

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again; those that are resident are skipped.

        Where a call that failed has left it unknown what is released, all of it is taken: no other call is certain.

        Raises:
            EngineError: an unknown tag, or it did not do it, or did not answer.
        """
        with self._lock:
            self._probe_if_lost()
            woke = TagState.UNKNOWN in dict(self.memory.tags).values()
            if woke:
                self._resume_whatever_sleeps()
            with self._asking(EngineEvent.RESUME, tags=tuple(tags)) as step:
                if not step.settled:
                    self._wake(step.tags)
            if (woke or step.tags) and not self.memory.in_state(*_AWAY):
                self._settle_admission()

    def _wake(self, tags: tuple[str, ...]) -> None:
        awake = self._server.wake_up(tags)
        left = set(self.memory.in_state(*_AWAY)) - set(tags)
        if awake == bool(left):
            what = "is wholly awake" if awake else "sleeps on"
            raise EngineError(self._name, f"it {what} after resume({', '.join(tags)}); report() says what it holds")

    def _resume_whatever_sleeps(self) -> None:
        self._or_lost(lambda: self._server.wake_up(()), "waking all of it")
        tags = dict.fromkeys(TAGS, TagState.RESIDENT)
        self._books.probed(EngineSaid(instance_id=self.memory.instance_id, is_open=False, tags=tags, versions={}))

    def _settle_admission(self) -> None:
        """Undo what vLLM does by itself: it admits requests as soon as its last tag is resident, valid or not."""
        if self._may_open():
            self._unpause()
        else:
            self._or_lost(self._server.hold, "holding requests after a wake")
