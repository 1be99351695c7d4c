"""Adapters on a real engine, pushed by a real trainer: who is served, as what, and until when (FB-35, 39, 41, 42)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Event, Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam

from lifecycle import EventRefused, HostArena, LifecycleConfig, MemoryAudit, Moved, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterRegistry, PeftAdapters
from lifecycle.demo.train import policy_logprobs
from lifecycle.engines import AdapterPayload
from lifecycle.engines.local import BASE_ONLY, LocalEngine, Rollout
from lifecycle.errors import EngineError, TransitionFailed
from tests.adapters.world import IDS, SLOT_RANK, TARGETS, factors, host, llama
from tests.engines.world import FailAt, adapter

PUSHES = 20


class ToldEngine(LocalEngine):
    """A real engine that remembers what it was told about adapters."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.told: list[tuple[object, ...]] = []

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Load, and remember with which rank and alpha."""
        self.told.append(("load", payload.name, payload.rank, payload.alpha))
        super().load_adapter(payload)

    def unload_adapter(self, name: str) -> None:
        """Unload, and remember it."""
        self.told.append(("unload", name))
        super().unload_adapter(name)


class World:
    """A trainer with two slots and an engine on one arena."""

    def __init__(self, engine_slots: int = 2, model: Callable[[], nn.Module] = lambda: llama(99)) -> None:
        self.arena, self.made = HostArena(), host(slots=2)
        self.trainer = TrainerLifecycle(
            LifecycleConfig(frozen_buffers=("*inv_freq",)),
            saver=self.arena,
            model=self.made.model,
            optimizer=self.made.optimizers(lambda parameters: Adam(parameters, lr=0.01)),
            adapters=self.made,
            audit=MemoryAudit(),
            initial_state=TrainerState.AWAKE,
        )
        self.engine = ToldEngine(
            "E0", model, saver=self.arena, slots=engine_slots, rank=SLOT_RANK, target_modules=TARGETS,
            kv_cache_bytes=2**18,
        )  # fmt: skip

    @property
    def registry(self) -> AdapterRegistry:
        """What should be loaded."""
        return self.made.registry

    def load(self, name: str, seed: int | None = 1, rank: int = 2, alpha: float = 4) -> None:
        """Register and reconcile; without a seed it begins as PEFT begins one, with B zero."""
        given = {} if seed is None else {"tensors": factors(seed, rank)}
        self.registry.register(name, rank=rank, alpha=alpha, **given)  # type: ignore[arg-type]
        self.trainer.reconcile_adapters()

    def retire(self, name: str) -> None:
        """Deregister and reconcile."""
        self.registry.deregister(name)
        self.trainer.reconcile_adapters()

    def push(self) -> object:
        """What the engine lacks."""
        return self.trainer.update_weights([self.engine])

    def change(self, name: str) -> None:
        """A step that changes every weight of an adapter."""
        with self.trainer.step([name]) as step, torch.no_grad():
            for one in self.made.parameters_of(name):
                one.mul_(1.1)
            step.stepped()

    def answer(self, name: str) -> Rollout:
        """What the engine generates under a name."""
        return self.engine.generate(IDS, name, max_new_tokens=4, seed=0)

    def difference(self, name: str) -> float:
        """Between the engine's log-probabilities of what it sampled, and the trainer's own."""
        rollout = self.answer(name)
        with torch.no_grad(), self.made.use(name):
            own = policy_logprobs(self.made.model, IDS, rollout.tokens)
        return float((own - rollout.logprobs).abs().max())

    def held(self) -> list[str]:
        """The adapters that the engine has a version of."""
        groups = self.engine.report().versions
        return sorted(group.removeprefix("adapter/") for group in groups if group.startswith("adapter/"))


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Worlds whose memory goes with the test."""
    made: list[World] = []

    def make(**changes: Any) -> World:
        made.append(World(**changes))
        return made[-1]

    yield make
    for one in made:
        one.arena.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Adapter a, of rank 2 and alpha 4, is in slot 0 and served."""
    found = make_world()
    found.load("a")
    found.push()
    return found


def test_the_next_tenant_of_a_slot_is_registered_with_its_own_rank_and_scale(world: World) -> None:
    """The engine drops a and is told everything of b; nothing of a's registration stays (FB-35, scenario 1)."""
    world.engine.told.clear()
    world.retire("a")
    world.load("b", seed=2, rank=4, alpha=4)
    world.push()

    assert world.made.slot_of("b") == 0
    assert world.engine.told == [("unload", "a"), ("load", "b", 4, 4.0)]
    assert world.difference("b") < 1e-4


def test_before_its_first_push_a_tenant_is_not_served_and_after_it_as_what_it_is(world: World) -> None:
    """Never with its predecessor's weights: refused before, and fresh it computes what the base does (FB-35, 2)."""
    world.retire("a")
    world.load("b", seed=None)
    with pytest.raises(EngineError, match="'b' has no valid version"):
        world.answer("b")
    is_active = world.registry.is_active("b")
    world.push()

    assert not is_active
    assert world.registry.is_active("b")
    assert torch.equal(world.answer("b").logprobs, world.answer(BASE_ONLY).logprobs)


