"""Reconciling adapters: awake, asleep and offloaded, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lifecycle import AdapterError, EventRefused, HostArena, Moved, TrainerState, TransitionFailed, Unchanged
from lifecycle.audit.projection import canonical
from tests.lifecycle.world import FakeEngine, World, make_world


def rest(world: World, state: TrainerState) -> None:
    """Bring the world into a resting state."""
    if state is not TrainerState.AWAKE:
        world.trainer.sleep(offload=state is not TrainerState.SLEEPING)
    assert world.trainer.state is state


def world_in(state: TrainerState, tmp_path: Path) -> World:
    """A world in that resting state, A and B loaded and trained."""
    target = "disk" if state is TrainerState.OFFLOADED_DISK else "cpu"
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), offload_target=target)
    world.train("A", "B")
    rest(world, state)
    return world


RESTING = [TrainerState.AWAKE, TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU, TrainerState.OFFLOADED_DISK]


@pytest.mark.parametrize("state", RESTING)
def test_a_reconcile_returns_to_where_it_came_from_and_gives_the_same_bytes_everywhere(
    state: TrainerState, tmp_path: Path
) -> None:
    """Loaded and retired while awake or through the host backup: after waking the weights are equal."""
    awake = world_in(TrainerState.AWAKE, tmp_path)
    other = world_in(state, tmp_path)
    for world in (awake, other):
        world.host.register("C", 2)
        world.host.deregister("A")
        outcome = world.trainer.reconcile_adapters()
        assert isinstance(outcome, Moved)
        assert outcome.source is outcome.target
    assert other.trainer.state is state
    other.trainer.wake_up()

    assert other.all_bytes() == awake.all_bytes()


@pytest.mark.parametrize("state", RESTING)
def test_an_adapter_loaded_asleep_reaches_the_engine_without_a_wake_up(state: TrainerState, tmp_path: Path) -> None:
    """The host backup is what comes back on resume, and what a push reads."""
    world, engine = world_in(state, tmp_path), FakeEngine()
    world.host.register("C", 2)
    world.trainer.reconcile_adapters()
    world.trainer.update_weights([engine])
    served = engine.digests["adapter/C"]
    if state is not TrainerState.AWAKE:
        world.trainer.wake_up()
    engine.restart()
    world.trainer.update_weights([engine])

    assert engine.digests["adapter/C"] == served


@pytest.mark.parametrize("state", RESTING)
def test_one_bad_adapter_of_three_leaves_every_slot_as_it_was(state: TrainerState, tmp_path: Path) -> None:
    """The error names the adapter, the state is the origin, no byte and no version has moved."""
    world = world_in(state, tmp_path)
    before, versions = world.all_bytes() if state is not TrainerState.OFFLOADED_DISK else None, versions_of(world)
    world.host.deregister("A")
    world.host.register("C", 2)
    world.host.bad.add("C")
    with pytest.raises(TransitionFailed, match="'C'") as failed:
        world.trainer.reconcile_adapters()

    assert isinstance(failed.value.cause, AdapterError)
    assert world.trainer.state is state
    assert set(world.host.loaded()) == {"A", "B"}
    assert versions_of(world) == versions
    assert before is None or world.all_bytes() == before


def versions_of(world: World) -> dict[str, int]:
    """Version by content group."""
    return {one.group: one.version for one in world.trainer.facts().contents}


def test_reconciling_twice_changes_nothing_the_second_time() -> None:
    """Level-triggered and idempotent."""
    world = make_world()

    assert isinstance(world.trainer.reconcile_adapters(), Unchanged)


def test_a_name_that_was_registered_anew_is_another_adapter() -> None:
    """Compared by registration, not by name."""
    world = make_world()
    before = versions_of(world)["adapter/A"]
    world.host.register("A", 0, seed=99)
    world.trainer.reconcile_adapters()

    assert versions_of(world)["adapter/A"] > before
    assert torch.equal(world.model.lora_a[0].detach(), world.host.values["A"]["lora_a.0"])


def test_plans_of_equal_names_and_other_registrations_are_other_shared_facts() -> None:
    """Ranks compare shared facts, and runs their records: a name may be another adapter on each."""
    one, other = make_world(), make_world()
    nothing = one.trainer.facts().plan_digest
    other.host.register("A", 0, seed=98)  # it was registered once more than on the other rank
    for world in (one, other):
        world.host.register("A", 0, seed=99)
    shared = [world.trainer.facts().shared() for world in (one, other)]
    for world in (one, other):
        world.trainer.reconcile_adapters()
    told: list[Any] = [canonical(world.audit.records)[0]["shared"] for world in (one, other)]

    assert nothing == ""
    for facts in (shared, told):
        assert [facts[0][key] == facts[1][key] for key in ("to_load", "to_retire", "plan_digest")] == [
            True,
            True,
            False,
        ]
    assert [each["plan_digest"] for each in told] == [each["plan_digest"] for each in shared]


def test_the_next_tenant_of_a_slot_starts_from_zero() -> None:
    """Its steps are, bit for bit, those of a fresh trainer: no moment, count or gradient is inherited."""
    used, fresh = make_world(adapters=("A",)), make_world(adapters=())
    used.train("A", steps=3)
    used.backward("A")
    used.host.deregister("A")
    used.trainer.reconcile_adapters()
    for world in (used, fresh):
        world.host.register("T", 0, seed=5)
        world.trainer.reconcile_adapters()
        world.train("T", steps=3)

    assert used.all_bytes() == fresh.all_bytes()


def test_gradients_accumulated_for_a_retired_adapter_are_dropped_and_the_log_says_so() -> None:
    """The untrained tail of a retired adapter goes, visibly."""
    world = make_world()
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    world.trainer.sleep(offload=True)
    world.host.deregister("A")
    outcome = world.trainer.reconcile_adapters()

    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["dropped_gradients_of"] == ["adapter/A"]
    assert world.trainer.held_bytes()["kept_gradients"] == 0


def test_the_reference_rule_takes_the_edge_that_reads_the_saver_backup() -> None:
    """No copy is made: weight sync reads the saver's own backup."""
    world = make_world()
    world.host.register("C", 2)
    outcome = world.trainer.reconcile_adapters()

    assert isinstance(outcome, Moved)
    assert outcome.edge == "reads-saver-backup"
    assert world.trainer.snapshots.backup_tags == ()


