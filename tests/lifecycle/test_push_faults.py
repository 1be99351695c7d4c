"""A fault in every call of a push, at each of two engines: nobody serves a mixture, and the next pass repairs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from torch import Tensor

from lifecycle import Moved, TransitionFailed
from lifecycle.standing import Serves
from tests.lifecycle.torn_engine import MODES, TornEngine, holds_everything
from tests.lifecycle.world import World, make_world

PUSH = [
    "report", "report", "begin", "unload:A", "base:buffers", "adapter/B", "adapter/C", "commit", "report",
    "checksums:buffers", "checksums:adapter/B", "checksums:adapter/C",
]  # fmt: skip
"""The calls of the second push of :func:`changed`, at each engine. The first is asked before anything is decided."""


def changed() -> tuple[World, TornEngine, TornEngine]:
    """Two engines that are current, and then A is retired, C is loaded and B is trained: each kind of call is due."""
    world, engines = make_world(slots=3), (TornEngine("E0"), TornEngine("E1"))
    world.trainer.update_weights(engines)
    world.host.deregister("A")
    world.host.register("C", 2)
    world.trainer.reconcile_adapters()
    world.train("B")
    for one in engines:
        one.calls.clear()
    return world, *engines


def cases() -> Iterator[tuple[int, int, str]]:
    """Engine, call and where in it: the first is the question before the push is planned."""
    for at, call in enumerate(PUSH, start=1):
        writes = call.startswith(("base:", "adapter/"))
        yield from ((engine, at, mode) for engine in (0, 1) for mode in MODES if writes or mode != "in the middle")


def test_a_push_makes_these_calls_in_this_order() -> None:
    """The faults below reach every one of them."""
    world, *engines = changed()
    outcome = world.trainer.update_weights(engines)

    assert [one.calls for one in engines] == [PUSH, PUSH]
    assert isinstance(outcome, Moved)
    assert outcome.engines["E0"].sent == ("buffers", "adapter/B", "adapter/C")
    assert outcome.engines["E0"].unloaded == ("A",)
    assert set(outcome.engines["E0"].verified.values()) == {"checksum"}
    assert outcome.moved_bytes == 2 * outcome.engines["E1"].moved_bytes


Failure = TransitionFailed | KeyboardInterrupt


def play(world: World, engines: list[TornEngine], hit: TornEngine) -> Failure:
    """The push that fails; afterwards nobody may serve what is not the trainer's, and the trainer is as before."""
    before = world.all_bytes(), world.trainer.versions, world.trainer.state
    try:
        world.trainer.update_weights(engines)
    except (TransitionFailed, KeyboardInterrupt) as error:
        failed = error
    else:
        pytest.fail("the fault was not noticed")
    hit.fails.clear()
    standing = world.trainer.serving(engines)
    assert (world.all_bytes(), world.trainer.versions, world.trainer.state) == before
    assert not standing[hit.name].is_routable
    for one in engines:
        assert not standing[one.name].is_routable or holds_everything(world, one)
    return failed


def repair(world: World, engines: list[TornEngine]) -> None:
    """The next pass: everybody holds everything, byte for byte, and may serve."""
    for one in engines:
        one.calls.clear()
    world.trainer.update_weights(engines)

    assert all(holds_everything(world, one) for one in engines)
    assert {one.serves for one in world.trainer.serving(engines).values()} == {Serves.CURRENT}


