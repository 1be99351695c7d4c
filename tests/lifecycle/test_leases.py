"""Leases pin what they read; a tensor that outlives one is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from lifecycle import EventRefused, HostArena, LeaseError, TrainerState
from lifecycle.saver import Window
from lifecycle.weights import leases
from tests.lifecycle.world import World, content_of, make_world


def offloaded_world(**changes: object) -> World:
    """A world that is offloaded to cpu."""
    world = make_world(**changes)
    world.trainer.sleep(offload=True)
    return world


def test_offload_is_refused_while_a_stream_of_weights_is_open_and_names_it() -> None:
    """A lazy stream must not outlive the memory it reads (FB-03)."""
    world = make_world()
    stream = world.trainer.weights("exporter").stream()
    next(stream)
    world.trainer.sleep()
    with pytest.raises(EventRefused, match="exporter"):
        world.trainer.offload()

    stream.close()
    world.trainer.offload()
    assert world.trainer.state is TrainerState.OFFLOADED_CPU


def test_a_closed_lease_gives_a_clear_error_and_no_values() -> None:
    """Pulling from a closed lease is an error, not poisoned values (FB-03)."""
    world = make_world()
    lease = world.trainer.weights()
    lease.close()
    world.trainer.sleep(offload=True)
    with pytest.raises(LeaseError, match="closed"):
        lease["up"]


def test_an_exhausted_stream_ends_its_lease() -> None:
    """The lease of a stream lasts until it is exhausted or closed (FB-03)."""
    world = make_world()
    names = [name for name, _ in world.trainer.weights().stream()]

    assert "up" in names
    assert world.trainer.facts().leases == ()


def test_materialised_weights_may_be_sent_after_the_offload() -> None:
    """Materialising is the one way to read first and offload then (FB-03)."""
    world = make_world()
    expected = world.weights()
    copies = world.trainer.weights().materialise()
    world.trainer.sleep(offload=True)

    assert {name: content_of({name: one}) for name, one in copies.items()} == expected


def leaked(world: World) -> Tensor:
    """A tensor that outlives its lease."""
    with world.trainer.weights("careless") as lease:
        return lease["up"][1:]


def test_a_view_of_live_weights_that_outlives_its_lease_refuses_the_offload_by_name() -> None:
    """Lease leaks are found for live sources."""
    world = make_world()
    view = leaked(world)
    world.trainer.sleep()
    with pytest.raises(EventRefused, match=r"careless \(closed, but up outlived it\)"):
        world.trainer.offload()

    del view
    world.trainer.offload()


def test_a_view_of_the_saver_backup_that_outlives_its_lease_refuses_the_wake_by_name() -> None:
    """Lease leaks are found for backup sources: the memory is freed on resume."""
    world = offloaded_world()
    view = leaked(world)
    with pytest.raises(EventRefused, match=r"careless \(closed, but up outlived it\)"):
        world.trainer.wake_up()

    del view
    world.trainer.wake_up()


def test_a_view_of_a_snapshot_that_outlives_its_lease_is_reported() -> None:
    """Lease leaks are found for copies too."""
    world = offloaded_world(strategy="duplicate")
    view = leaked(world)
    facts = world.trainer.facts()

    assert [(one.source, one.leaked) for one in facts.leases] == [("snapshot:actor", ("up",))]
    del view
    assert world.trainer.facts().leases == ()


def test_numpy_memory_counts_as_the_tensor_it_came_from() -> None:
    """A numpy view keeps the storage, and with it the lease's memory, in use."""
    world = offloaded_world()
    with world.trainer.weights("numpy") as lease:
        array = lease["up"].numpy()
    with pytest.raises(EventRefused, match="numpy"):
        world.trainer.wake_up()

    del array
    world.trainer.wake_up()


def test_a_lease_over_frozen_bytes_does_not_stop_a_training_step() -> None:
    """Only what the step changes may not be leased."""
    world = make_world()
    with world.trainer.weights("frozen", groups=["frozen-base"]):
        world.train("A")

    assert world.trainer.state is TrainerState.AWAKE


def test_a_lease_over_an_adapter_stops_its_step_but_not_its_neighbours() -> None:
    """The lease names the content groups it pins."""
    world = make_world(frozen_buffers=("bias",))
    with world.trainer.weights("reader", groups=["adapter/A"]):
        with pytest.raises(EventRefused, match="reader"):
            world.trainer.begin_step(["A"])
        world.train("B")


def test_a_lease_over_an_adapter_stops_its_retirement() -> None:
    """A reconcile does not write what somebody reads."""
    world = make_world()
    world.host.deregister("A")
    with world.trainer.weights("reader"), pytest.raises(EventRefused, match="reader"):
        world.trainer.reconcile_adapters()


def test_a_lease_reads_the_disk_target_from_the_base_file_and_the_savers_backup(tmp_path: Path) -> None:
    """The base is mapped from its file, and what is small stays readable in host memory."""
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), offload_target="disk")
    before = world.weights()
    world.trainer.sleep(offload=True)
    with world.trainer.weights() as lease:
        sources = dict(lease.sources)

    assert sources == {"base-file": ("frozen-base",), "saver-backup": ("buffers", "adapter/A", "adapter/B")}
    assert world.weights() == before


def test_live_weights_are_refused_asleep_with_the_missing_step() -> None:
    """A forward pass on offloaded weights is refused before it touches the device (FB-06)."""
    world = offloaded_world()
    with pytest.raises(EventRefused, match="logprobs needs live weights") as refused:
        world.trainer.live("logprobs")
    with pytest.raises(EventRefused, match="wake_up"):
        world.trainer.begin_step(["A"])

    assert refused.value.remedy == "wake_up() first"


def test_the_holder_of_live_weights_stops_the_offload() -> None:
    """A forward pass that is under way keeps its weights."""
    world = make_world()
    with world.trainer.live("logprobs"):
        world.trainer.sleep()
        with pytest.raises(EventRefused, match="logprobs"):
            world.trainer.offload()


def test_a_lease_that_is_dropped_without_closing_ends() -> None:
    """A forgotten lease object does not pin memory for ever."""
    world = make_world()
    lease = world.trainer.weights()
    del lease

    assert world.trainer.facts().leases == ()


def test_a_lease_that_is_read_again_and_again_remembers_only_what_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that keeps its lease open for a whole run does not grow it."""
    monkeypatch.setattr(leases, "_PRUNED_FROM", 8)
    world = make_world()
    with world.trainer.weights("patient") as lease:
        for _ in range(100):
            lease["up"]
        kept = lease["down"]
        assert len(lease._record.handed) <= 16

    (left,) = world.trainer.facts().leases
    assert left.leaked == ("down",)
    assert kept.numel()


@pytest.mark.parametrize("make", [make_world, offloaded_world])
def test_looks_into_the_books_do_not_grow_with_what_a_lease_reads(
    make: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region is looked up once, however many of its tensors are read, and however often."""
    world = make()
    looks: list[int] = []
    look = world.arena.window

    def counted(tensor: Tensor) -> Window:
        looks.append(look(tensor).start)
        return look(tensor)

    monkeypatch.setattr(world.arena, "window", counted)
    with world.trainer.weights("reader") as lease:
        for _ in range(3):
            dict(lease)

    assert 0 < len(looks) == len(set(looks))
