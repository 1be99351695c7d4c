"""Ranks in threads of one process, whose collectives are counted: for what costs what, and what comes of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lifecycle.distributed import RankAgreement
from states.agreement_requests import Claim, Connect, Count, Gather, GroupLost, Look, Now, Pause, Put, Share

_ANSWER_S = 30.0


class Hub:
    """What the ranks meet over.

    Attributes:
        collectives: how many of each kind there were, the hellos of new groups aside.
        payload_bytes: what the ranks put into them.
    """

    def __init__(self, world: int) -> None:
        self.world = world
        self.collectives: Counter[str] = Counter()
        self.payload_bytes = 0
        self._barrier = threading.Barrier(world)
        self._given: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self.store: dict[str, str] = {}

    def agreements(self, *, registry_from: int | None = None) -> list[RankAgreement]:
        """One a rank. They have met already: what is counted from now on is what they say."""
        made = [
            RankAgreement(rank, self.world, _Transport(self, rank), timeout_s=20.0, registry_from=registry_from)
            for rank in range(self.world)
        ]
        self.all(lambda rank: made[rank].newest(0))
        self.forget()
        return made

    def forget(self) -> None:
        """Count anew."""
        self.collectives.clear()
        self.payload_bytes = 0

    def all(self, do: Callable[[int], Any]) -> list[Any]:
        """Let all ranks do something together, in a thread each. What came of it, by rank; what one raised too."""
        found: list[Any] = [None] * self.world

        def run(rank: int) -> None:
            try:
                found[rank] = do(rank)
            except Exception as error:  # noqa: BLE001 - the test looks at it
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(self.world)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(_ANSWER_S)
            assert not one.is_alive(), "a rank waits for ever"
        return found

    def exchange(self, rank: int, kind: str, payload: bytes) -> list[bytes]:
        """Everybody's payload, when all are there."""
        with self._lock:
            self._given[rank] = payload
        try:
            self._barrier.wait(_ANSWER_S)
            held = [self._given[one] for one in range(self.world)]
            if self._barrier.wait(_ANSWER_S) == 0:
                self.collectives[kind] += 1
                self.payload_bytes += sum(map(len, held))
            self._barrier.wait(_ANSWER_S)
        except threading.BrokenBarrierError as broken:
            raise GroupLost("a thread is gone") from broken
        return held


class _Transport:
    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self._rank = hub, rank

    def drive(self, asking: Any) -> Any:
        try:
            request = next(asking)
            while True:
                try:
                    answer = self._answer(request)
                except GroupLost as lost:
                    request = asking.throw(lost)
                else:
                    request = asking.send(answer)
        except StopIteration as done:
            return done.value

    def close(self) -> None:
        pass

    def _answer(self, request: Any) -> Any:
        hub, rank = self._hub, self._rank
        if isinstance(request, Now):
            return time.monotonic()
        if isinstance(request, Pause):
            return time.sleep(request.seconds)
        if isinstance(request, Gather):
            return b"".join(hub.exchange(rank, "Gather", request.payload))
        if isinstance(request, Share):
            payload = request.payload if rank in request.ranks else b""
            held = hub.exchange(rank, "Share", payload)
            return tuple(held[one] for one in request.ranks)
        return None if isinstance(request, Connect) else self._of_store(request)

    def _of_store(self, request: Any) -> Any:
        store = self._hub.store
        with self._hub._lock:
            if isinstance(request, Put):
                store[request.key] = request.value
                return None
            if isinstance(request, Claim):
                return store.setdefault(request.key, request.value)
            if isinstance(request, Count):
                store[request.key] = str(int(store.get(request.key, "0")) + 1)
                return int(store[request.key])
            assert isinstance(request, Look), request
            return [store.get(key) for key in request.keys]


def alike(found: Sequence[Any]) -> Any:
    """What all ranks came to, which has to be one thing."""
    assert all(one == found[0] for one in found), found
    return found[0]
