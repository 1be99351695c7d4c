"""A checkpoint of an adapter on a GPTModel is resumed bit for bit, in another slot of another trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lifecycle import HostArena
from tests.megatron.ranks import Life
from tests.megatron.world import export, factors


@pytest.fixture
def arenas() -> Iterator[tuple[HostArena, HostArena]]:
    """Memory of two trainers."""
    made = HostArena(), HostArena()
    yield made
    for one in made:
        one.close()


def test_a_resumed_adapter_trains_on_as_if_nothing_had_been(
    arenas: tuple[HostArena, HostArena], tmp_path: Path
) -> None:
    """Saved while offloaded; weights and moments are in the checkpoint."""
    first, second = (Life(one) for one in arenas)
    first.made.registry.register("a", tensors=factors(1, 4), rank=4, alpha=12)
    first.trainer.reconcile_adapters()
    first.train("a")
    first.trainer.sleep(offload=True)
    saved = first.trainer.save_checkpoint("a", tmp_path / "a", step=1)
    first.trainer.wake_up()
    first.train("a")
    second.made.registry.register("other", seed=5)
    second.made.registry.register("a", resume=saved.parent)
    second.trainer.reconcile_adapters()
    second.train("a")
    wanted, found = export(first.made, "a"), export(second.made, "a")

    assert second.made.slot_of("a") == 1
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)
