"""A tenant is a registration, not a name and not a slot, also where a slot was freed by hand or a registry was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle import AdapterError, Moved, TransitionFailed, Unchanged
from lifecycle.adapters import AdapterRegistry, AdapterSettings
from tests.adapters.tenancy_world import SLOT_RANK, ServingEngine, TenancyWorld, given_tensors, make


@pytest.fixture
def world(tmp_path: Path) -> TenancyWorld:
    """Awake, with a in slot 0 and b in slot 1."""
    found = make("fp32", "cpu", tmp_path)
    for seed, name in enumerate("ab"):
        found.registry.register(name, tensors=given_tensors(seed, SLOT_RANK), rank=SLOT_RANK)
    found.trainer.reconcile_adapters()
    return found


def free_by_hand(registry: AdapterRegistry, *names: str) -> None:
    """Their slots may be given out again, although a trainer holds them still."""
    for name in names:
        registry.deregister(name)
    registry.retire_adapters()
    for name in names:
        registry.free_slot(name)


def slots(world: TenancyWorld) -> dict[str, tuple[int, int]]:
    """Registration id and slot of what is loaded."""
    return {name: (one.registration_id, one.slot) for name, one in world.host.loaded().items()}


@pytest.mark.parametrize("keep", [None, "keep"])
def test_two_that_take_each_others_slots_change_places(world: TenancyWorld, keep: str | None) -> None:
    """Each waits for the other's slot, and so they go together (FB-35)."""
    free_by_hand(world.registry, "a", "b")
    world.registry.register("b", seed=1)
    world.registry.register("a", seed=2)
    outcome = world.trainer.reconcile_adapters(partial=keep)

    assert isinstance(outcome, Moved)
    assert outcome.failed == ()
    assert slots(world) == {"b": (3, 0), "a": (4, 1)}
    assert isinstance(world.trainer.reconcile_adapters(partial=keep), Unchanged)


def test_of_two_that_change_places_none_does_when_one_cannot(world: TenancyWorld, tmp_path: Path) -> None:
    """Both are as they were, and each is told why."""
    before, bytes_before = slots(world), [world.slot_bytes(slot) for slot in range(3)]
    directory = world.trainer.save_adapter("a", tmp_path / "a")
    free_by_hand(world.registry, "a", "b")
    world.registry.register("b", directory)
    world.registry.register("a", seed=2)
    (directory / "adapter_model.safetensors").unlink()
    outcome = world.trainer.reconcile_adapters(partial="keep")

    assert isinstance(outcome, Moved)
    assert [(one.name, one.change) for one in outcome.failed] == [("a", "replace"), ("b", "replace")]
    assert "it changes slots with 'b', which failed" in outcome.failed[0].why
    assert slots(world) == before
    assert [world.slot_bytes(slot) for slot in range(3)] == bytes_before
    with pytest.raises(TransitionFailed, match="'b'"):
        world.trainer.reconcile_adapters()


def test_one_that_takes_the_slot_of_another_that_moves_comes_after_it(world: TenancyWorld) -> None:
    """Whatever their names: what can be kept does not depend on the alphabet."""
    free_by_hand(world.registry, "b")
    free_by_hand(world.registry, "a")
    world.registry.register("0", seed=1)
    world.registry.register("b", seed=2)
    world.registry.register("a", seed=3)
    outcome = world.trainer.reconcile_adapters(partial="keep")

    assert isinstance(outcome, Moved)
    assert outcome.failed == ()
    assert {name: slot for name, (_, slot) in slots(world).items()} == {"0": 0, "b": 1, "a": 2}


@pytest.mark.parametrize("was_trained", [True, False])
def test_whether_a_tenant_trains_is_not_asked_of_the_next_registration_of_its_name(
    world: TenancyWorld, *, was_trained: bool
) -> None:
    """Until the reconcile the slot holds the earlier one, and its flags are right (FB-38)."""
    world.registry.register("c", seed=1, settings=AdapterSettings(trainable=was_trained))
    world.trainer.reconcile_adapters()
    free_by_hand(world.registry, "c")
    world.registry.register("c", seed=2, settings=AdapterSettings(trainable=not was_trained))
    before = world.host.misflagged(), world.host.frozen()
    with world.trainer.step(["a"]) as step:
        step.stepped()
    world.trainer.reconcile_adapters()

    assert before == ((), frozenset() if was_trained else {"c"})
    assert world.host.frozen() == ({"c"} if was_trained else frozenset())


def test_a_frozen_adapter_stays_frozen_when_its_registry_is_lost(world: TenancyWorld) -> None:
    """Nobody says any more how it was registered; its slot is not trained for that (FB-38)."""
    world.registry.register("c", seed=1, settings=AdapterSettings(trainable=False))
    world.trainer.reconcile_adapters()
    world.serve(AdapterRegistry(3))

    assert world.host.frozen() == {"c"}
    assert world.host.misflagged() == ()


@pytest.mark.parametrize("how", ["completed", "brought back"])
def test_what_was_saved_can_be_loaded_whatever_became_of_a_source(tmp_path: Path, how: str) -> None:
    """Of a registration without one that is completed, and of one whose release was undone: the file is whole."""
    file, registry = tmp_path / "registry.json", AdapterRegistry(1)
    adapter = registry.register("a", tensors=given_tensors(1, 1), rank=1)
    registry.save(file)
    registry = AdapterRegistry.load(file)
    if how == "completed":
        free_by_hand(registry, "a")
    else:
        registry.deregister("a")
        registry.release(adapter)
        registry.reinstate(adapter)
    registry.save(file)
    found = AdapterRegistry.load(file).find("a")

    assert found is not None
    assert found.state == ("completed" if how == "completed" else "retiring")
    if how == "brought back":
        with pytest.raises(AdapterError, match="its source was forgotten with it"):
            registry.source_of(adapter)


def test_an_adapter_that_waits_for_its_first_push_gets_one_though_an_engine_has_its_version(
    world: TenancyWorld, tmp_path: Path
) -> None:
    """The registry was saved before the push that it has forgotten since; until it hears of one no batch may count."""
    engine, file = ServingEngine("E0"), tmp_path / "registry.json"
    world.registry.save(file)
    world.trainer.update_weights([engine])
    world.serve(AdapterRegistry.load(file))
    before = dict(engine.versions)
    outcome = world.trainer.update_weights([engine])

    assert isinstance(outcome, Moved)
    assert engine.commits[-1] == ("adapter/a", "adapter/b")
    assert engine.versions == before
    assert world.registry.active_adapters() == ("a", "b")
    assert isinstance(world.trainer.update_weights([engine]), Unchanged)


def test_a_registration_that_is_not_loaded_yet_is_not_waited_for(world: TenancyWorld) -> None:
    """Its name is that of one which is served; nothing is sent again and again."""
    engine = ServingEngine("E0")
    world.trainer.update_weights([engine])
    free_by_hand(world.registry, "a")
    world.registry.register("a", seed=2)

    assert isinstance(world.trainer.update_weights([engine]), Unchanged)
    assert world.registry.adapter_state("a") == "pending"
