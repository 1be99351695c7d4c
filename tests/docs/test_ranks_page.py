"""docs/ranks.md is true: two ranks run its blocks, a thread each, over a real store and gloo."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from torch.optim import AdamW

from lifecycle import HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterRegistry, PeftAdapters
from lifecycle.distributed import RankAgreement
from lifecycle.distributed.hosting import StoreServer
from tests.adapters.world import TARGETS, peft_directory
from tests.docs.blocks import code_of
from tests.docs.parts import filled
from tests.lifecycle.world import FakeEngine
from tests.models import llama

BLOCKS = code_of("ranks.md")
Names = dict[str, Any]


@pytest.fixture
def arenas() -> Iterator[list[HostArena]]:
    """Memory of each rank, twice: the page builds two trainers."""
    made = [HostArena() for _ in range(4)]
    yield made
    for one in made:
        one.close()


def run(block: int, names: Names, **replaced: str) -> Names:
    """Execute a block of the page."""
    code = BLOCKS[block]
    for old, new in replaced.items():
        code = code.replace(f"/adapters/{old}", new)
    exec(code, names)  # noqa: S102 - the page's own
    return names


def parts(arena: HostArena, model: nn.Module, registry: AdapterRegistry | None = None) -> Names:
    """What else a trainer is given."""
    adapters = PeftAdapters(model, slots=8, rank=4, target_modules=TARGETS, registry=registry)
    optimizers = adapters.optimizers(lambda slot: AdamW(slot, lr=1e-2))
    return {"saver": arena, "model": adapters.model, "adapters": adapters, "optimizer": optimizers}


def test_two_ranks_agree_share_a_registry_and_have_one_engine(tmp_path: Path, arenas: list[HostArena]) -> None:
    """The first, third and fourth block, in this order, by both ranks at once."""
    tenant = str(peft_directory(tmp_path / "tenant", 1, rank=4, target_modules=list(TARGETS)))
    models, server = [llama() for _ in arenas], FakeEngine("rollout")

    def of(rank: int) -> Names:
        rest = parts(arenas[rank], models[rank])
        names: Names = {"rank": rank, "world": 2, "store_address": store.address, "config": LifecycleConfig()}
        names |= {"TrainerState": TrainerState, "TrainerLifecycle": filled(TrainerLifecycle, **rest)}
        run(0, names)
        names["trainer"].sleep()
        names |= {"AdapterRegistry": lambda slots: opened(names, AdapterRegistry(slots=slots), rank)}
        names["store_address"] = second.address
        run(2, names, **{"tenant-a": tenant})
        return run(3, names | {"VllmEngine": lambda name, url: server, "url": ""})

    def opened(names: Names, registry: AdapterRegistry, rank: int) -> AdapterRegistry:
        rest = parts(arenas[2 + rank], models[2 + rank], registry)
        given = {"ranks": names["ranks"], "initial_state": TrainerState.AWAKE}
        names["trainer"] = TrainerLifecycle(LifecycleConfig(model="second"), **rest, **given)
        return registry

    with StoreServer() as store, StoreServer() as second, ThreadPoolExecutor(2) as threads:
        found = list(threads.map(of, range(2)))

    assert [names["registry"].desired()["tenant-a"].slot for names in found] == [0, 0]
    assert server.calls.count("adapter:tenant-a") == 1


def test_a_new_rank_is_admitted_by_calls_that_exist() -> None:
    """The second block; that a rank joins is tested over four processes."""
    signature = inspect.signature(TrainerLifecycle)
    rest = dict.fromkeys(("saver", "model", "optimizer", "adapters"))
    names = run(1, {"config": None, "TrainerState": TrainerState, "TrainerLifecycle": filled(signature.bind, **rest)})

    assert names["in_the_new_process"]("ranks").arguments["joins"]
    assert hasattr(TrainerLifecycle, "admit")
    assert RankAgreement.over_gloo
    assert len(BLOCKS) == 4
