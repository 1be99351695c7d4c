"""One world of this process for a module at a time, and the results of one rank and of two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist

from tests.megatron.ranks import everything
from tests.megatron.world import Result, in_ranks, parallel


@pytest.fixture(scope="module", autouse=True)
def world() -> Iterator[None]:
    """Megatron's groups on this process alone."""
    with parallel(dist.HashStore()):
        yield


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """What two tensor-parallel ranks found."""
    return in_ranks(everything, 2, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def one_rank(world: None) -> Result:
    """What one rank found."""
    return everything(0)
