"""Rollout engines of a group: servers behind a URL, and Ray actors.

One engine for all ranks is called by rank 0 alone, and what came of it is told to all
(:class:`~lifecycle.distributed.SharedEngine`). Engines that stand beside each rank are called by it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from lifecycle.distributed import RankAgreement, SharedEngine
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import ConfigError, LifecycleError
from lifecycle.ray.calls import Handle
from lifecycle.ray.ray_engine import RayEngine

SHARING_RANK: Final = 0
"""The rank that calls an engine of all ranks."""
_KINDS: Final = ("vllm", "sglang")
_FIELDS: Final = ("name", "url", "token")
"""Arguments of a client that the spec has fields for."""


@dataclass(frozen=True, slots=True)
class UrlEngine:
    """A server that is a rollout engine. Its client is built where it is called.

    Attributes:
        name: unique among the engines of a run.
        url: ``http://HOST:PORT``, as the calling rank reaches it. Not shown: it may have credentials in it.
        kind: ``vllm`` or ``sglang``.
        token_variable: the environment variable of the calling rank that holds its token.
        token: or a function that gives it there; called once. Neither token stands in any message or ``repr``.
        options: more arguments of :class:`~lifecycle.engines.vllm.VllmEngine` or
            :class:`~lifecycle.engines.sglang.SglangEngine`.
    """

    name: str
    url: str = field(repr=False)
    kind: str = "vllm"
    token_variable: str | None = None
    token: Callable[[], str] | None = field(default=None, repr=False)
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ActorEngine:
    """A Ray actor whose class is a :class:`~lifecycle.engines.protocol.RolloutEngine`.

    Attributes:
        name: unique among the engines of a run; the actor's own ``name`` need not be the same.
        actor: its handle.
        answer_s: how long one call may take, in seconds.
    """

    name: str
    actor: Handle = field(repr=False)
    answer_s: float = 600.0


@dataclass(frozen=True, slots=True)
class EachRank:
    """Engines that stand beside the ranks, one each: colocated ones. A rank calls its own and no other.

    Attributes:
        name: by which all of them go.
        engines: one a rank, by rank; their own names do not matter.
    """

    name: str
    engines: Sequence[UrlEngine | ActorEngine]


EngineSpec = UrlEngine | ActorEngine | EachRank


def checked_specs(engines: object, world: int) -> tuple[EngineSpec, ...]:
    """The engines of one call.

    Raises:
        ConfigError: these are no engines, two have one name, or there is not one a rank where there should be.
    """
    if not isinstance(engines, list | tuple):
        raise ConfigError(f"{type(engines).__name__} is not a list of engines; pass a list, also for one engine")
    for one in engines:
        _check(one, world)
    names = sorted(one.name for one in engines)
    if len(set(names)) < len(names):
        raise ConfigError(f"two engines have the same name: {', '.join(names)}; name each one for itself")
    return tuple(engines)


def _check(one: object, world: int) -> None:
    if not isinstance(one, UrlEngine | ActorEngine | EachRank):
        raise ConfigError(f"{type(one).__name__} is no engine of a group; give UrlEngine, ActorEngine or EachRank")
    if not isinstance(one.name, str) or not one.name:
        raise ConfigError(f"an engine's name is {one.name!r}; give a string")
    if isinstance(one, UrlEngine):
        _check_url(one)
    if not isinstance(one, EachRank):
        return
    if len(one.engines) != world or not all(isinstance(each, UrlEngine | ActorEngine) for each in one.engines):
        raise ConfigError(
            f"{one.name} has {len(one.engines)} engines; give {world}, one a rank: UrlEngine, ActorEngine"
        )


def _check_url(one: UrlEngine) -> None:
    if one.kind not in _KINDS:
        raise ConfigError(f"the kind of engine {one.name} is {one.kind!r}; use {' or '.join(_KINDS)}")
    if one.token is not None and one.token_variable is not None:
        raise ConfigError(f"engine {one.name} has a token and a variable with one; give one of them")
    if not isinstance(one.options, Mapping):
        raise ConfigError(f"the options of engine {one.name} are no mapping; give arguments of its client by name")
    if taken := sorted({*one.options} & {*_FIELDS}):
        raise ConfigError(
            f"the options of engine {one.name} name {', '.join(taken)}; give that as a field of UrlEngine"
        )


@dataclass(frozen=True, slots=True)
class NumberedSpec:
    """An engine of one call, as ranks are told of it.

    Attributes:
        number: another one for another engine of the same name. Ranks cannot see that: a function, such as a token's,
            arrives as another object each time.
        spec: what it is.
    """

    number: int
    spec: EngineSpec


class SpecNumbers:
    """The engines that a driver has named, by name, each with a number."""

    def __init__(self) -> None:
        self._held: dict[str, NumberedSpec] = {}

    def of(self, specs: Sequence[EngineSpec]) -> tuple[NumberedSpec, ...]:
        """Number the engines of one call: those that were named before have the number that they had."""
        for spec in specs:
            held = self._held.get(spec.name)
            if held is None or (held.spec is not spec and held.spec != spec):
                self._held[spec.name] = NumberedSpec(1 if held is None else held.number + 1, spec)
        return tuple(self._held[spec.name] for spec in specs)


class RankEngines:
    """The engines that one rank calls, built once.

    Args:
        rank: which one.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._own: dict[str, tuple[int, RolloutEngine]] = {}
        self._shared: dict[str, tuple[int, SharedEngine]] = {}

    def hold(self, specs: Sequence[NumberedSpec]) -> None:
        """Build what is not built yet of those that this rank calls, in the place of another one of its name.

        Nothing is asked of them.

        Raises:
            ConfigError: one cannot be built.
        """
        for one in specs:
            name, mine = one.spec.name, self._mine(one.spec)
            if name in self._own and self._own[name][0] == one.number:
                continue
            self._end(name)
            if mine is not None:
                self._own[name] = one.number, _built(name, mine)

    def of(self, specs: Sequence[NumberedSpec], ranks: RankAgreement) -> list[RolloutEngine]:
        """Engines for the trainer. Every rank calls it alike: one that is new and of all is met about."""
        found: list[RolloutEngine] = []
        for one in specs:
            name = one.spec.name
            own = self._own[name][1] if name in self._own else None
            if own is not None and isinstance(one.spec, EachRank):
                found.append(own)
                continue
            if name not in self._shared or self._shared[name][0] != one.number:
                self._shared[name] = one.number, SharedEngine(own, ranks, name=name, by=SHARING_RANK)
            found.append(self._shared[name][1])
        return found

    def forget(self) -> None:
        """Ranks that meet anew meet about their engines anew."""
        self._shared.clear()

    def close(self) -> None:
        """Leave servers as their clients do. Actors are their owner's. Never raises an error of the library."""
        for name in list(self._own):
            self._end(name)

    def _end(self, name: str) -> None:
        _, engine = self._own.pop(name, (0, None))
        close = getattr(engine, "close", None)
        if close is not None:
            with suppress(LifecycleError):
                close()

    def _mine(self, spec: EngineSpec) -> UrlEngine | ActorEngine | None:
        if isinstance(spec, EachRank):
            return spec.engines[self._rank]
        return spec if self._rank == SHARING_RANK else None


def _built(name: str, spec: UrlEngine | ActorEngine) -> RolloutEngine:
    if isinstance(spec, ActorEngine):
        return RayEngine(name, spec.actor, answer_s=spec.answer_s)
    options: dict[str, Any] = {**spec.options, "token": _token(spec)}
    if spec.kind == "vllm":
        from lifecycle.engines.vllm import VllmEngine  # noqa: PLC0415 - needs httpx

        return VllmEngine(name, spec.url, **options)
    from lifecycle.engines.sglang import SglangEngine  # noqa: PLC0415 - needs httpx

    return SglangEngine(name, spec.url, **options)


def _token(spec: UrlEngine) -> str | None:
    if spec.token is not None:
        return spec.token()
    if spec.token_variable is None:
        return None
    if not os.environ.get(spec.token_variable):
        told = f"the token of engine {spec.name} is to be in {spec.token_variable}, which is not set on this rank"
        raise ConfigError(f"{told}; set it in the runtime_env of the ranks (env_vars)")
    return os.environ[spec.token_variable]
