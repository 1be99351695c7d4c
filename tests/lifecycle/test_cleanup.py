"""Collecting and clearing caches while something is paused: at once where it is safe, else once, later (FB-25)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from lifecycle import Backup, HostArena, LifecycleConfig, Moved, SaverError, TrainerLifecycle, TrainerState
from lifecycle import cleanup as module
from lifecycle.cleanup import Cleaned, Deferred
from lifecycle.errors import EngineError
from tests.lifecycle.tenants import Tenant
from tests.lifecycle.test_transport import BucketEngine
from tests.lifecycle.world import TinyModel, World, make_world


class OldArena(HostArena):
    """A saver before the fix: whoever frees something that is paused ends the process."""

    @property
    def frees_while_paused(self) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__(faults=self._watch)
        self.freed: list[str] = []
        self.fails_at = ""

    def _watch(self, operation: str, tag: str) -> None:
        if operation == self.fails_at:
            raise SaverError(tag, f"told to fail at {operation}")
        if operation == "free":
            assert not self.tags()[tag].paused, f"process death: {tag} is freed while it is paused"
            self.freed.append(tag)


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """One entry for each whole clean-up; the interpreter collects nothing by itself meanwhile."""
    done: list[None] = []
    original = module.sweep

    def sweep() -> None:
        done.append(None)
        original()

    monkeypatch.setattr(module, "sweep", sweep)
    gc.collect()
    gc.disable()
    yield done
    gc.enable()


class Cycle:
    """Garbage that only a collection frees."""

    def __init__(self) -> None:
        self.me = self
        self.tensor = torch.zeros(4)


def litter() -> weakref.ref[Cycle]:
    """Leave some."""
    return weakref.ref(Cycle())


def notes(world: World) -> list[object]:
    """What was noted about clean-ups."""
    return [one["note"] for one in world.records("noted") if "clean-up" in str(one["note"])]


def test_a_clean_up_while_offloaded_waits_for_the_wake_up_and_is_done_once(sweeps: list[None]) -> None:
    """A hook after the sync asks; an older saver would end the process (FB-25, scenario 1)."""
    world = make_world(arena=OldArena())
    answers: list[object] = []

    def hook(outcome: Moved) -> None:
        if outcome.event == "update_weights":
            answers.append(world.trainer.clean_up("after the sync"))

    world.trainer.subscribe(hook)
    world.trainer.sleep(offload=True)
    garbage = litter()
    world.trainer.update_weights([BucketEngine()])

    assert isinstance(answers[0], Deferred)
    assert "paused: actor/adapters" in answers[0].because
    assert garbage() is not None
    assert world.records("noted")[-1]["reason"] == "after the sync"
    assert sweeps == []

    world.trainer.wake_up()
    assert garbage() is None
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    assert len(sweeps) == 1
    assert notes(world) == ["a clean-up was deferred", "a deferred clean-up was done"]
    done = world.records("noted")[-1]["reasons"]
    assert "after the sync" in done  # type: ignore[operator]


def test_with_the_fix_it_is_done_at_once(sweeps: list[None]) -> None:
    """Torch_memory_saver 0.0.10 and the arena survive it (FB-25, scenario 3)."""
    world = make_world()
    world.trainer.sleep(offload=True)
    garbage = litter()

    assert world.trainer.clean_up("after the sync") == Cleaned(("after the sync",))
    assert garbage() is None
    assert notes(world) == ["a clean-up was done"]
    world.trainer.wake_up()
    assert len(sweeps) == 1


def test_with_nothing_paused_an_older_saver_need_not_wait(sweeps: list[None]) -> None:
    """The precondition is residency, not the version alone."""
    world = make_world(arena=OldArena())

    assert isinstance(world.trainer.clean_up("epoch"), Cleaned)
    assert len(sweeps) == 1


def test_a_wake_up_that_fails_loses_no_clean_up(sweeps: list[None]) -> None:
    """It is done after the one that succeeds."""
    arena = OldArena()
    world = make_world(arena=arena)
    world.trainer.sleep(offload=True)
    world.trainer.clean_up("first")
    world.trainer.clean_up("second")
    arena.fails_at = "resume"
    with pytest.raises(Exception, match="told to fail"):
        world.trainer.wake_up()
    assert sweeps == []

    arena.fails_at = ""
    world.trainer.wake_up()
    assert len(sweeps) == 1
    assert world.records("noted")[-1]["reasons"] == ["first", "second"]


def test_a_clean_up_that_fails_goes_on_waiting(sweeps: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it raises does not change the transition's outcome; the next commit tries again."""
    world = make_world(arena=OldArena())
    world.trainer.sleep(offload=True)
    world.trainer.clean_up("first")
    with monkeypatch.context() as patch:
        patch.setattr(module, "clear_device_cache", lambda: 1 // 0)
        world.trainer.wake_up()
    assert isinstance(world.trainer.callback_errors[0], ZeroDivisionError)
    assert world.trainer.state is TrainerState.AWAKE

    world.trainer.sleep()
    world.trainer.wake_up()
    assert world.records("noted")[-1]["reasons"] == ["first"]


def test_a_whole_clean_up_answers_what_is_waiting_too(sweeps: list[None], monkeypatch: pytest.MonkeyPatch) -> None:
    """One sweep, on the record for every reason; nothing is left for the next commit."""
    arena = OldArena()
    world = make_world(arena=arena)
    arena.place({"other": torch.zeros(4)}, "other/base", Backup.CPU)
    arena.pause("other/base")
    world.trainer.clean_up("first")
    arena.resume("other/base")

    assert world.trainer.clean_up("second") == Cleaned(("first", "second"))
    world.train("A")
    assert len(sweeps) == 1


def critic(arena: HostArena) -> TrainerLifecycle:
    """A second model on the same saver, without adapters."""
    model = TinyModel(1)
    return TrainerLifecycle(
        LifecycleConfig(lora=False, model="critic"),
        saver=arena, model=model, optimizer=torch.optim.SGD(model.parameters()), adapters=None,
        initial_state=TrainerState.AWAKE,
    )  # fmt: skip


def test_a_sleep_does_not_clear_caches_while_another_tenant_is_paused(sweeps: list[None]) -> None:
    """The critic is offloaded when the actor falls asleep; its own clearing waits for both."""
    arena = OldArena()
    world, other = make_world(arena=arena), critic(arena)
    other.sleep(offload=True)
    outcome = world.trainer.sleep()

    assert isinstance(outcome, Moved)
    assert "critic/" in str(dict(outcome.details)["caches"])
    world.trainer.wake_up()
    assert sweeps == []
    other.wake_up()
    world.train("A")
    assert len(sweeps) == 1
    assert world.records("noted")[-1]["reasons"] == ["sleep"]


def test_a_sleep_clears_caches_where_nobody_is_paused(sweeps: list[None]) -> None:
    """The ordinary case says nothing about it and leaves nothing to do."""
    world = make_world(arena=OldArena())
    outcome = world.trainer.sleep()

    assert isinstance(outcome, Moved)
    assert "caches" not in dict(outcome.details)
    assert world.trainer._parts.cleanup.waiting == []
    assert sweeps == []


def test_dropping_the_last_reference_to_a_paused_tensor_frees_nothing(sweeps: list[None]) -> None:
    """The saver's region keeps the memory: no process death, and the tag comes back (FB-25, scenario 2)."""
    arena = OldArena()
    tensor, neighbour = torch.randn(5), torch.randn(5)
    before = neighbour.tolist()
    arena.place({"tensor": tensor, "neighbour": neighbour}, "framework/base", Backup.CPU)
    arena.pause("framework/base")
    books = dict(arena.tags())
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()

    assert gone() is None
    assert arena.freed == []
    assert dict(arena.tags()) == books
    arena.resume("framework/base")
    assert neighbour.tolist() == before


def test_after_a_sync_the_collection_waits_for_the_receivers_and_for_the_saver(
    sweeps: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collect after the receivers have closed, not after the last send; where the saver bears it (FB-22, FB-25)."""
    cleared: list[bool] = []
    engine = BucketEngine()
    monkeypatch.setattr("lifecycle.transition.sync.clear_device_cache", lambda: cleared.append(bool(engine.open)))
    world = make_world()
    world.trainer.update_weights([engine])
    assert cleared == [False]

    old = make_world(arena=OldArena())
    old.trainer.sleep(offload=True)
    old.trainer.update_weights([BucketEngine("E1")])
    assert len(cleared) == 1
    assert old.trainer._parts.cleanup.waiting == ["the receivers of a sync have closed their buffers"]


def test_an_engine_that_restarts_while_released_is_resumed_before_its_memory_is_freed() -> None:
    """Its tags are paused; an older saver would end the process (FB-25)."""
    pytest.importorskip("transformers")
    from lifecycle.engines.local import LocalEngine  # noqa: PLC0415 - needs transformers
    from tests.engines.world import RANK, TARGETS, llama  # noqa: PLC0415 - the same

    arena = OldArena()
    engine = LocalEngine(
        "e0", lambda: llama(99), saver=arena, slots=1, rank=RANK, target_modules=TARGETS, kv_cache_bytes=4096
    )
    engine.release(("weights", "kv_cache"))
    arena.fails_at = "resume"
    with pytest.raises(EngineError, match="cannot free weights"):
        engine.restart()
    arena.fails_at = ""
    engine.restart()

    assert sorted(arena.freed) == ["e0/kv_cache", "e0/weights"]
    assert engine.report().released == frozenset()


def test_a_hand_over_with_an_older_saver_cleans_up_once_the_engine_is_closed(sweeps: list[None]) -> None:
    """Trainer and engine take turns, so something is always paused: the clean-up waits and is not lost."""
    arena = OldArena()
    world = make_world(arena=arena)
    engine = Tenant(arena, 4096, 512)
    with world.trainer.handoff([engine]):
        assert isinstance(world.trainer.clean_up("turn"), Deferred)
    assert sweeps == []
    engine.resume(("weights", "kv_cache"))
    world.train("A")

    assert len(sweeps) == 1
