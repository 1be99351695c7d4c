"""What is in doubt after a push that failed: all that nobody has compared, and nothing that is certainly whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from lifecycle import GreedyProbe, TransitionFailed
from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.errors import EngineRefused
from lifecycle.probes import greedy
from lifecycle.standing import Serves
from tests.lifecycle.test_probes import PROBE, Deaf, make
from tests.lifecycle.test_probes import World as ProbedWorld
from tests.lifecycle.torn_engine import TornEngine, holds_everything
from tests.lifecycle.world import World, make_world

__all__ = ["make"]


class Careless(TornEngine):
    """Writes other bytes than it is sent into *spoils*, and reports *misreports* in a version of its own."""

    spoils: tuple[str, ...] = ()
    misreports: tuple[str, ...] = ()

    def _write(self, group: str, version: int, tensors: Mapping[str, Tensor], mode: str) -> None:
        super()._write(group, version, tensors, mode)
        for one in self.held[group].values() if group in self.spoils else ():
            one.add_(1)

    def commit_update(self) -> None:
        super().commit_update()
        self.versions |= dict.fromkeys(self.misreports, 1)


def behind(engine: TornEngine) -> tuple[World, TornEngine]:
    """An engine that was current, and then both adapters have trained."""
    world = make_world(frozen_buffers=("bias",))
    world.trainer.update_weights([engine])
    world.train("A", "B")
    engine.calls.clear()
    return world, engine


@pytest.mark.parametrize("misreports", [(), ("adapter/B",)])
def test_what_was_not_compared_when_a_confirmation_failed_is_sent_and_compared_again(
    misreports: tuple[str, ...],
) -> None:
    """A difference in one group says nothing of the others that were sent with it."""
    engine = Careless()
    world, _ = behind(engine)
    engine.spoils = ("adapter/A",) if misreports else ("adapter/A", "adapter/B")
    engine.misreports = misreports
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights([engine])
    engine.spoils = engine.misreports = ()
    engine.calls.clear()
    world.trainer.update_weights([engine])

    assert engine.writes() == ["begin", "adapter/A", "adapter/B", "commit"]
    assert holds_everything(world, engine)
    assert set(world.trainer.serving([engine])["E0"].verified) == set(world.trainer.versions)


def test_what_was_compared_and_is_right_is_not_sent_again() -> None:
    """The base, when an adapter on it is wrong."""
    world, engine = make_world(frozen_buffers=("bias",)), Careless()
    engine.spoils = ("adapter/B",)
    with pytest.raises(TransitionFailed, match="adapter/B: these tensors are not the trainer's"):
        world.trainer.update_weights([engine])
    engine.spoils = ()
    engine.calls.clear()
    world.trainer.update_weights([engine])

    assert engine.writes() == ["begin", "adapter/B", "commit"]
    assert holds_everything(world, engine)


class Refusing(TornEngine):
    """Answers 4xx to an adapter, before anything is written."""

    refuses: str = ""

    def load_adapter(self, payload: AdapterPayload) -> None:
        if payload.name == self.refuses:
            raise EngineRefused(self.name, "it takes no such adapter", status=400)
        super().load_adapter(payload)


def test_an_engine_that_refused_before_anything_was_written_is_behind_and_in_no_doubt() -> None:
    """It is asked to begin, or given an adapter, and says no: what it held it holds, and serves who wants it."""
    engine = Refusing()
    world, _ = behind(engine)
    old, engine.refuses = dict(engine.versions), "A"
    with pytest.raises(TransitionFailed, match="it takes no such adapter") as raised:
        world.trainer.update_weights([engine])
    found = world.trainer.serving([engine])["E0"]
    assert (found.serves, found.versions) == (Serves.BEHIND, old)
    assert raised.value.engines["E0"].sent == ()

    engine.calls.clear()
    engine.fails = {3: "before"}
    with pytest.raises(TransitionFailed, match="does not hear begin"):
        world.trainer.update_weights([engine])
    assert world.trainer.serving([engine])["E0"].serves is Serves.BEHIND
    engine.fails, engine.refuses = {}, "B"
    with pytest.raises(TransitionFailed, match="it takes no such adapter"):
        world.trainer.update_weights([engine])

    assert world.trainer.serving([engine])["E0"].serves is Serves.FENCED  # A was written, and dropped by the abort
    engine.refuses = ""
    world.trainer.update_weights([engine])
    assert holds_everything(world, engine)


def test_an_instance_that_takes_over_after_the_push_was_planned_gets_the_next_plan() -> None:
    """Whatever it claims to hold: the plan was made from what the one before it held (FB-51)."""

    class Claiming(TornEngine):
        def restart(self) -> None:
            claimed = dict(self.versions)
            super().restart()
            self.versions = claimed

    world, engine = behind(Claiming())
    engine.restarts_at = 2
    with pytest.raises(TransitionFailed, match="it restarted while a push to it was planned: E0-0 was known, E0-1"):
        world.trainer.update_weights([engine])
    assert engine.writes() == []
    assert world.trainer.serving([engine])["E0"].serves is Serves.BEHIND

    world.trainer.update_weights([engine])
    assert holds_everything(world, engine)


def test_what_was_verified_of_a_retired_adapter_is_forgotten() -> None:
    """Adapters come and go for as long as a run lasts."""
    world, engine = behind(TornEngine())
    world.trainer.update_weights([engine])
    world.host.deregister("A")
    world.trainer.reconcile_adapters()
    world.trainer.update_weights([engine])

    assert world.trainer._parts.runtime.engines.verified["E0"].keys() == world.trainer.versions.keys()


def test_an_engine_that_has_given_memory_back_is_current_and_gets_no_requests() -> None:
    """Nothing is generated while a tag is missing."""
    world, engine = behind(TornEngine())
    world.trainer.update_weights([engine])
    engine.release(["kv_cache"])
    found = world.trainer.serving([engine])["E0"]
    assert (found.serves, found.is_routable, found.released) == (Serves.CURRENT, False, {"kv_cache"})

    engine.resume(["kv_cache"])
    assert world.trainer.serving([engine])["E0"].is_routable


class WithGraphs(Deaf):
    """Has captured graphs, which are released, and cannot generate without them."""

    def report(self) -> EngineReport:
        said = super().report()
        return replace(said, released=said.released | {"cuda_graph"})

    def greedy(self, *_: object) -> tuple[tuple[int, ...], ...]:
        pytest.fail("it cannot be asked")


def test_a_probe_waits_for_every_tag_of_an_engine(make: Callable[..., ProbedWorld]) -> None:
    """One that cannot generate yet is not taken for one that holds something else."""
    world = make()
    world.engine.__class__ = WithGraphs
    assert all("a probe needs its cuda_graph, which is released" in how for how in world.push().values())
    assert world.trainer.verify_engines([world.engine])["E0"].serves is Serves.CURRENT

    world.engine.__class__ = Deaf
    assert set(world.trainer.verify_engines([world.engine])["E0"].verified.values()) == {"probe"}


def test_tokens_that_are_given_one_by_one_are_recorded_without_a_trace_in_training(
    make: Callable[..., ProbedWorld],
) -> None:
    """A generator of the user's runs in eval mode, without gradients, its random numbers apart."""
    seen = []

    def generate(_: str, prompts: object, count: int) -> object:
        for prompt in PROBE.prompts:
            seen.append((world.made.model.training, torch.is_grad_enabled()))
            torch.rand(3)
            yield greedy(world.made.model, [prompt], count)[0]

    world = make(None)
    world.made.model.train()
    before = torch.get_rng_state()
    world.trainer._start_probing(world.made.model, GreedyProbe(PROBE.prompts, 4, generate=cast("object", generate)))  # type: ignore[arg-type]

    assert set(seen) == {(False, False)}
    assert torch.equal(before, torch.get_rng_state())


def test_tokens_that_say_nothing_are_not_recorded(make: Callable[..., ProbedWorld]) -> None:
    """With none of them any answer would agree."""
    world = make(GreedyProbe(PROBE.prompts, 4, generate=lambda _, prompts, __: [[] for _ in prompts]))

    assert "0 tokens were generated for a prompt, wanted are 4" in world.push()["adapter/a"]
