"""An interrupt in the middle of giving memory back or taking it: the engine's record says what the saver did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lifecycle.test_probes import PROBE, World, make

__all__ = ["make"]

BOTH = ("weights", "kv_cache")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["pause", "resume"])
def test_after_an_interrupt_the_record_of_an_engine_is_that_of_the_saver(
    make: Callable[..., World], monkeypatch: pytest.MonkeyPatch, call: str, when: str
) -> None:
    """Before the saver's call or after it; nothing is answered from memory that is gone, and the next turn goes on."""
    world = make()
    world.push()
    engine, answer = world.engine, world.engine.greedy("a", PROBE.prompts, 4)
    if call == "resume":
        engine.release(BOTH)
    real = getattr(world.arena, call)

    def interrupted(tag: str) -> None:
        if when == "after":
            real(tag)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.arena, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        (engine.release if call == "pause" else engine.resume)(BOTH)
    monkeypatch.undo()
    paused = {tag for tag in BOTH if world.arena.tags()[f"E0/{tag}"].paused}
    assert engine.report().released == paused

    engine.release(BOTH)
    engine.resume(BOTH)
    assert engine.greedy("a", PROBE.prompts, 4) == answer