def test_a_late_push_for_an_earlier_registration_is_rejected_and_its_successor_untouched(world: World) -> None:
    """In the registry it is nobody's; in the engine it is dropped by the next pass (FB-35, scenario 3)."""
    late = world.made.desired()["a"]
    world.retire("a")
    world.load("b", seed=2)
    world.push()
    before, snapshot = world.answer("b"), world.registry.snapshot()
    world.made.pushed(("a",))
    skipped = world.registry.record_weight_update([late])
    world.engine.begin_update()
    world.engine.load_adapter(adapter("a", 1, seed=1))
    world.engine.commit_update()
    world.push()

    assert skipped == ()
    assert world.registry.snapshot() == snapshot
    assert world.held() == ["b"]
    assert torch.equal(world.answer("b").logprobs, before.logprobs)


def test_a_name_that_comes_back_is_another_adapter_with_nothing_of_the_first(world: World) -> None:
    """New id, never pushed, no steps; the engine gets its bytes although it has the name already (FB-35, 4)."""
    first, served = world.made.loaded()["a"], world.engine.report().versions["adapter/a"]
    world.retire("a")
    world.load("a", seed=3, rank=4, alpha=2)
    record = world.registry.find("a")
    assert record is not None
    state, steps, stale = record.state, record.step, world.engine.report().versions["adapter/a"]
    world.push()

    assert record.adapter.registration_id > first.registration_id
    assert (state, steps, stale) == ("pending", 0, served)
    assert world.engine.report().versions["adapter/a"] > served
    assert world.difference("a") < 1e-4


