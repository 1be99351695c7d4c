"""docs/asyncio.md is true: its code runs."""

from __future__ import annotations

from pathlib import Path

import torch

from lifecycle import TrainerState
from lifecycle.aio import AsyncLifecycle
from tests.aio.gates import events
from tests.docs.blocks import code_of
from tests.lifecycle.world import FakeEngine, make_world

PAGE = Path(__file__).parents[2] / "docs" / "asyncio.md"


def test_the_loop_on_the_page_runs_as_it_stands() -> None:
    """The block is executed; the parts and the user's own two functions are given to it."""
    world = make_world(adapters=("math",))
    seen: list[TrainerState] = []

    async def generate(engine: FakeEngine, name: str) -> int:
        seen.append(world.trainer.state)
        return engine.versions[f"adapter/{name}"]

    def forward_backward(adapters: object, rollouts: int) -> torch.Tensor:
        world.backward("math")
        return torch.tensor(rollouts)

    given = {"trainer": world.trainer, "adapters": world.host, "optimizer": world.optimizers[0], "engine": FakeEngine()}
    (code,) = code_of("asyncio.md")
    exec(code, given | {"turns": 2, "generate": generate, "forward_backward": forward_backward})  # noqa: S102 - the page's own

    assert seen == [TrainerState.OFFLOADED_CPU] * 2
    assert [trigger for kind, trigger in events(world) if kind == "moved"].count("trained") == 2
    assert world.trainer.state is TrainerState.AWAKE


def test_the_page_names_every_event_that_is_awaited() -> None:
    """And no other method of the wrapper is left out."""
    text = PAGE.read_text(encoding="utf-8")
    methods = [name for name in vars(AsyncLifecycle) if not name.startswith("_") and name != "state"]

    assert [name for name in methods if f"`{name}" not in text] == []
