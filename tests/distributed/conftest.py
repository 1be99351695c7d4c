"""One set of ranks for all cases of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.ranks import _CONTEXT, WORLD, Ranks
from tests.distributed.sharing import Sharer


@pytest.fixture(scope="module")
def processes() -> Iterator[Ranks]:
    """Four processes and a store, ended whatever happens."""
    _CONTEXT.set_forkserver_preload(["pytest", "tests.distributed.warm"])
    with Ranks() as ranks:
        yield ranks


@pytest.fixture
def ranks(processes: Ranks) -> Ranks:
    """The same, all there, each with a new trainer with adapters A and B."""
    lost = [
        rank for rank in range(WORLD) if rank not in processes.processes or not processes.processes[rank].is_alive()
    ]
    processes.start(*lost)
    assert processes.all("fresh") == dict.fromkeys(range(WORLD))
    return processes


@pytest.fixture(scope="session")
def sharing() -> Iterator[Ranks]:
    """Four other processes, which call engines."""
    _CONTEXT.set_forkserver_preload(["pytest", "tests.distributed.warm"])
    with Ranks(Sharer) as ranks:
        yield ranks


@pytest.fixture
def sharers(sharing: Ranks) -> Ranks:
    """The same, all there, each with a new trainer with adapters A and B, and rank 0 with an engine that they share."""
    lost = [rank for rank in range(WORLD) if rank not in sharing.processes or not sharing.processes[rank].is_alive()]
    sharing.start(*lost)
    assert sharing.all("fresh") == dict.fromkeys(range(WORLD))
    assert sharing.all("share") == dict.fromkeys(range(WORLD))
    return sharing
