"""Steps are counted when a batch was trained: once, for the registration that trained it, and for no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lifecycle.adapters import AdapterRegistry, AdapterSettings
from lifecycle.adapters.records import GroupMismatch, TrainedBatch
from lifecycle.errors import AdapterError, ConfigError
from states import AdapterState


def training(*names: str, **settings: Any) -> AdapterRegistry:
    """A registry in which these adapters are active, with these settings."""
    registry = AdapterRegistry(slots=4)
    for name in names:
        registry.register(name, settings=AdapterSettings(**settings))
    registry.record_weight_update(names)
    return registry


def end(registry: AdapterRegistry, name: str) -> None:
    """Deregister, retire and free."""
    registry.deregister(name)
    registry.retire_adapters()
    registry.free_slot(name)


def counts(registry: AdapterRegistry, name: str) -> tuple[int, int]:
    """Steps and accumulated groups."""
    record = registry.find(name)
    assert record is not None
    return record.step, record.accumulated_groups


def test_nothing_is_counted_before_the_batch_was_trained() -> None:
    """A train call that fails, or is tried again, changes nothing."""
    registry = training("a")
    registry.record_batch_adapters(7, {"a": 3}, ["a"])
    registry.record_batch_adapters(7, {"a": 2}, ["a"])
    before = counts(registry, "a")
    trained = registry.mark_batch_trained(7)

    assert before == (0, 0)
    assert trained == TrainedBatch(stepped=("a",))
    assert counts(registry, "a") == (1, 0)


def test_a_batch_is_counted_once() -> None:
    """A second call is a no-op, as is one for a batch that nobody noted."""
    registry = training("a")
    registry.record_batch_adapters(7, {"a": 3}, ["a"])
    registry.mark_batch_trained(7)
    before = registry.snapshot()

    assert registry.mark_batch_trained(7) == TrainedBatch()
    assert registry.mark_batch_trained(8) == TrainedBatch()
    assert registry.snapshot() == before


def test_groups_accumulate_over_batches_until_the_adapter_steps() -> None:
    """Adapters ride in one batch and step in another, each for itself."""
    registry = training("a", "b", rollout_batch_size=5)
    registry.record_batch_adapters(1, {"a": 3, "b": 1}, [])
    registry.record_batch_adapters(2, {"a": 2}, ["a"])
    first = registry.mark_batch_trained(1)
    between = counts(registry, "a"), counts(registry, "b")
    second = registry.mark_batch_trained(2)

    assert (first, between) == (TrainedBatch(), ((0, 3), (0, 1)))
    assert second == TrainedBatch(stepped=("a",))
    assert (counts(registry, "a"), counts(registry, "b")) == ((1, 0), (0, 1))


def test_a_step_over_another_number_of_groups_than_the_batch_size_is_reported() -> None:
    """It is counted all the same: the optimizer has stepped."""
    registry = training("a", "b", rollout_batch_size=5)
    registry.record_batch_adapters(1, {"a": 4, "b": 5}, ["a", "b"])
    trained = registry.mark_batch_trained(1)

    assert trained == TrainedBatch(stepped=("a", "b"), mismatched=(GroupMismatch("a", 4, 5),))
    assert counts(registry, "a") == (1, 0)


def test_an_adapter_that_has_done_its_steps_is_deregistered() -> None:
    """Counted from the step that it started with, not from zero."""
    registry = training("a", "b", num_step=2)
    registry.set_step("a", 40)
    ended = []
    for rollout in range(2):
        registry.record_batch_adapters(rollout, {"a": 1}, ["a"])
        ended.append(registry.mark_batch_trained(rollout).ended)

    assert ended == [(), ("a",)]
    assert registry.step_count("a") == 42
    assert registry.adapter_state("a") is AdapterState.RETIRING
    assert registry.adapter_state("b") is AdapterState.ACTIVE


@pytest.mark.parametrize(
    "leave", [AdapterRegistry.deregister, lambda one, name: (one.deregister(name), one.retire_adapters())]
)
def test_what_was_trained_is_counted_for_one_that_is_on_its_way_out(leave: Callable[..., object]) -> None:
    """Its last batch was trained; it is not ended a second time."""
    registry = training("a", num_step=1)
    registry.record_batch_adapters(1, {"a": 2}, ["a"])
    leave(registry, "a")
    trained = registry.mark_batch_trained(1)

    assert trained == TrainedBatch(stepped=("a",))
    assert registry.step_count("a") == 1


def test_a_name_that_was_registered_anew_inherits_no_batch() -> None:
    """The batch was the older registration's, which is said (FB-35)."""
    registry = training("a", "b")
    registry.record_batch_adapters(1, {"a": 2, "b": 1}, ["a", "b"])
    end(registry, "a")
    registry.register("a")
    registry.record_weight_update(["a"])
    trained = registry.mark_batch_trained(1)

    assert trained == TrainedBatch(stepped=("b",), skipped=("a",))
    assert counts(registry, "a") == (0, 0)


def test_the_newest_sixteen_batches_are_remembered() -> None:
    """A batch that is noted again becomes the newest."""
    registry = training("a")
    for rollout in range(16):
        registry.record_batch_adapters(rollout, {"a": 1}, ["a"])
    registry.record_batch_adapters(0, {"a": 1}, ["a"])
    registry.record_batch_adapters(16, {"a": 1}, ["a"])
    kept = [one.rollout_id for one in registry.snapshot().batches]

    assert kept == [*range(2, 16), 0, 16]
    assert registry.mark_batch_trained(1) == TrainedBatch()


