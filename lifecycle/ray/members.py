"""The actors of a group: how they are started, called, replaced and ended. Nothing is left behind, whatever fails."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final

import ray
import ray.util.scheduling_strategies

from lifecycle.distributed.errors import RankFenced
from lifecycle.errors import ConfigError
from lifecycle.ray.calls import Handle, Limits, collect, need_ray, sent
from lifecycle.ray.errors import GroupError, RankLost, joint_of
from lifecycle.ray.place import Meeting, Place, host_of
from lifecycle.ray.rank import RankProcess
from lifecycle.ray.registry import RegistryProxy, start_registry
from lifecycle.ray.store_actor import StoreActor

_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OURS: Final = ("name", "max_restarts", "max_concurrency", "max_task_retries", "lifetime")
_LEAVE_S: Final = 10.0
_WORLD_MIN: Final = 2
_STORE: Final = -1
"""The key of the store's actor where ranks are keys."""


class Members:
    """The actors of one group.

    Args:
        build: the owner's function.
        world: how many ranks.
        name: of the run.
        options: of the ranks' actors.
        limits: of calls.
        start_s: how long the actors may take to start, in seconds.

    Attributes:
        lost: ranks whose process ended or did not answer, with what is known of it.
    """

    def __init__(
        self,
        build: Callable[..., object],
        world: int,
        name: str,
        options: object,
        limits: Limits,
        start_s: float,
    ) -> None:
        _check(build, world, name, (limits.call_s, limits.meeting_s, start_s))
        self._build, self._world, self._name = build, world, name
        self._options = _each(options, world)
        self._limits, self._start = limits, Limits(start_s)
        self._registry: RegistryProxy | None = None
        self._owns_registry = self._is_closed = False
        self._actors: dict[int, Handle] = {}
        self._meetings: dict[int, Meeting] = {}
        self._places: dict[int, Place] = {}
        self._asking = Lock()
        self.lost: dict[int, RankLost] = {}

    def start(self, registry: RegistryProxy | int | None) -> RegistryProxy | None:
        """Start everything, or nothing.

        Raises:
            ConfigError: Ray is not initialised, or the registry cannot be.
            GroupError: a rank failed.
        """
        need_ray()
        try:
            self._have_registry(registry)
            self._actors = {_STORE: ray.remote(StoreActor).options(num_cpus=0, max_restarts=0).remote()}
            for rank in range(self._world):
                self._actors[rank] = self._new(rank, {})
            self._places = self._collect("start", self._actors, lambda _, one: one.place.remote(), self._start)
            self._meet()
            self._load(self._ranks(), "build")
            hasty = replace(self._limits, is_hasty=True)
            self._collect("build", self._ranks(), lambda rank, one: self._built(rank, one, joins=False), hasty)
        except BaseException:
            self.close(is_built=False)
            raise
        return self._registry

    def all(self, call: str, method: str, /, *args: object, **kwargs: object) -> dict[int, Any]:
        """One call to every rank. See :func:`~lifecycle.ray.calls.collect`."""
        self._refuse_lost(call)
        return self._collect(call, self._ranks(), lambda _, one: getattr(one, method).remote(*args, **kwargs))

    def each(self, call: str, shares: Sequence[object], /, **kwargs: object) -> dict[int, Any]:
        """A call of the owner's method with another argument on every rank."""
        self._refuse_lost(call)
        held = [sent(f"{call}: the share of rank {rank}", one) for rank, one in enumerate(shares)]
        return self._collect(call, self._ranks(), lambda rank, one: one.call.remote(call, held[rank], **kwargs))

    def there(self, call: str, method: str, /, *args: object, **kwargs: object) -> dict[int, Any]:
        """A question to the ranks that are not lost."""
        there = {rank: one for rank, one in self._ranks().items() if rank not in self.lost}
        return self._collect(call, there, lambda _, one: getattr(one, method).remote(*args, **kwargs))

    def replace(self, ranks: Sequence[int]) -> None:
        """New processes in the places of ranks. See :meth:`~lifecycle.ray.TrainerGroup.replace`."""
        self._check_replaced(ranks)
        leaving = sorted({*ranks, *self.lost})
        if not leaving:
            return
        there = {one: actor for one, actor in self._ranks().items() if one not in leaving}
        for rank in leaving:
            self.lost[rank] = RankLost(rank, "it is being replaced", is_dead=True)
            ray.kill(self._actors[rank], no_restart=True)
            self._actors[rank] = self._new(rank, self._same_node(rank))
        found = {one: actor.find_loss.remote(min(there)) for one, actor in there.items()}  # while the new ones start
        new = {rank: self._actors[rank] for rank in leaving}
        self._places |= self._collect("replace", new, lambda _, one: one.place.remote(), self._start)
        self._load(new, "replace")
        self._collect("replace", there, lambda one, _: found[one])
        for rank in leaving:
            self._meetings[rank] = replace(self._meetings[rank], host=self._host(rank))
        self._collect("replace", self._ranks(), lambda one, actor: self._joined(one in new, one, actor))
        for rank in leaving:
            del self.lost[rank]

    def close(self, *, is_built: bool = True) -> None:
        """End all, and wait until it has ended. Idempotent, never raises.

        Args:
            is_built: ranks have something to leave properly; those that are being built may be waiting for each other.
        """
        if self._is_closed or not ray.is_initialized():
            return
        self._is_closed = True
        there = [one for rank, one in self._ranks().items() if is_built and rank not in self.lost]
        try:
            _wait_for([one.leave.remote() for one in there])
        finally:  # also when the wait is interrupted
            for actor in self._actors.values():
                ray.kill(actor, no_restart=True)
            _wait_for([one.place.remote() for one in self._actors.values()])  # answered when they are dead
            if self._owns_registry and self._registry is not None:
                self._registry.close()

    # how

    def _ranks(self) -> dict[int, Handle]:
        return {rank: one for rank, one in self._actors.items() if rank != _STORE}

    def _have_registry(self, registry: RegistryProxy | int | None) -> None:
        if registry is None or isinstance(registry, RegistryProxy):
            self._registry = registry
            return
        self._registry = start_registry(f"{self._name}/registry", registry)
        self._owns_registry = True

    def _new(self, rank: int, more: Mapping[str, object]) -> Handle:
        options = {**self._options[rank], **more, "max_restarts": 0}
        return ray.remote(RankProcess).options(**options).remote(rank, self._world)

    def _meet(self) -> None:
        """Open the store, at an address that all can reach."""
        store = {_STORE: self._actors[_STORE]}
        host = self._host(_STORE)
        address = self._collect("start", store, lambda _, one: one.open.remote(host), self._start)[_STORE]
        for rank in self._ranks():
            self._meetings[rank] = Meeting(address, self._name, self._host(rank), self._limits.meeting_s)

    def _host(self, rank: int) -> str:
        return host_of(self._places[rank], self._places.values())

    def _load(self, actors: Mapping[int, Handle], call: str) -> None:
        self._collect(call, actors, lambda _, one: one.load.remote(self._build), self._start)

    def _built(self, rank: int, actor: Handle, *, joins: bool) -> Any:
        return actor.build.remote(self._build, self._meetings[rank], self._registry, joins=joins)

    def _joined(self, is_new: bool, rank: int, actor: Handle) -> Any:  # noqa: FBT001 - one of two ways
        return self._built(rank, actor, joins=True) if is_new else actor.admit.remote()

    def _same_node(self, rank: int) -> dict[str, object]:
        """Where the ranks meet on loopback, a new one has to be there too."""
        if len({one.node for one in self._places.values()}) > 1:
            return {}
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(self._places[rank].node, soft=False)
        return {"scheduling_strategy": strategy}

    def _check_replaced(self, ranks: Sequence[int]) -> None:
        self._refuse_closed()
        for rank in ranks:
            if isinstance(rank, bool) or rank not in self._ranks():
                raise ConfigError(f"rank is {rank!r}; use 0 to {self._world - 1}")
        if not _takes_joins(self._build):
            raise ConfigError("build takes no joins=; a process that takes a rank's place gives it to its trainer")
        if len({*ranks, *self.lost}) == self._world:
            raise ConfigError("no rank is left that could hand over; build another group from checkpoints")

    def _refuse_lost(self, call: str) -> None:
        self._refuse_closed()
        if self.lost:
            raise GroupError(call, dict(self.lost))

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ConfigError(f"the group {self._name!r} is closed; build another")

    def _collect(
        self, call: str, actors: Mapping[int, Handle], ask: Callable[[int, Handle], Any], limits: Limits | None = None
    ) -> dict[int, Any]:
        """Ask each of them, and note who is lost."""
        with self._asking:  # calls of two threads come to all ranks in one order
            refs = {rank: ask(rank, actor) for rank, actor in actors.items()}
        try:
            return collect(call, refs, self._limits if limits is None else limits)
        except GroupError as failed:
            for rank, error in failed.errors.items():
                joint = joint_of(error)
                if isinstance(joint, RankLost):
                    self.lost[rank] = joint
                elif isinstance(joint, RankFenced):
                    self.lost[rank] = RankLost(rank, str(joint), is_dead=False)
            raise


