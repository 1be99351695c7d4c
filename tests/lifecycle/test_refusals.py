"""Every pair of state and event on the real controller: what is refused changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lifecycle import EventRefused, HostArena, TrainerEvent, TrainerFaulted, TrainerState
from tests.lifecycle.world import FakeEngine, World, make_world

RESTING = (
    TrainerState.AWAKE,
    TrainerState.SLEEPING,
    TrainerState.OFFLOADED_CPU,
    TrainerState.OFFLOADED_DISK,
    TrainerState.FAULTED,
)
SENDS: dict[str, Callable[[World], object]] = {
    "sleep": lambda world: world.trainer.sleep(),
    "offload": lambda world: world.trainer.offload(),
    "wake_up": lambda world: world.trainer.wake_up(),
    "reconcile_adapters": lambda world: world.trainer.reconcile_adapters(),
    "update_weights": lambda world: world.trainer.update_weights([FakeEngine()]),
    "begin_step": lambda world: world.trainer.begin_step(["A"]),
    "trained": lambda world: world.trainer.trained(["A"]),
    "switch_model": lambda world: world.trainer.switch_model("teacher"),
    "recover": lambda world: world.trainer.recover(),
}
REFUSED = {
    "awake": {"offload", "trained", "switch_model"},
    "sleeping": {"begin_step", "trained", "switch_model"},
    "offloaded-cpu": {"begin_step", "trained", "switch_model"},
    "offloaded-disk": {"begin_step", "trained", "switch_model"},
    "faulted": set(SENDS) - {"recover"},
}
CASES = [(state, event) for state in RESTING for event in sorted(REFUSED[state])]


def world_in(state: TrainerState, tmp_path: Path) -> World:
    """A world that rests in the state, with a change pending."""
    target = "disk" if state is TrainerState.OFFLOADED_DISK else "cpu"
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), offload_target=target)
    world.train("A")
    if state is TrainerState.FAULTED:
        fault(world)
    elif state is not TrainerState.AWAKE:
        world.trainer.sleep(offload=state is not TrainerState.SLEEPING)
    world.host.register("C", 2)
    world.audit.records.clear()
    assert world.trainer.state is state
    return world


def fault(world: World) -> None:
    """Fail an effect and its undo."""
    runner = world.trainer._runner
    first, last = runner.effects["tear-down-groups"], runner.effects["pause-scratch"]

    def bad_undo() -> None:
        raise RuntimeError("the undo fails too")

    runner.effects["tear-down-groups"] = lambda parts, work: bad_undo
    runner.effects["pause-scratch"] = lambda parts, work: (_ for _ in ()).throw(RuntimeError("the effect fails"))
    with pytest.raises(TrainerFaulted):
        world.trainer.sleep()
    runner.effects["tear-down-groups"], runner.effects["pause-scratch"] = first, last


def everything(world: World) -> dict[str, object]:
    """State, versions, tags and the SHA-256 of every tensor that can be reached."""
    parts = world.trainer._parts
    facts = world.trainer.facts()
    found: dict[str, object] = {
        "state": world.trainer.state,
        "versions": [(one.group, one.version, one.live, one.saver, one.copies) for one in facts.contents],
        "tags": dict(world.arena.tags()),
        "loaded": dict(world.host.loaded()),
        "step": parts.runtime.step,
    }
    if world.trainer.state is not TrainerState.OFFLOADED_DISK:
        found["bytes"] = world.all_bytes()
    return found


@pytest.mark.parametrize(("state", "event"), CASES)
def test_a_refused_event_changes_nothing_and_leaves_one_record(state: TrainerState, event: str, tmp_path: Path) -> None:
    """State, versions, tags and bytes are as before; the error names state, event, guards and remedy."""
    world = world_in(state, tmp_path)
    before = everything(world)
    with pytest.raises(EventRefused) as refused:
        SENDS[event](world)

    assert everything(world) == before
    assert [one["event"] for one in world.audit.records] == ["lifecycle.refused"]
    assert refused.value.state is state
    assert refused.value.event == event
    assert refused.value.failed
    assert all(one.because and one.name in str(refused.value) for one in refused.value.failed)
    assert refused.value.remedy
    assert refused.value.remedy in str(refused.value)


@pytest.mark.parametrize("state", RESTING)
@pytest.mark.parametrize("event", sorted(SENDS))
def test_may_agrees_with_what_happens_and_changes_nothing(state: TrainerState, event: str, tmp_path: Path) -> None:
    """The question is answered without a record, an effect or an exception (FB-59)."""
    world = world_in(state, tmp_path)
    before = everything(world)
    verdict = world.trainer.may(
        event, adapters=["A"], target="teacher" if event == "switch_model" else "actor", engines=[FakeEngine()]
    )

    assert bool(verdict) is (event not in REFUSED[state])
    assert everything(world) == before
    assert world.audit.records == []


@pytest.mark.parametrize("event", list(TrainerEvent))
def test_may_never_raises_even_when_facts_cannot_be_gathered(
    event: TrainerEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that cannot be answered is answered with no, and why (FB-59)."""
    world = make_world()
    monkeypatch.setattr(world.host, "loaded", lambda: 1 / 0)
    verdict = world.trainer.may(event)

    assert not verdict
    assert "ZeroDivisionError" in verdict.because


def test_an_unknown_event_may_not_happen() -> None:
    """A misspelt event is a no with a reason."""
    assert not make_world().trainer.may("slep")
