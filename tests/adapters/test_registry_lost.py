"""A registry that was lost does not mean "retire everything": under the real controller, on slots that are in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Adam

from lifecycle import (
    EventRefused,
    HostArena,
    LifecycleConfig,
    MemoryAudit,
    Moved,
    TrainerLifecycle,
    TrainerState,
    TransitionFailed,
    Unchanged,
)
from lifecycle.adapters import AdapterRegistry, DesiredAdapter, PeftAdapters
from lifecycle.adapters.custody import unaccounted_of
from lifecycle.errors import ConfigError
from states import AdapterState
from tests.adapters.world import factors, host
from tests.lifecycle.slot_world import make


@pytest.fixture
def made() -> PeftAdapters:
    """Slots on a model."""
    return host()


@pytest.fixture
def trainer(made: PeftAdapters) -> Iterator[TrainerLifecycle]:
    """Awake, with adapters a and b loaded."""
    arena = HostArena()
    trainer = TrainerLifecycle(
        LifecycleConfig(),
        saver=arena,
        model=made.model,
        optimizer=made.optimizers(lambda parameters: Adam(parameters, lr=0.01)),
        adapters=made,
        audit=MemoryAudit(),
        initial_state=TrainerState.AWAKE,
    )
    for seed, name in enumerate("ab"):
        made.registry.register(name, tensors=factors(seed, 4), rank=4)
    trainer.reconcile_adapters()
    yield trainer
    arena.close()


def served_by(made: PeftAdapters, registry: AdapterRegistry) -> AdapterRegistry:
    """The registry's process has restarted: the same slots, another registry."""
    registry.connect(made._read, made.loaded)
    made.registry = registry
    return registry


def slot_bytes(made: PeftAdapters) -> list[Tensor]:
    """What is in the slots."""
    return [one.detach().clone() for slot in range(made.slots) for one in made.slot_tensors(slot).values()]


def unchanged(made: PeftAdapters, before: list[Tensor]) -> bool:
    """Whether the slots hold what they held."""
    return all(torch.equal(one, other) for one, other in zip(slot_bytes(made), before, strict=True))


def test_a_new_registry_retires_nothing_that_the_host_holds(made: PeftAdapters, trainer: TrainerLifecycle) -> None:
    """The reconcile is refused, names what it would have retired and says what to do; not a byte is written."""
    served_by(made, AdapterRegistry(slots=3))
    before, loaded = slot_bytes(made), made.loaded()
    with pytest.raises(EventRefused, match=r"declare_complete\(\)") as caught:
        trainer.reconcile_adapters()

    assert [one.name for one in caught.value.failed] == ["registry-knows-what-is-loaded"]
    assert "a, b" in caught.value.failed[0].because
    assert made.registry.unaccounted() == ("a", "b")
    assert made.loaded() == loaded
    assert unchanged(made, before)


def test_nor_does_it_when_something_was_registered_in_it(made: PeftAdapters, trainer: TrainerLifecycle) -> None:
    """One registration does not make it the registry of what is there, whose slot it would take."""
    served_by(made, AdapterRegistry(slots=3)).register("a")
    before = slot_bytes(made)

    with pytest.raises(EventRefused, match="registry-knows-what-is-loaded"):
        trainer.reconcile_adapters()

    assert unchanged(made, before)


def test_a_registry_that_is_said_to_be_complete_retires_what_it_never_knew(
    made: PeftAdapters, trainer: TrainerLifecycle
) -> None:
    """Said once; a name that it gave out again is another registration, and starts anew."""
    registry = served_by(made, AdapterRegistry(slots=3))
    new = registry.register("a", tensors=factors(9, 4), rank=4)
    retired = registry.declare_complete()
    trainer.reconcile_adapters()

    assert retired == ("a", "b")
    assert list(made.loaded()) == ["a"]
    assert made.loaded()["a"].registration_id == new.registration_id == 3
    assert registry.unaccounted() == registry.declare_complete() == ()


def test_the_saved_registry_has_nothing_to_do(made: PeftAdapters, trainer: TrainerLifecycle, tmp_path: Path) -> None:
    """It knows what is loaded: nothing is retired, nothing is loaded again, and it goes on."""
    made.registry.save(tmp_path / "registry.json")
    before = slot_bytes(made)
    registry = served_by(made, AdapterRegistry.load(tmp_path / "registry.json"))
    outcome = trainer.reconcile_adapters()
    registry.deregister("b")
    untouched = unchanged(made, before)
    trainer.reconcile_adapters()

    assert isinstance(outcome, Unchanged)
    assert untouched
    assert list(made.loaded()) == ["a"]
    assert registry.adapter_state("b") is AdapterState.COMPLETED


