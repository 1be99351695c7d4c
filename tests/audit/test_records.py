"""A record tells what changed, and a long list of what did not is left out."""

from __future__ import annotations

from contextlib import suppress

from lifecycle.audit.log import MemoryAudit
from lifecycle.config import LifecycleConfig
from lifecycle.ledger import Held
from lifecycle.outcome import Moved
from lifecycle.transition.records import CHECKPOINT_EVERY, Recorder
from states import TrainerEvent, TrainerState
from tests.lifecycle.world import World, make_world


def notes(world: World, what: str) -> list[dict[str, object]]:
    """The notes of one kind."""
    return [one for one in world.records("noted") if one["note"] == what]


def test_an_aborted_step_tells_the_versions_that_it_changed() -> None:
    """Not those of every adapter."""
    world = make_world()
    world.train("A", "B")
    with suppress(RuntimeError), world.trainer.step(["A"]):
        raise RuntimeError

    assert set(notes(world, "a step was aborted")[-1]["versions"]) == {"buffers", "adapter/A"}  # type: ignore[call-overload]


def test_a_copy_that_is_renewed_tells_the_versions_that_are_others_in_it() -> None:
    """The first tells all; a copy that is given up, that all are gone."""
    world = make_world()
    store = world.trainer.snapshots
    store.backup("mine")
    world.train("A")
    store.backup("mine")
    store.release("mine")

    first, second = (set(one["versions"]) for one in notes(world, "snapshots.backup"))  # type: ignore[call-overload]
    assert first == {"frozen-base", "buffers", "adapter/A", "adapter/B"}
    assert second == {"buffers", "adapter/A"}
    (gone,) = notes(world, "snapshots.release")
    assert gone["versions"] == dict.fromkeys(["frozen-base", "buffers", "adapter/A", "adapter/B"])


def test_all_versions_stand_in_one_of_as_many_records_as_there_are_groups() -> None:
    """At least in one of a hundred: of thousands of adapters the lists stay a small part of the log."""
    audit, groups = MemoryAudit(), CHECKPOINT_EVERY * 2
    recorder = Recorder(audit, LifecycleConfig())
    state = TrainerState.AWAKE
    outcome = Moved(event=TrainerEvent.TRAINED, edge="commits", source=state, target=state)
    versions = {f"adapter/{number}": number for number in range(groups)}
    for number in range(groups + 2):
        recorder.moved(outcome, versions | {"adapter/0": 1000 + number}, Held({}, {}, {}, {}, {}, {}, {}))

    whole = [number for number, one in enumerate(audit.records) if "checkpoint" in one]
    assert whole == [0, groups + 1]
    assert all(list(one["versions"]) == ["adapter/0"] for one in audit.records[1:])  # type: ignore[call-overload]
