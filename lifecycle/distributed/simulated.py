"""The agreement in one process and in simulated time: thousands of ranks, and every fault on request.

The same protocol runs as over gloo. What is simulated is only what carries its messages: a group whose collectives take
as long as the model says and break when a rank is lost, and a store that serves one request at a time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from states.agreement_requests import (
    Asking,
    Claim,
    Connect,
    Count,
    Disconnect,
    Gather,
    GroupLost,
    Look,
    Now,
    Pause,
    Put,
    Share,
)

_STORE: Final = (Put, Claim, Count, Look)


@dataclass(frozen=True, slots=True)
class Model:
    """How long things take, in seconds. The defaults are of the order of gloo and a TCPStore inside one data center.

    Attributes:
        hop_s: one message from a rank to the next in a ring; a gather takes a hop a rank.
        byte_s: for each byte that a rank receives.
        connect_s: building a group, for each pair that a rank connects.
        store_s: one request to the store, which serves one at a time.
        store_key_s: for each key of a request.
        notice_s: until a rank hears that a connection broke.
    """

    hop_s: float = 20e-6
    byte_s: float = 1e-9
    connect_s: float = 100e-6
    store_s: float = 20e-6
    store_key_s: float = 0.5e-6
    notice_s: float = 200e-6


@dataclass
class _Group:
    """A generation's group: who is in the collective under way, and who has yet to hear what came of the last one."""

    waiting: dict[int, tuple[_Rank, Gather | Share | Connect]] = field(default_factory=dict)
    arriving: list[tuple[int, _Rank, int]] = field(default_factory=list)
    broken: bool = False


@dataclass
class _Rank:
    script: Generator[Any, Any, Any]
    generation: int = -1
    ticket: int = 0
    is_lost: bool = False
    stopped_until: float = 0.0