def test_a_registry_that_is_older_than_what_is_loaded_retires_nothing_that_it_missed(
    made: PeftAdapters, trainer: TrainerLifecycle, tmp_path: Path
) -> None:
    """Saved before c was registered; c is kept, and its id is not given out again."""
    made.registry.save(tmp_path / "registry.json")
    made.registry.register("c", tensors=factors(3, 4), rank=4)
    trainer.reconcile_adapters()
    registry = served_by(made, AdapterRegistry.load(tmp_path / "registry.json"))

    assert registry.unaccounted() == ("c",)
    with pytest.raises(EventRefused, match="c"):
        trainer.reconcile_adapters()
    assert registry.register("d").registration_id == 4


def test_an_optimizer_that_stepped_outside_of_a_step_has_changed_the_adapter_too() -> None:
    """Its first tensors are not what it had when its host was lost."""
    registry = AdapterRegistry(slots=2)
    lost = make(registry=registry)
    registry.register("a", tensors=factors(1, 4), rank=4)
    lost.trainer.reconcile_adapters()
    lost.optimizers[lost.host.slot_of("a")].step()
    new = make(registry=registry)
    with pytest.raises(TransitionFailed, match=r"'a': .*resupply\(\)"):
        new.trainer.reconcile_adapters()


def test_a_host_that_was_lost_does_not_bring_the_first_tensors_back_under_a_later_step() -> None:
    """The registry outlived its trainer: what has trained since is given again, or its loss is said by name."""
    registry = AdapterRegistry(slots=2)
    lost = make(registry=registry)
    registry.register("a", tensors=factors(1, 4), rank=4)
    lost.trainer.reconcile_adapters()
    registry.record_weight_update(["a"])
    registry.record_batch_adapters(0, {"a": 1}, ["a"])
    lost.train("a")
    registry.mark_batch_trained(0)
    new = make(registry=registry)
    with pytest.raises(TransitionFailed, match=r"'a': it had trained to step 1.*of step 0; resupply\(\)"):
        new.trainer.reconcile_adapters()

    assert new.host.loaded() == {}
    registry.resupply("a", tensors=factors(2, 4), rank=4)
    new.trainer.reconcile_adapters()
    assert list(new.host.loaded()) == ["a"]
    assert registry.step_count("a") == 1


def test_nor_does_it_where_nobody_counted_the_steps(tmp_path: Path) -> None:
    """The trainer says what it has changed; a registry that is loaded again knows it too."""
    world = make(registry=AdapterRegistry(slots=2))
    for seed, name in enumerate("ab"):
        world.host.registry.register(name, seed=seed)
    world.trainer.reconcile_adapters()
    world.train("a")
    world.host.registry.save(tmp_path / "registry.json")
    new = make(registry=AdapterRegistry.load(tmp_path / "registry.json"))
    outcome = new.trainer.reconcile_adapters(partial="keep")

    assert isinstance(outcome, Moved)
    assert [one.name for one in outcome.failed] == ["a"]
    assert "it had trained without its steps being counted" in outcome.failed[0].why
    assert list(new.host.loaded()) == ["b"]


def test_a_step_that_changed_nothing_leaves_the_source_as_good_as_it_was() -> None:
    """A checkpoint of the base alone, or a step that was aborted before it began, is no reason to ask for tensors."""
    world = make(registry=AdapterRegistry(slots=2))
    registry = world.host.registry
    registry.register("a", seed=1)
    world.trainer.reconcile_adapters()
    with world.trainer.loading_checkpoint():
        pass
    world.trainer.begin_step(["a"])
    world.trainer.abort_step()
    untouched = registry.find("a")
    world.train("a")
    trained = registry.find("a")

    assert untouched is not None
    assert not untouched.has_trained
    assert trained is not None
    assert trained.has_trained


@pytest.mark.parametrize("held", [DesiredAdapter("a", 1, 0), DesiredAdapter("a", 1, 2), DesiredAdapter("x", 5, 0)])
def test_ids_that_cannot_be_told_apart_are_refused(held: DesiredAdapter) -> None:
    """Registered first and connected then: id 1 would be two adapters, and one served as the other."""
    registry = AdapterRegistry(slots=3)
    registry.register("a")
    before = registry.snapshot()

    with pytest.raises(ConfigError, match="cannot be told apart"):
        registry.connect(lambda name, source: None, lambda: {held.name: held})

    assert registry.snapshot() == before


@pytest.mark.parametrize("own_books", [None, SimpleNamespace(desired=dict, loaded=dict)])
def test_a_host_that_keeps_its_own_books_is_never_refused(own_books: Any) -> None:
    """The rule is about the registry that a host serves; one without a registry says itself what is desired."""
    assert unaccounted_of(own_books) == ()
