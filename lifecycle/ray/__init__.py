"""Many ranks as Ray actors: a trainer each, one registry and engines for all of them. See docs/ray.md."""

from __future__ import annotations

from lifecycle.errors import ConfigError

try:
    import ray as _ray  # noqa: F401 - its absence is told here, in words
except ImportError as missing:
    raise ConfigError("lifecycle.ray needs ray; install the extra: adapter-lifecycle[ray]") from missing

from lifecycle.ray.engines import ActorEngine, EachRank, UrlEngine
from lifecycle.ray.errors import GroupError, RankLost, RegistryLost, RemoteFailure
from lifecycle.ray.group import TrainerGroup
from lifecycle.ray.outcome import GroupOutcome
from lifecycle.ray.registry import RegistryProxy, registry, start_registry

__all__ = [
    "ActorEngine",
    "EachRank",
    "GroupError",
    "GroupOutcome",
    "RankLost",
    "RegistryLost",
    "RegistryProxy",
    "RemoteFailure",
    "TrainerGroup",
    "UrlEngine",
    "registry",
    "start_registry",
]