def test_a_frozen_adapter_is_served_and_never_trained() -> None:
    """Whether an adapter is trained is what it was registered with (FB-38)."""
    registry = training("a", "f")
    end(registry, "f")
    registry.register("f", settings=AdapterSettings(trainable=False))
    registry.record_weight_update(["f"])
    before = registry.snapshot()

    with pytest.raises(AdapterError, match="frozen") as caught:
        registry.record_batch_adapters(1, {"a": 1, "f": 1}, ["a"])

    assert caught.value.adapter == "f"
    assert registry.snapshot() == before
    assert registry.active_adapters() == ("a", "f")


def test_what_happens_to_one_adapter_leaves_every_other_one_as_it_was() -> None:
    """State, slot, settings and counts of the others are the same objects as before (FB-38)."""
    registry = training("a", "b", rollout_batch_size=2)
    registry.register("f", settings=AdapterSettings(trainable=False))
    others = {name: registry.find(name) for name in ("b", "f")}
    registry.record_batch_adapters(1, {"a": 2}, ["a"])
    registry.mark_batch_trained(1)
    registry.set_step("a", 9)
    registry.resolve_num_step("a", 10)
    end(registry, "a")
    registry.register("c")

    assert all(registry.find(name) is one for name, one in others.items())


def test_groups_of_an_adapter_that_was_never_served_are_refused() -> None:
    """Nothing that it generated can be in a batch."""
    registry = training("a")
    registry.register("p")
    before = registry.snapshot()

    for name, why in (("p", "waits for its first push"), ("nobody", "not registered")):
        with pytest.raises(AdapterError, match=why):
            registry.record_batch_adapters(1, {"a": 1, name: 1})

    assert registry.snapshot() == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((-1, {"a": 1}), "rollout_id is -1"),
        ((True, {"a": 1}), "rollout_id is True"),
        (("1", {"a": 1}), "rollout_id is '1'"),
        ((2**63, {"a": 1}), "rollout_id is"),
        ((1, ["a"]), "groups is"),
        ((1, {3: 1}), "groups is"),
        ((1, {"a": 0}), "it has 0 groups"),
        ((1, {"a": 1.0}), "it has 1.0 groups"),
        ((1, {"a": True}), "it has True groups"),
        ((1, {"a": 1}, ["b"]), "in which it has no groups"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_and_leaves_no_trace(arguments: tuple[Any, ...], why: str) -> None:
    """Bad numbers, bad mappings, and a step without groups."""
    registry = training("a")
    before = registry.snapshot()

    with pytest.raises((AdapterError, ConfigError), match=why):
        registry.record_batch_adapters(*arguments)

    assert registry.snapshot() == before


@pytest.mark.parametrize(
    ("given", "rows", "steps"),
    [
        ({"num_epoch": 3}, 20, 7),
        ({}, 20, 2),
        ({"num_epoch": 1}, 3, 1),
        ({"num_step": 5}, 20, 5),
        ({"num_epoch": 2}, 8, 2),
    ],
)
def test_epochs_become_steps_when_the_size_of_the_data_is_known(given: dict[str, int], rows: int, steps: int) -> None:
    """Epochs times rows by batch size, rounded down and at least 1; one epoch if nothing was said."""
    registry = training("a", rollout_batch_size=8, **given)

    assert registry.resolve_num_step("a", rows) == steps
    assert registry.resolve_num_step("a", 10**6) == steps


def test_an_adapter_ends_after_the_steps_that_were_resolved() -> None:
    """One epoch of four rows in batches of two is two steps."""
    registry = training("a", rollout_batch_size=2)
    registry.resolve_num_step("a", 4)
    for rollout in range(2):
        registry.record_batch_adapters(rollout, {"a": 2}, ["a"])
        registry.mark_batch_trained(rollout)

    assert registry.adapter_state("a") is AdapterState.RETIRING


@pytest.mark.parametrize("rows", [0, -1, 2.0, True, None])
def test_a_size_of_data_that_cannot_be_is_refused(rows: Any) -> None:
    """At least one row."""
    with pytest.raises(AdapterError, match="dataset_rows is"):
        training("a", rollout_batch_size=2).resolve_num_step("a", rows)


def test_epochs_without_a_batch_size_are_refused() -> None:
    """There is nothing to divide by."""
    with pytest.raises(AdapterError, match="without rollout_batch_size"):
        training("a", num_epoch=2).resolve_num_step("a", 4)


@pytest.mark.parametrize("step", [-1, 1.0, True, "3", None])
def test_a_step_that_cannot_be_is_refused(step: Any) -> None:
    """An integer of at least 0."""
    with pytest.raises(AdapterError, match="step is"):
        training("a").set_step("a", step)


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.set_step("nobody", 3),
        lambda one: one.resolve_num_step("nobody", 3),
        lambda one: one.step_count("nobody"),
    ],
)
def test_counts_of_an_unknown_name_are_an_error(call: Callable[[AdapterRegistry], object]) -> None:
    """Nothing is made up for a name that is not registered."""
    with pytest.raises(AdapterError, match="nobody"):
        call(training("a"))


def test_the_step_count_of_a_completed_registration_is_remembered() -> None:
    """And can be changed no more."""
    registry = training("a")
    registry.set_step("a", 12)
    end(registry, "a")

    assert registry.step_count("a") == 12
    with pytest.raises(AdapterError, match="cleaned up"):
        registry.set_step("a", 13)
