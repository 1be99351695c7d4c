"""What is known of a vLLM server, and what keeps that true. The books are asked before each call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from threading import RLock
from typing import Any, Final

from lifecycle.engines.books import EngineBooks
from lifecycle.engines.protocol import KV_CACHE, WEIGHTS
from lifecycle.engines.vllm.held_base import HeldBase
from lifecycle.engines.vllm.served import ServedAdapters
from lifecycle.engines.vllm.server import ServerInfo, VllmServer
from lifecycle.engines.vllm.serving import InFlight
from lifecycle.errors import EngineError
from states.engine_decision import EngineStep
from states.engine_memory import EngineEvent, EngineMemory, EngineSaid, EngineState, TagState, is_adapter
from states.names import FROZEN_BASE

TAGS: Final = (WEIGHTS, KV_CACHE)
_TAG_MOVES: Final = (EngineEvent.RELEASE, EngineEvent.DISCARD, EngineEvent.RESUME)
_WRITES: Final = (EngineEvent.LOAD_ADAPTER, EngineEvent.UNLOAD_ADAPTER)


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
        self._is_half_way = False  # an update has written and was not committed
        self._certain: dict[str, TagState] = {}

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def memory(self) -> EngineMemory:
        """What is known of it now, without asking it."""
        return self._books.memory

    def _probe(self) -> None:
        memory, before = self.memory, self._info.instance_id
        self._info, models, sleeps = self._server.info(), self._server.models(), self._server.is_sleeping()
        self._served.seen(models)
        self._base_model = models.base
        is_known = self._info.instance_id == before
        self._is_half_way = self._is_half_way and is_known
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
        self._is_half_way = self._is_half_way or event in _WRITES
        try:
            with self._books.asking(event, **asked) as step:
                yield step
            if event is EngineEvent.COMMIT_UPDATE:
                self._is_half_way = False
        except BaseException:
            known = event not in _TAG_MOVES and TagState.UNKNOWN not in tags.values()
            self._certain = tags if known else {}
            raise

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
