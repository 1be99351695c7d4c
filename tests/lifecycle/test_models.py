"""Switching models: the active model is a fact, and restore is decided by versions (FB-45)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from lifecycle import ConfigError, EventRefused, HostArena, Moved, Unchanged, UnknownTag
from tests.lifecycle.world import FakeEngine, World, make_world


def another_base(world: World) -> dict[str, Tensor]:
    """A base of the same shapes and other bytes."""
    return {name: one.detach() + 1 for name, one in world.trainer._parts.inventory.base["frozen-base"].items()}


def ref_world(tag: str = "ref", **changes: object) -> World:
    """A world with that model kept and active, the actor safe in a copy."""
    world = make_world(with_ref=True, **changes)
    world.trainer.snapshots.backup("actor")
    world.trainer.keep_model(tag, another_base(world))
    world.trainer.switch_model(tag)
    return world


@pytest.mark.parametrize("tag", ["ref", "teacher", "old_actor"])
@pytest.mark.parametrize("offloaded", [False, True])
def test_the_first_sync_never_publishes_another_model(tag: str, *, offloaded: bool) -> None:
    """While another model is active a push is refused; its bytes never leave (FB-45)."""
    world, engine = ref_world(tag), FakeEngine()
    if offloaded:
        world.trainer.sleep(offload=True)
    with pytest.raises(EventRefused, match=f'the active model is "{tag}"'):
        world.trainer.update_weights([engine])

    assert engine.calls == []


def test_switching_back_restores_the_actor_bit_for_bit() -> None:
    """And the version ids with it: equal ids mean equal bytes."""
    world = make_world(with_ref=True)
    world.train("A")
    before = world.all_bytes()
    world.trainer.keep_model("ref", another_base(world))
    world.trainer.switch_model("ref")
    assert world.all_bytes() != before
    world.trainer.switch_model("actor")

    assert world.all_bytes() == before


def test_a_cycle_while_another_model_is_active_brings_that_one_back() -> None:
    """Sleep keeps what is live; the actor stays safe in its copy."""
    world = ref_world()
    before = world.all_bytes()
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()

    assert world.all_bytes() == before
    assert world.trainer.active_model == "ref"


def test_a_step_while_another_model_is_active_is_refused() -> None:
    """Training commits the actor, never the reference (FB-45)."""
    world = ref_world()
    with pytest.raises(EventRefused, match="active-model-is-the-actor"):
        world.trainer.begin_step(["A"])


def test_switching_to_a_model_that_is_not_kept_names_those_that_are() -> None:
    """An auxiliary model that cannot be had is an error, not a fall-back (FB-45)."""
    world = ref_world()
    with pytest.raises(EventRefused, match=r'"teacher" is wanted, kept are: actor, ref'):
        world.trainer.switch_model("teacher")


def test_switching_away_from_an_actor_without_a_copy_is_refused() -> None:
    """Its bytes would be overwritten for ever."""
    world = make_world(strategy="reference")
    world.trainer.keep_model("ref", another_base(world))
    with pytest.raises(EventRefused, match="outgoing-model-is-kept"):
        world.trainer.switch_model("ref")


def test_a_model_that_shares_the_frozen_bytes_is_switched_to_without_copying_them() -> None:
    """Given equal bytes the kept model gets the actor's version id; a switch then writes nothing."""
    world = make_world(with_ref=True)
    same = {name: one.detach().clone() for name, one in world.trainer._parts.inventory.base["frozen-base"].items()}
    world.trainer.keep_model("ref", same)
    outcome = world.trainer.switch_model("ref")

    assert isinstance(outcome, Moved)
    assert outcome.moved_bytes == 0


def test_switching_to_the_active_model_is_a_recorded_no_op() -> None:
    """What is asked for already holds."""
    world = make_world()

    assert isinstance(world.trainer.switch_model("actor"), Unchanged)


def test_tensors_that_do_not_cover_a_content_group_are_refused() -> None:
    """Half a reference model is none."""
    world = make_world(with_ref=True)
    half = another_base(world)
    half.pop("up")
    with pytest.raises(ConfigError, match="up"):
        world.trainer.keep_model("ref", half)

    assert not world.trainer.snapshots.has("ref")


def test_snapshots_restore_by_version_not_by_the_name_of_the_active_tag() -> None:
    """A restore of the active model writes what is not live in its version, and only that."""
    world = ref_world()
    store = world.trainer.snapshots
    versions = world.trainer._parts.versions
    before = world.all_bytes()
    assert store.restore("ref") == 0
    versions.region["frozen-base"] = None
    moved = store.restore("ref")

    assert moved > 0
    assert versions.region["frozen-base"] == store.versions("ref")["frozen-base"]
    assert world.all_bytes() == before