@pytest.mark.parametrize(("engine", "call", "mode"), list(cases()))
def test_a_fault_in_any_call_fences_that_engine_alone_and_the_next_pass_repairs_it(
    engine: int, call: int, mode: str
) -> None:
    """E0 and E1 are in two minds, and only until then; who is current gets no byte again (FB-54)."""
    world, *engines = changed()
    hit, other = engines[engine], engines[1 - engine]
    hit.fails = {call: mode}
    failed = play(world, engines, hit)
    assert isinstance(failed, TransitionFailed)
    assert failed.engines[other.name].committed
    assert hit.name in failed.engines[hit.name].error
    assert holds_everything(world, other)
    assert call > 1 or hit.writes() == []
    assert ("abort" in hit.calls) == (2 < call <= PUSH.index("commit") + 1)
    repair(world, engines)
    assert other.writes() == []
    assert "base:frozen-base" not in hit.calls


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("call", range(3, PUSH.index("commit") + 2))
def test_an_engine_whose_abort_fails_too_gets_everything_again(call: int, mode: str) -> None:
    """What it holds is unknown, whatever it says."""
    world, *engines = changed()
    hit = engines[1]
    hit.fails = {call: "before", call + 1: mode}
    failed = play(world, engines, hit)

    assert isinstance(failed, TransitionFailed)
    assert "the abort failed too" in world.trainer.serving(engines)["E1"].because[0]
    repair(world, engines)
    assert [one for one in hit.writes() if one.startswith(("base", "adapter"))] == [
        "base:frozen-base", "base:buffers", "adapter/B", "adapter/C",
    ]  # fmt: skip


@pytest.mark.parametrize("call", range(2, len(PUSH) + 1))
def test_an_interrupt_stops_at_once_and_leaves_the_engine_in_work_fenced(call: int) -> None:
    """The engines behind it are not sent to; the next pass sees to all of them."""
    world, *engines = changed()
    engines[0].raises, engines[0].fails = KeyboardInterrupt, {call: "after"}
    failed = play(world, engines, engines[0])

    assert isinstance(failed, KeyboardInterrupt)
    assert engines[1].writes() == []
    repair(world, engines)


def test_every_engine_that_fails_is_named_with_its_reason_in_the_error_and_on_the_record() -> None:
    """And those that did not (FB-54)."""
    world, *engines = changed()
    third = TornEngine("E2")
    engines[0].fails, third.fails = {5: "before"}, {4: "after"}
    with pytest.raises(TransitionFailed, match="E0 failed, E1 is up to date, E2 failed") as raised:
        world.trainer.update_weights([*engines, third])

    told = raised.value.engines
    assert {name: one.committed for name, one in told.items()} == {"E0": False, "E1": True, "E2": False}
    assert told["E0"].error == "ConnectionError: E0 does not hear base:buffers"
    assert told["E1"].instance_id == "E1-0"
    assert raised.value.cause.__notes__ == ["and: ConnectionError: the answer of E2 to base:frozen-base is lost"]
    [record] = world.records("failed")
    assert {name: (one["committed"], one["error"]) for name, one in record["engines"].items()} == {
        name: (one.committed, one.error) for name, one in told.items()
    }


def test_adapters_are_pushed_once_one_engine_has_committed_them() -> None:
    """Whatever became of the others."""
    world, *engines = changed()
    world.host.pushes.clear()
    engines[0].fails = {6: "before"}
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights(engines)
    assert sorted(world.host.pushes) == ["B", "C"]

    world, *engines = changed()
    world.host.pushes.clear()
    for one in engines:
        one.fails = {len(PUSH): "before"}
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights(engines)
    assert world.host.pushes == []


def test_what_a_failed_push_has_touched_is_sent_again_whatever_the_engine_says_of_it() -> None:
    """One that moves its versions before the commit, and forgets to take them back in the abort (FB-54)."""

    class Hasty(TornEngine):
        def _write(self, group: str, version: int, tensors: Mapping[str, Tensor], mode: str) -> None:
            try:
                super()._write(group, version, tensors, mode)
            finally:
                self.versions[group] = version

        def abort_update(self) -> None:
            self.calls.append("abort")

    world, engine = make_world(), Hasty()
    world.trainer.update_weights([engine])
    world.train("A")
    engine.calls.clear()
    engine.fails = {5: "in the middle"}
    with pytest.raises(TransitionFailed, match="in the middle of adapter/A"):
        world.trainer.update_weights([engine])
    assert engine.versions == world.trainer.versions

    engine.calls.clear()
    engine.fails = {3: "before"}
    with pytest.raises(TransitionFailed, match="does not hear begin"):
        world.trainer.update_weights([engine])
    engine.fails = {}
    repair(world, [engine])  # what was in doubt before is still, although the second push has touched nothing
    assert engine.writes() == ["begin", "base:buffers", "adapter/A", "commit"]
