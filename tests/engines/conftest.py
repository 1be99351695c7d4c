"""An engine on an arena."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from lifecycle.engines.local import LocalEngine
from lifecycle.saver.arena import HostArena
from tests.engines.world import RANK, TARGETS, llama


@pytest.fixture
def arena() -> Iterator[HostArena]:
    """A device without a limit."""
    made = HostArena()
    yield made
    made.close()


@pytest.fixture
def make_engine(arena: HostArena) -> Callable[..., LocalEngine]:
    """Make an engine whose own weights come from seed 99, so that nothing can be right by chance."""

    def make(name: str = "e0", **changes: object) -> LocalEngine:
        settings: dict[str, object] = {
            "saver": arena,
            "slots": 2,
            "rank": RANK,
            "target_modules": TARGETS,
            "kv_cache_bytes": 2**18,
        }
        return LocalEngine(name, lambda: llama(99), **(settings | changes))

    return make


@pytest.fixture
def engine(make_engine: Callable[..., LocalEngine]) -> LocalEngine:
    """An engine that was never pushed to."""
    return make_engine()


@pytest.fixture
def prompts() -> Tensor:
    """Three prompts of five tokens, int64."""
    return torch.randint(0, 64, (3, 5), generator=torch.Generator().manual_seed(5))
