"""An event that stays in the middle of its effects until the test lets it go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Any, TypeVar

from lifecycle import Moved, Outcome
from lifecycle.aio import AsyncLifecycle
from states import Effect
from tests.lifecycle.world import World, make_world

T = TypeVar("T")


class Gate:
    """Stands in the effect that clears caches, which belongs to ``sleep``; ``fails`` is raised behind it."""

    def __init__(self, world: World, effect: Effect = Effect.CLEAR_CACHES) -> None:
        self.fails: Exception | None = None
        self._inside, self._go_on = Event(), Event()
        effects = world.trainer._runner.effects
        original = effects[effect]

        def gated(parts: Any, work: Any) -> Any:
            self._inside.set()
            assert self._go_on.wait(20), "nobody opened the gate"
            if self.fails is not None:
                raise self.fails
            return original(parts, work)

        effects[effect] = gated

    async def reached(self) -> None:
        """The event is in the middle now."""
        assert await asyncio.to_thread(self._inside.wait, 20)

    def open(self) -> None:
        """Let it go on."""
        self._go_on.set()


def in_loop(test: Callable[[World, AsyncLifecycle], Coroutine[Any, Any, T]], world: World | None = None) -> T:
    """What a coroutine of a world and its wrapper comes to, in a loop of its own."""
    used = world if world is not None else make_world()

    async def main() -> T:
        async with AsyncLifecycle(used.trainer) as aio:
            return await test(used, aio)

    return asyncio.run(main())


async def turns(count: int = 5) -> None:
    """Let whatever is ready in the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)


def edge(outcome: Outcome) -> str:
    """The edge that was taken."""
    assert isinstance(outcome, Moved)
    return outcome.edge


def events(world: World) -> list[tuple[str, object]]:
    """The records of events: what became of each, in order."""
    kinds = ("began", "moved", "failed", "refused", "unchanged")
    found = [(str(one["event"]).removeprefix("lifecycle."), one) for one in world.records()]
    return [(kind, one["trigger"]) for kind, one in found if kind in kinds]