class Simulation:
    """Runs one script a rank. A script yields the protocol's requests, its own ``Pause`` for work included.

    Args:
        scripts: of each rank; a script that stands for a new process of a rank is added with :meth:`start`.
        model: how long things take.

    Attributes:
        now_s: simulated time.
        results: what the scripts returned, by rank; an exception that one raised is in its place.
        ended: the same for every process, as (rank, simulated time, result), in the order of their ends.
        sent: number and bytes of messages by kind of request, over all ranks; of a gather what each rank puts in.
        received_bytes: what one rank receives of gathers and shares, over all its meetings.
    """

    def __init__(self, scripts: list[Asking[Any]], model: Model | None = None) -> None:
        self.model = model if model is not None else Model()
        self.world = len(scripts)
        self.now_s = 0.0
        self.results: dict[int, Any] = {}
        self.ended: list[tuple[int, float, Any]] = []
        self.sent: Counter[tuple[str, str]] = Counter()
        self.received_bytes = 0
        self._store: dict[str, str] = {}
        self._store_free_s = 0.0
        self._groups: dict[int, _Group] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._ranks: dict[int, _Rank] = {}
        for rank, script in enumerate(scripts):
            self.start(rank, script)

    def start(self, rank: int, script: Asking[Any], at_s: float = 0.0) -> None:
        """Start a rank's script, or a new process in the place of a lost one."""

        def begin() -> None:
            self._ranks[rank] = one = _Rank(script)
            self._resume(rank, one, None)

        self._at(at_s, begin)

    def kill(self, rank: int, at_s: float) -> None:
        """End a rank as SIGKILL does: its connections close."""

        def end() -> None:
            one = self._ranks[rank]
            one.is_lost = True
            self._break(one.generation)

        self._at(at_s, end)

    def stop(self, rank: int, at_s: float, for_s: float) -> None:
        """Hold a rank as SIGSTOP and SIGCONT do: its connections stay, and it does not move."""

        def hold() -> None:
            self._ranks[rank].stopped_until = at_s + for_s

        self._at(at_s, hold)

    def cut(self, generation: int, at_s: float) -> None:
        """Break the connections of a generation's group, all ranks being there."""
        self._at(at_s, lambda: self._break(generation))

    def run(self, events: int | None = None) -> int:
        """Until nothing is left to happen, or for so many events. Returns how many there were."""
        count = 0
        while self._events and (events is None or count < events):
            self.now_s, _, happen = heapq.heappop(self._events)
            happen()
            count += 1
        return count

    def _at(self, when_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when_s, self.now_s), next(self._numbers), happen))

    def _answer(self, rank: int, one: _Rank, answer: object, after_s: float = 0.0) -> None:
        """Resume a rank later with an answer, unless it was answered otherwise in between."""
        ticket = one.ticket

        def resume() -> None:
            if one.stopped_until > self.now_s:
                self._at(one.stopped_until, resume)
            elif one.ticket == ticket and not one.is_lost:
                self._resume(rank, one, answer)

        self._at(self.now_s + after_s, resume)

    def _resume(self, rank: int, one: _Rank, answer: Any) -> None:
        one.ticket += 1
        try:
            request = one.script.throw(answer) if isinstance(answer, GroupLost) else one.script.send(answer)
        except StopIteration as done:
            self._end(rank, one, done.value)
        except Exception as error:  # noqa: BLE001 - a script's failure is its result
            self._end(rank, one, error)
        else:
            self._take(rank, one, request)

    def _end(self, rank: int, one: _Rank, result: object) -> None:
        one.is_lost = True
        self.ended.append((rank, self.now_s, result))
        if self._ranks[rank] is one:
            self.results[rank] = result

    def _take(self, rank: int, one: _Rank, request: Any) -> None:
        if isinstance(request, Now):
            self._answer(rank, one, self.now_s)
        elif isinstance(request, Pause):
            self._answer(rank, one, None, request.seconds)
        elif isinstance(request, Disconnect):
            self._break(one.generation)
            self._answer(rank, one, None)
        elif isinstance(request, _STORE):
            self._ask_store(rank, one, request)
        else:
            self._collect(rank, one, request)

    def _ask_store(self, rank: int, one: _Rank, request: Put | Claim | Count | Look) -> None:
        keys = request.keys if isinstance(request, Look) else (request.key,)
        self.sent[type(request).__name__, "messages"] += 1
        self.sent[type(request).__name__, "bytes"] += sum(map(len, keys))
        cost_s = self.model.store_s + len(keys) * self.model.store_key_s
        self._store_free_s = max(self._store_free_s, self.now_s) + cost_s
        done_s = self._store_free_s - self.now_s
        answer = self._apply(request)
        self._answer(rank, one, answer, 0.0 if isinstance(request, Put) else done_s)

    def _apply(self, request: Put | Claim | Count | Look) -> object:
        if isinstance(request, Put):
            self._store[request.key] = request.value
            return None
        if isinstance(request, Claim):
            return self._store.setdefault(request.key, request.value)
        if isinstance(request, Count):
            count = int(self._store.get(request.key, "0")) + 1
            self._store[request.key] = str(count)
            return count
        return [self._store.get(key) for key in request.keys]

    def _collect(self, rank: int, one: _Rank, request: Gather | Share | Connect) -> None:
        if isinstance(request, Connect):
            one.generation = request.generation
        group = self._groups.setdefault(one.generation, _Group())
        if group.broken:
            self._answer(rank, one, GroupLost("the connection is closed"), self.model.notice_s)
            return
        self.sent[type(request).__name__, "messages"] += 1
        self.sent[type(request).__name__, "bytes"] += len(getattr(request, "payload", b""))
        group.waiting[rank] = one, request
        if len(group.waiting) == self.world:
            self._complete(group)
        else:
            self._time_out(rank, one, request.timeout_s)

    def _time_out(self, rank: int, one: _Rank, timeout_s: float) -> None:
        ticket = one.ticket

        def give_up() -> None:
            if one.stopped_until > self.now_s:
                self._at(one.stopped_until, give_up)
            elif one.ticket == ticket and not one.is_lost and rank in self._groups[one.generation].waiting:
                self._break(one.generation)

        self._at(self.now_s + timeout_s, give_up)

    def _complete(self, group: _Group) -> None:
        first = group.waiting[0][1]
        after_s = self.model.hop_s * self.world
        answer: object = None
        if isinstance(first, Connect):
            after_s = self.model.connect_s * self.world
        else:
            told = [group.waiting[rank][1] for rank in range(self.world)]
            payloads = [one.payload for one in told if not isinstance(one, Connect)]
            shared = tuple(payloads[root] for root in first.ranks) if isinstance(first, Share) else ()
            answer = b"".join(payloads) if isinstance(first, Gather) else shared
            size = sum(map(len, payloads if isinstance(first, Gather) else shared))
            self.received_bytes += size
            after_s += size * self.model.byte_s
        waiting, group.waiting = group.waiting, {}
        group.arriving = [(rank, one, one.ticket) for rank, (one, _) in waiting.items()]
        for order, (rank, (one, _)) in enumerate(waiting.items()):
            self._answer(rank, one, answer, after_s + order * self.model.hop_s)

    def _break(self, generation: int) -> None:
        """A connection of the group is closed: everybody in it notices."""
        group = self._groups.get(generation)
        if group is None or group.broken:
            return
        group.broken = True
        waiting, group.waiting = group.waiting, {}
        for rank, (one, _) in waiting.items():
            self._answer(rank, one, GroupLost("connection closed by peer"), self.model.notice_s)
        # A collective can be through on some ranks when it breaks on others.
        for rank, one, ticket in group.arriving:
            if one.ticket == ticket:
                self._answer(rank, one, GroupLost("connection closed by peer"))