def test_a_restore_that_would_lose_the_live_bytes_is_refused() -> None:
    """Training went on since the copy: nothing else holds what the restore would overwrite."""
    world = make_world(strategy="reference")
    world.trainer.snapshots.backup("actor")
    world.train("A")
    before = world.all_bytes()
    with pytest.raises(EventRefused, match="overwritten without a copy: buffers, adapter/A"):
        world.trainer.snapshots.restore("actor")

    assert world.all_bytes() == before


def test_the_last_readable_copy_cannot_be_released(tmp_path: Path) -> None:
    """Offloaded to disk, the copy is what a sync reads."""
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), offload_target="disk", strategy="reference")
    world.trainer.sleep(offload=True)
    with pytest.raises(EventRefused, match="last readable copy of: buffers"):
        world.trainer.snapshots.release("actor")

    assert world.trainer.snapshots.has("actor")


def test_a_copy_is_neither_replaced_nor_dropped_under_a_reader() -> None:
    """A lease over a snapshot pins it; a backup that finds the same versions replaces nothing."""
    world = make_world(strategy="duplicate")
    store = world.trainer.snapshots
    store.backup("old")
    world.train("A")
    world.trainer.sleep(offload=True)
    with world.trainer.weights("reader", groups=["adapter/A"]):
        assert store.backup("actor") == 0
        for call in (lambda: store.copy(src_tag="old", dst_tag="actor"), lambda: store.release("actor")):
            with pytest.raises(EventRefused, match="read by: reader"):
                call()


def test_half_trained_bytes_are_never_kept() -> None:
    """While a step is open they are of no version."""
    world = make_world()
    with world.trainer.step(["A"]):
        for call in (world.trainer.snapshots.backup, world.trainer.keep_model):
            with pytest.raises(EventRefused, match="step"):
                call("old_actor")

    assert world.trainer.snapshots.backup_tags == ()


def test_a_kept_model_shares_the_bytes_that_it_has_in_common() -> None:
    """Equal versions are stored once, however many tags hold them."""
    world = make_world()
    store = world.trainer.snapshots
    once = store.backup("actor")
    for tag in ("ref", "teacher", "old_actor"):
        assert world.trainer.keep_model(tag) == 0

    assert store.host_bytes() == once


def test_an_adapter_that_gets_the_name_of_another_is_not_in_that_ones_copies() -> None:
    """A kept model's copy of the old tenant must not be written into the new one."""
    world = make_world(with_ref=True)
    world.trainer.snapshots.backup("actor")
    world.trainer.keep_model("ref")
    world.host.deregister("A")
    world.trainer.reconcile_adapters()
    world.host.register("A", 2, seed=9)
    world.trainer.reconcile_adapters()
    before = world.all_bytes()
    world.trainer.switch_model("ref")

    assert "adapter/A" not in world.trainer.snapshots.versions("ref")
    assert world.all_bytes() == before


def test_an_unknown_snapshot_tag_is_an_error_and_creates_nothing() -> None:
    """get, copy, restore and release of an unknown tag leave no trace."""
    store = make_world().trainer.snapshots
    for call in (store.get, store.restore, store.release):
        with pytest.raises(UnknownTag, match="typo"):
            call("typo")
    with pytest.raises(UnknownTag):
        store.copy(src_tag="typo", dst_tag="new")

    assert store.backup_tags == ()


def test_the_actor_copy_is_spared_while_another_model_is_live() -> None:
    """It may be the only place where the actor's bytes are; the reference's must not be saved as the actor's."""
    world = ref_world()
    store = world.trainer.snapshots
    versions = dict(store.versions("actor"))
    for call in (
        lambda: store.backup("actor"),
        lambda: store.copy(src_tag="ref", dst_tag="actor"),
        lambda: store.release("actor"),
    ):
        with pytest.raises(EventRefused, match="switch_model"):
            call()

    assert dict(store.versions("actor")) == versions


def test_a_lost_group_that_the_active_model_does_not_keep_comes_from_the_actors_copy() -> None:
    """What a model keeps no copy of it shares with the actor."""
    world = ref_world()
    regions = world.trainer._parts
    regions.versions.region["buffers"] = None
    world.trainer.sleep()
    world.trainer.wake_up()

    assert regions.versions.region["buffers"] == regions.versions.wanted["buffers"]


def test_a_copied_tag_is_independent_of_its_source() -> None:
    """Copy creates the destination without moving a byte; releasing the source leaves it whole."""
    world = make_world()
    store = world.trainer.snapshots
    store.backup("actor")
    assert store.copy(src_tag="actor", dst_tag="old_actor") == 0
    kept = store.get("old_actor")["lora_a.0"].clone()
    store.release("actor")

    assert torch.equal(store.get("old_actor")["lora_a.0"], kept)
    assert store.backup_tags == ("old_actor",)