@pytest.mark.parametrize("changes", [{"strategy": "duplicate"}, {"strategy": "reference", "with_ref": True}])
def test_otherwise_the_actor_is_backed_up(changes: dict[str, object]) -> None:
    """``backup("actor")`` follows the reconcile and holds the adapter that was loaded."""
    world = make_world(**changes)
    world.host.register("C", 2)
    outcome = world.trainer.reconcile_adapters()

    assert isinstance(outcome, Moved)
    assert outcome.edge == "backs-up-actor"
    assert torch.equal(world.trainer.snapshots.get("actor")["lora_a.2"], world.host.values["C"]["lora_a.2"])


def test_a_disaggregated_run_makes_no_copy() -> None:
    """Not colocated and nothing kept: a reconcile must not bring a full copy of the base into being."""
    world = make_world(colocate=False, strategy="reference")
    world.host.register("C", 2)
    outcome = world.trainer.reconcile_adapters()

    assert isinstance(outcome, Moved)
    assert outcome.edge == "makes-no-copy"
    assert world.trainer.snapshots.backup_tags == ()


def test_a_reconcile_while_another_model_is_active_is_refused() -> None:
    """It would save the reference's bytes as the actor's."""
    world = make_world(with_ref=True)
    ref = {name: one.detach() + 1 for name, one in world.trainer._parts.inventory.base["frozen-base"].items()}
    world.trainer.snapshots.backup("actor")
    world.trainer.keep_model("ref", ref)
    world.trainer.switch_model("ref")
    world.host.register("C", 2)
    with pytest.raises(EventRefused, match="active-model-is-the-actor"):
        world.trainer.reconcile_adapters()


def test_explain_says_which_edge_a_reconcile_would_take() -> None:
    """The question decides both moves, like the order."""
    world = make_world(strategy="duplicate")
    world.host.register("C", 2)

    assert world.trainer.explain("reconcile_adapters").edge == "backs-up-actor"


def test_an_outcome_reads_as_a_sentence_and_nothing_to_do_failed_nowhere() -> None:
    """A loop that reads ``failed`` need not ask first whether anything was done."""
    world = make_world()
    slept, again = world.trainer.sleep(), world.trainer.reconcile_adapters(partial="keep")

    assert str(slept).startswith("sleep (quiesces): awake to sleeping, 0 bytes moved in ")
    assert (again.failed, again.moved_bytes) == ((), 0)
    assert str(again) == "reconcile_adapters: nothing to do, the trainer is sleeping"


def test_a_lease_says_which_names_it_has() -> None:
    """Not a bare KeyError."""
    with make_world().trainer.weights() as lease, pytest.raises(KeyError, match="nope is none of the"):
        lease["nope"]