def _wait_for(refs: list[Any]) -> None:
    if refs:
        ray.wait(refs, num_returns=len(refs), timeout=_LEAVE_S)


def _takes_joins(build: Callable[..., object]) -> bool:
    parameters = inspect.signature(build).parameters.values()
    return any(one.name == "joins" or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def _each(options: object, world: int) -> tuple[Mapping[str, object], ...]:
    """The options of each rank's actor."""
    given = (options or {},) * world if options is None or isinstance(options, Mapping) else options
    if not isinstance(given, list | tuple) or len(given) != world or not all(isinstance(one, Mapping) for one in given):
        raise ConfigError(f"options is {options!r}; give a mapping for all ranks, or one a rank")
    for one in given:
        if taken := sorted(set(one) & set(_OURS)):
            raise ConfigError(f"options name {', '.join(taken)}, which the group sets itself; leave it out")
    return tuple(given)


def _check(build: object, world: object, name: object, seconds: Sequence[object]) -> None:
    if not callable(build):
        raise ConfigError(f"build is {build!r}; give a function of rank, world and ranks")
    if isinstance(world, bool) or not isinstance(world, int) or world < _WORLD_MIN:
        raise ConfigError(f"world is {world!r}; a group has at least {_WORLD_MIN} ranks")
    if not isinstance(name, str) or not _RUN.fullmatch(name):
        raise ConfigError(f"name is {name!r}; use letters, digits, dot, underscore and dash")
    for one in seconds:
        if isinstance(one, bool) or not isinstance(one, int | float) or not one > 0:
            raise ConfigError(f"a timeout is {one!r}; use a number of seconds above 0")