def test_a_push_of_a_tensor_with_a_wrong_shape_leaves_the_served_version_exact(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third tensor is wrong: rank, scale and bits stay; the push stays pending, then arrives (FB-39, 1 and 2)."""
    before, version = world.answer("a"), world.engine.report().versions["adapter/a"]
    world.change("a")
    export = PeftAdapters.export

    def damaged(self: PeftAdapters, name: str, read: Callable[[str], Tensor]) -> tuple[Any, ...]:
        rank, alpha, targets, tensors = export(self, name, read)
        third = list(tensors)[2]
        return rank, alpha, targets, {**tensors, third: tensors[third][:, 1:]}

    monkeypatch.setattr(PeftAdapters, "export", damaged)
    with pytest.raises(TransitionFailed, match="nothing was written"):
        world.push()
    monkeypatch.undo()
    after = world.answer("a")
    pending = world.trainer.explain("update_weights", engines=[world.engine]).facts.engines[0]
    same_version = world.engine.report().versions["adapter/a"] == version
    world.push()

    assert same_version
    assert torch.equal(after.logprobs, before.logprobs)
    assert "adapter/a" in pending.stale
    assert "a push failed" in pending.fenced
    assert world.difference("a") < 1e-4
    assert not torch.equal(world.answer("a").logprobs, before.logprobs)


def test_a_refresh_of_a_full_engine_needs_no_room(make_world: Callable[..., World]) -> None:
    """One slot, taken: ten refreshes are ten accepted ones (FB-39, scenario 3)."""
    world = make_world(engine_slots=1)
    world.load("a")
    world.push()
    versions = [world.engine.report().versions["adapter/a"]]
    for _ in range(10):
        world.change("a")
        assert isinstance(world.push(), Moved)
        versions.append(world.engine.report().versions["adapter/a"])

    assert versions == sorted(set(versions))
    assert world.difference("a") < 1e-4


def test_versions_do_not_pile_up_on_an_engine(world: World) -> None:
    """Twenty pushes: one version of the adapter, and not one byte more (FB-41, scenario 1)."""
    before = world.arena.usage()
    for _ in range(PUSHES):
        world.change("a")
        world.push()
        assert world.held() == ["a"]
        assert world.arena.usage() == before

    assert world.engine._instance.adapters() == ("a",)


def test_a_request_is_answered_whole_by_the_version_it_started_with(make_world: Callable[..., World]) -> None:
    """A push waits until the request has ended, and is the next answer's version (FB-41, scenario 2)."""
    stopped, go_on = Event(), Event()

    def stop(*_: object) -> None:
        if stopped.is_set() is go_on.is_set():
            return
        go_on.wait(30)

    model = llama(99)
    world = make_world(model=lambda: model)
    world.load("a")
    world.push()
    alone = world.answer("a")
    version = alone.versions["adapter/a"]
    world.change("a")
    answers: list[Rollout] = []
    model.lm_head.register_forward_hook(stop)  # type: ignore[operator, union-attr]
    stopped.set()
    request = Thread(target=lambda: answers.append(world.answer("a")))
    request.start()
    push = Thread(target=world.push)
    push.start()
    push.join(0.3)
    waited = push.is_alive()
    go_on.set()
    request.join(30)
    push.join(30)

    assert waited
    assert answers[0].versions["adapter/a"] == version
    assert torch.equal(answers[0].tokens, alone.tokens)
    assert torch.allclose(answers[0].logprobs, alone.logprobs, atol=1e-5)  # its prefix was cached
    assert world.answer("a").versions["adapter/a"] > version
    assert not torch.allclose(world.answer("a").logprobs, alone.logprobs, atol=1e-3)


def test_an_adapter_that_could_not_be_unloaded_is_unloaded_by_the_next_pass(world: World) -> None:
    """It is on the record; over twenty tenants nothing piles up, in slots or in bytes (FB-41, scenario 3)."""
    before = world.arena.usage()
    for number in range(PUSHES):
        gone, came = ("a", "b") if number % 2 == 0 else ("b", "a")
        world.retire(gone)
        world.load(came, seed=number)
        world.engine.fault = FailAt("unload_adapter") if number == 0 else None
        if number == 0:
            with pytest.raises(TransitionFailed, match="unload_adapter failed on request"):
                world.push()
            assert world.trainer.explain("update_weights", engines=[world.engine]).facts.engines[0].extra == ("a",)
            world.engine.fault = None
        world.push()
        assert world.held() == list(world.engine._instance.adapters()) == [came]
        assert world.arena.usage() == before


def test_what_a_restarted_engine_held_is_not_unloaded(make_world: Callable[..., World]) -> None:
    """Capacity 1, a held, and gone with the instance: b is registered and pushed, and that is all (FB-42, 1)."""
    world = make_world(engine_slots=1)
    world.load("a")
    world.push()
    world.engine.restart()
    world.engine.told.clear()
    world.retire("a")
    world.load("b", seed=2)
    world.push()

    assert world.engine.told == [("load", "b", 2, 4.0)]
    assert world.difference("b") < 1e-4


def test_more_adapters_than_an_engine_has_slots_are_refused_and_nothing_is_evicted(
    make_world: Callable[..., World],
) -> None:
    """Refused before anything is sent, naming engine, slots and adapters; what is served stays so (FB-42, 2)."""
    world = make_world(engine_slots=1)
    world.load("a")
    world.push()
    before = world.answer("a")
    world.load("b", seed=2)
    world.engine.told.clear()
    with pytest.raises(EventRefused, match=r"E0 holds 1 adapter.*a, b") as refused:
        world.push()

    assert [one.name for one in refused.value.failed] == ["engines-have-room-for-the-adapters"]
    assert world.engine.told == []
    assert torch.allclose(world.answer("a").logprobs, before.logprobs, atol=1e-5)  # its prefix was cached
    assert world.registry.adapter_state("b") == "pending"


def test_an_unload_that_fails_is_named_as_the_cause_and_the_next_pass_recovers(
    make_world: Callable[..., World],
) -> None:
    """Capacity 1: b cannot come because a could not go; that is what the error says (FB-42, scenario 3)."""
    world = make_world(engine_slots=1)
    world.load("a")
    world.push()
    world.retire("a")
    world.load("b", seed=2)
    world.engine.fault = FailAt("unload_adapter")
    with pytest.raises(TransitionFailed, match="unload_adapter failed on request") as failed:
        world.push()
    world.engine.fault = None
    pending = world.registry.adapter_state("b")
    world.push()

    assert isinstance(failed.value.cause, OSError)
    assert pending == "pending"
    assert world.held() == ["b"]
    assert world.difference("b") < 1e-4


@pytest.mark.parametrize("error", [EngineError("E0", "is gone too"), ConnectionError("is gone too")])
def test_an_abort_that_fails_too_does_not_hide_why_the_push_failed(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The first cause is raised, the second is on the engine's fence, whatever its kind (FB-42)."""

    def fail() -> None:
        raise error

    world.change("a")
    world.engine.fault = FailAt("commit_update")
    monkeypatch.setattr(world.engine, "abort_update", fail)
    with pytest.raises(TransitionFailed, match="commit_update failed on request"):
        world.push()
    monkeypatch.undo()
    fence = world.trainer.explain("update_weights", engines=[world.engine]).facts.engines[0].fenced
    world.engine.fault = None
    world.push()

    assert "commit_update failed on request" in fence
    assert "is gone too" in fence
    assert world.difference("a") < 1e-4


def test_what_an_engine_reports_is_what_counts_and_not_its_name(world: World) -> None:
    """A fence of the instance before does not stay on one that was sent everything (FB-42)."""
    world.change("a")
    world.engine.fault = FailAt("load_adapter")
    with pytest.raises(TransitionFailed):
        world.push()
    world.engine.fault = None
    world.engine.restart()
    world.push()
    facts: Mapping[str, Any] = {"fenced": "", "stale": (), "extra": ()}
    now = world.trainer.explain("update_weights", engines=[world.engine]).facts.engines[0]

    assert {key: getattr(now, key) for key in facts} == facts
    assert world.difference("a") < 1e-4
