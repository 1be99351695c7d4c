"""One rollout engine for all ranks: one rank calls it, and every rank comes to the same end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from torch import Tensor

from lifecycle.distributed.errors import RanksApart
from lifecycle.distributed.outcomes import Malformed, crosses, read_outcome, told_error, told_value
from lifecycle.engines.protocol import AdapterPayload, EngineReport, RolloutEngine
from lifecycle.engines.verifying import AnswersChecksums, AnswersGreedily
from lifecycle.errors import ConfigError, EngineError, IncompletePush, LifecycleError
from lifecycle.transport import ChoosesTransport, HoldsTransport, Note
from states.seat import Seat

T = TypeVar("T")

_OPTIONAL: Final[Mapping[str, type]] = {
    "checksums": AnswersChecksums,
    "greedy": AnswersGreedily,
    "outstanding_bytes": HoldsTransport,
    "transport_notes": ChoosesTransport,
}
"""The one method of each optional protocol."""


class Tells(Protocol):
    """What a shared engine needs of a :class:`~lifecycle.distributed.RankAgreement`."""

    seat: Seat

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:
        """What rank *by* says, on every rank."""


class SharedEngine:
    """One engine for all ranks. Only one rank has it and calls it; what came of a call is told to all.

    Every rank makes one, at the same place of the run, and hands it to its trainer as any engine; every call is a
    meeting, so every rank makes the same calls in the same order. A call gives the same value on every rank, or raises
    the same error. The engine gets each push once: what the other ranks have to send is taken from their iterators,
    which may be collective, and not sent. So what the one rank sends has to be whole, as exports of adapters are.

    Of the optional protocols of an engine it has those that the real one has: ``checksums``, ``greedy``,
    ``outstanding_bytes`` and ``transport_notes``. The last two are about the memory and the way of the one rank, and
    are no meetings: elsewhere nothing is outstanding, and there is nothing to note.

    Args:
        engine: the engine on rank *by*, None elsewhere. It stays the caller's: what is no part of the protocol, such as
            requests to generate, is asked of it directly.
        ranks: the agreement that the trainers have.
        name: the engine's name.
        by: the rank that has it.

    Raises:
        ConfigError: rank *by* has no engine, or one of another name, or another rank has one.
        RanksMissing, RankFenced, RanksDisagree, RanksFailed: as :meth:`~lifecycle.distributed.RankAgreement.told`, of
            this and of every call.
        RanksApart: ranks make different calls, of every call too.
    """

    checksums: Callable[[str], Mapping[str, str] | None]
    greedy: Callable[[str, Sequence[Sequence[int]], int], tuple[tuple[int, ...], ...]]
    outstanding_bytes: Callable[[], int]
    transport_notes: Callable[[], Sequence[Note]]

    def __init__(self, engine: RolloutEngine | None, ranks: Tells, *, name: str, by: int = 0) -> None:
        if not isinstance(by, int) or not 0 <= by < ranks.seat.world:
            raise ConfigError(f"by is {by!r}; use the number of a rank, 0 to {ranks.seat.world - 1}")
        self._engine, self._ranks, self._name, self._by = engine, ranks, name, by
        self._is_mine = ranks.seat.rank == by
        abilities = self._ask("abilities()", self._abilities, tuple[str, ...])
        if engine is not None and not self._is_mine:
            raise ConfigError(f"rank {by} has the engine {name}; pass None on rank {ranks.seat.rank}, not an engine")
        for one in abilities:
            setattr(self, one, getattr(self, f"_{one}"))

    @property
    def name(self) -> str:
        """The engine's name."""
        return self._name

    def report(self) -> EngineReport:
        """What the engine holds."""

        def ask() -> EngineReport:
            said = self._real().report()
            return replace(said, versions=dict(said.versions), device_bytes=dict(said.device_bytes))

        return self._ask("report()", ask, EngineReport)

    def begin_update(self) -> None:
        """Pause admission, drain, drop caches that depend on weights."""
        self._do("begin_update()", lambda: self._real().begin_update())

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Write the tensors of one base group. All are taken, on every rank, whatever the engine does."""
        call = f"send_base({group}, {version})"
        if not self._is_mine:
            for _ in tensors:
                pass
        self._do(call, lambda: self._send_base(group, version, iter(tensors)))

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Load or replace one adapter. The payload of the other ranks is not read."""
        self._do(f"load_adapter({payload.name}, {payload.version})", lambda: self._real().load_adapter(payload))

    def unload_adapter(self, name: str) -> None:
        """Drop one adapter."""
        self._do(f"unload_adapter({name})", lambda: self._real().unload_adapter(name))

    def commit_update(self) -> None:
        """Make what was sent the served content."""
        self._do("commit_update()", lambda: self._real().commit_update())

    def abort_update(self) -> None:
        """Give up the update. The rank that has the engine does, also where ranks are missing or have failed."""
        self._do("abort_update()", lambda: self._real().abort_update())

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Give back the memory of these tags."""
        held, how = tuple(tags), {"discard": True} if discard else {}
        self._do(f"release({', '.join(held)}; {discard})", lambda: self._real().release(held, **how))

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again."""
        held = tuple(tags)
        self._do(f"resume({', '.join(held)})", lambda: self._real().resume(held))

    # what only some engines have

    def _checksums(self, group: str) -> Mapping[str, str] | None:
        real: Any = self._engine

        def ask() -> dict[str, str] | None:
            given = real.checksums(group)
            return None if given is None else dict(given)

        return self._ask(f"checksums({group})", ask, dict[str, str] | None)

    def _greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        real: Any = self._engine
        call = f"greedy({adapter}, {len(prompts)}, {max_new_tokens})"
        kind = tuple[tuple[int, ...], ...]
        return self._ask(call, lambda: real.greedy(adapter, prompts, max_new_tokens), kind)

    def _outstanding_bytes(self) -> int:
        return self._engine.outstanding_bytes() if isinstance(self._engine, HoldsTransport) else 0

    def _transport_notes(self) -> Sequence[Note]:
        return self._engine.transport_notes() if isinstance(self._engine, ChoosesTransport) else ()

    # how

    def _abilities(self) -> tuple[str, ...]:
        engine = self._engine
        if not isinstance(engine, RolloutEngine):
            raise ConfigError(f"rank {self._by} has no engine {self._name}; pass it there, and None elsewhere")
        if engine.name != self._name:
            raise ConfigError(
                f"the engine of rank {self._by} is called {engine.name!r}, not {self._name!r}; name it so"
            )
        return tuple(name for name, one in _OPTIONAL.items() if isinstance(engine, one))

    def _send_base(self, group: str, version: int, tensors: Iterator[tuple[str, Tensor]]) -> None:
        """The engine takes what it takes; what is left is taken after it, since the other ranks take all."""
        left: list[str] = []
        try:
            self._real().send_base(group, version, tensors)
        finally:
            left.extend(name for name, _ in tensors)
        if left:
            raise IncompletePush(group, version, left)

    def _real(self) -> RolloutEngine:
        assert self._engine is not None  # only rank *by* asks, and it was checked there
        return self._engine

    def _do(self, call: str, do: Callable[[], None]) -> None:
        self._ask(call, do, type(None))

    def _ask(self, call: str, do: Callable[[], T], kind: Any) -> T:
        """Call the engine, or hear what came of it."""
        told: bytes | None = None
        mine: LifecycleError | None = None
        if self._is_mine:
            told, mine = self._called(call, do)
        held = self._ranks.told(told, by=self._by)
        if mine is not None:
            raise mine
        found: T = self._read(held, call, kind)
        return found

    def _called(self, call: str, do: Callable[[], object]) -> tuple[bytes, LifecycleError | None]:
        try:
            return told_value(call, do()), None
        except Exception as error:  # noqa: BLE001 - whatever it raises: the other ranks wait to hear of it
            mine = error
        if not isinstance(mine, LifecycleError) or not crosses(mine):
            because = mine
            mine = EngineError(self._name, f"{call} failed on rank {self._by}: {type(because).__name__}: {because}")
            mine.__cause__ = because
        return told_error(call, mine), mine

    def _read(self, held: bytes, call: str, kind: Any) -> Any:
        try:
            made, value, error = read_outcome(held, kind)
        except Malformed as malformed:
            why = f"what rank {self._by} told of {call} is malformed: {malformed}; run the same library on every rank"
            raise EngineError(self._name, why) from malformed
        if made != call:
            raise RanksApart(self._name, self._by, made, call)
        if error is not None:
            raise error
        return value
