"""The agreement over torch.distributed: a gloo group of its own and a store outside the ranks.

The group is none of the process's own groups: it stands without a default group, and what ``sleep`` tears down, or user
code destroys, leaves it up. It carries a few hundred bytes and never a tensor of the trainer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from lifecycle.distributed.errors import StoreLost
from lifecycle.distributed.hosting import LOOPBACK, parse_address
from lifecycle.wording import first_line
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
    Request,
    Share,
)

T = TypeVar("T")
_dist: Any = dist  # type stubs leave out most of what is used here
_c10d: Any = distributed_c10d
_SIZE_BYTES: Final = 8
_SHARED_MAX_BYTES: Final = 1 << 28


class GlooTransport:
    """Answers the protocol's requests for one rank.

    Args:
        rank: of this process.
        world: how many ranks there are.
        store: ``HOST:PORT`` of the store.
        run: name of the run; ranks of different runs can share a store.
        host: address of this machine at which other ranks reach this one; loopback unless told otherwise.
        timeout_s: how long the store may take to answer, in seconds.

    Raises:
        ConfigError: the store's address is none.
        StoreLost: no store answers there.
    """

    def __init__(
        self, rank: int, world: int, store: str, *, run: str = "run", host: str = LOOPBACK, timeout_s: float = 60.0
    ) -> None:
        where, port = parse_address(store)
        self._address, self._rank, self._world, self._host = store, rank, world, host
        self._prefix = f"lifecycle/{run}/"
        self._group: Any = None
        timeout = timedelta(seconds=timeout_s)
        self._store = self._of_store(
            lambda: _dist.TCPStore(where, port, is_master=False, wait_for_workers=False, timeout=timeout)
        )
        self._answers: dict[type[Request], Callable[[Any], object]] = {
            Gather: self._gather,
            Share: self._share,
            Connect: self._connect,
            Disconnect: lambda _: self.close(),
            Put: self._put,
            Claim: lambda one: self._of_store(lambda: self._claim(one)),
            Count: lambda one: self._of_store(lambda: self._store.add(self._prefix + one.key, 1)),
            Look: lambda one: self._of_store(lambda: self._look(one)),
            Now: lambda _: time.monotonic(),
            Pause: lambda one: time.sleep(one.seconds),
        }

    def drive(self, asking: Asking[T]) -> T:
        """Take a part of the protocol through to its result.

        Raises:
            StoreLost: the store does not answer.
        """
        try:
            request = next(asking)
            while True:
                try:
                    answer = self._answers[type(request)](request)
                except GroupLost as lost:
                    request = asking.throw(lost)
                else:
                    request = asking.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        except BaseException:
            self.close()  # whoever waits for this rank shall not wait for long
            raise

    def close(self) -> None:
        """Give the group up. Idempotent; the next meeting builds another."""
        self._group = None

    def _connect(self, one: Connect) -> None:
        options = _dist.ProcessGroupGloo._Options()  # noqa: SLF001 - the one way to say which address is used
        options._devices = [_dist.ProcessGroupGloo.create_device(hostname=self._host)]  # noqa: SLF001
        options._timeout = timedelta(seconds=one.timeout_s)  # noqa: SLF001
        store = _dist.PrefixStore(f"{self._prefix}{one.generation}/gloo", self._store)
        self._group = _or_lost(lambda: _dist.ProcessGroupGloo(store, self._rank, self._world, options))

    def _gather(self, one: Gather) -> bytes:
        held = bytearray(len(one.payload) * self._world)
        options = _c10d.AllgatherOptions()
        options.timeout = timedelta(seconds=one.timeout_s)
        group = self._up()
        _or_lost(lambda: group._allgather_base(_tensor(held), _tensor(one.payload), options).wait())  # noqa: SLF001
        return bytes(held)

    def _share(self, one: Share) -> tuple[bytes, ...]:
        return tuple(self._from(root, one.payload if root == self._rank else b"", one.timeout_s) for root in one.ranks)

    def _from(self, root: int, payload: bytes, timeout_s: float) -> bytes:
        size = int.from_bytes(self._broadcast(root, bytearray(len(payload).to_bytes(_SIZE_BYTES, "big")), timeout_s))
        if size > _SHARED_MAX_BYTES:
            raise GroupLost(f"rank {root} wants to tell {size} bytes")
        if size == 0:
            return b""
        return self._broadcast(root, bytearray(payload) if root == self._rank else bytearray(size), timeout_s)

    def _broadcast(self, root: int, held: bytearray, timeout_s: float) -> bytes:
        options = _c10d.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        options.timeout = timedelta(seconds=timeout_s)
        group = self._up()
        _or_lost(lambda: group.broadcast([_tensor(held)], options).wait())
        return bytes(held)

    def _up(self) -> Any:
        if self._group is None:
            raise GroupLost("it was given up")
        return self._group

    def _put(self, one: Put) -> None:
        try:
            self._store.set(self._prefix + one.key, one.value)
        except RuntimeError:
            return  # nobody waits for it; whoever needs the store next says so

    def _claim(self, one: Claim) -> str:
        return bytes(self._store.compare_set(self._prefix + one.key, "", one.value)).decode()

    def _look(self, one: Look) -> list[str | None]:
        keys = [self._prefix + key for key in one.keys]
        if self._store.check(keys):
            return [bytes(value).decode() for value in self._store.multi_get(keys)]
        return [bytes(self._store.get(key)).decode() if self._store.check([key]) else None for key in keys]

    def _of_store(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except RuntimeError as error:  # torch's own errors of stores and networks are of this kind
            raise StoreLost(self._address, first_line(error)) from error


def _tensor(held: bytes | bytearray) -> torch.Tensor:
    return torch.frombuffer(held if isinstance(held, bytearray) else bytearray(held), dtype=torch.uint8)


def _or_lost(call: Callable[[], T]) -> T:
    try:
        return call()
    except RuntimeError as error:
        raise GroupLost(str(error)) from error
