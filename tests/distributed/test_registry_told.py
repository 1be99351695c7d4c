"""What is told of a registration is all that there is to know of it, and a registry is heard by its identity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from lifecycle.adapters import AdapterRegistry
from lifecycle.adapters.checkpoint import CheckpointSource, Origin, Skipped
from lifecycle.adapters.folder import FileIdentity
from lifecycle.adapters.records import RegistrySnapshot
from lifecycle.adapters.sources import AdapterSource
from lifecycle.adapters.wire import read_registry_told, render_registry
from tests.distributed.threads import Hub


def _told(snapshot: RegistrySnapshot) -> RegistrySnapshot:
    content, follows = render_registry(snapshot, {})
    assert follows == ()
    return read_registry_told(content, {}).snapshot


def test_from_where_a_slot_was_released_is_told() -> None:
    """So that every rank could take the release back."""
    registry = AdapterRegistry(2)
    adapter = registry.register("A")
    registry.deregister("A")
    registry.release(adapter)
    (released,) = registry.snapshot().completed

    assert released.released_from is not None
    assert _told(registry.snapshot()) == registry.snapshot()


def test_which_checkpoints_were_passed_over_is_told() -> None:
    """Every rank's log says it of the adapter that it loads."""
    registry = AdapterRegistry(2)
    registry.register("A")
    snapshot, place = registry.snapshot(), Path("/adapters/A/step_3")
    identity = FileIdentity(str(place), "0" * 64, "1" * 64)
    checkpoint = CheckpointSource(place, Origin("A", 1, 3), "2" * 64, identity, (Skipped("step_4", "it is not whole"),))
    source = AdapterSource(path=place, identity=identity, checkpoint=checkpoint)
    resumed = replace(snapshot.adapters["A"], source=source, step=3, start_step=3, source_step=3)
    snapshot = replace(snapshot, adapters={"A": resumed})

    assert _told(snapshot) == snapshot


def test_another_registry_of_a_rank_hears_everything_although_its_revision_is_that_of_the_one_before() -> None:
    """Such as that of a new trainer in the same process."""
    hub = Hub(2)
    ranks, registries = hub.agreements(registry_from=0), [AdapterRegistry(4), AdapterRegistry(4)]

    def begin() -> None:
        held = [SimpleNamespace(registry=one) for one in registries]
        assert hub.all(lambda rank: ranks[rank].begins(held[rank])) == [None, None]  # type: ignore[arg-type]

    registries[0].register("A")
    begin()
    before, registries[1] = registries[1], AdapterRegistry(4)
    for number in range(before.revision - registries[1].revision):
        registries[1].register(f"other{number}")
    assert registries[1].revision == before.revision
    begin()

    assert registries[1].snapshot() == registries[0].snapshot()
