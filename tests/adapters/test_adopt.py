"""A registry that takes another one over, and the number that says whether it has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lifecycle.adapters import AdapterRegistry
from lifecycle.errors import ConfigError

CHANGES: list[tuple[str, Callable[[AdapterRegistry], Any]]] = [
    ("register", lambda one: one.register("B")),
    ("push", lambda one: one.record_weight_update(["A"])),
    ("deregister", lambda one: one.deregister("A")),
    ("batch", lambda one: one.record_batch_adapters(1, {"A": 1})),
    ("set step", lambda one: one.set_step("A", 4)),
    ("trained", lambda one: one.note_changed([one.desired()["A"]])),
    ("adopt", lambda one: one.adopt(one.snapshot())),
]


@pytest.fixture
def registry() -> AdapterRegistry:
    """One adapter, served."""
    made = AdapterRegistry(2)
    made.register("A")
    made.record_weight_update(["A"])
    return made


@pytest.mark.parametrize("change", [do for _, do in CHANGES], ids=[name for name, _ in CHANGES])
def test_the_revision_grows_with_every_change(
    registry: AdapterRegistry, change: Callable[[AdapterRegistry], Any]
) -> None:
    """It never goes back, whatever is taken over."""
    before = registry.revision
    change(registry)

    assert registry.revision > before


def test_looking_changes_no_revision(registry: AdapterRegistry) -> None:
    """Nor does what was so already."""
    registry.note_changed([registry.desired()["A"]])
    before = registry.revision
    registry.snapshot()
    registry.find("A")
    registry.note_changed([registry.desired()["A"]])
    registry.declare_complete()

    assert registry.revision == before


def test_a_registry_that_adopts_another_is_as_it_and_keeps_its_host(registry: AdapterRegistry) -> None:
    """The checks are the host's own, and so is what it holds."""
    copy, checked = AdapterRegistry(2), []
    copy.connect(lambda name, _source: checked.append(name), dict)
    copy.adopt(registry.snapshot())

    assert copy.snapshot() == registry.snapshot()
    copy.register("B")
    assert checked == ["B"]
    assert copy.desired()["B"].registration_id == 2


def test_a_registry_of_another_number_of_slots_is_not_adopted(registry: AdapterRegistry) -> None:
    """Nothing was changed."""
    copy = AdapterRegistry(3)
    with pytest.raises(ConfigError, match="has 3 slots, the one to adopt has 2; give every rank the same number"):
        copy.adopt(registry.snapshot())

    assert copy.revision == 0


def test_what_the_host_holds_is_never_taken_from_it_by_a_registry_that_has_not_known_it() -> None:
    """Neither by an empty one, nor by one that gave its id to another name."""
    registry, held = AdapterRegistry(2), {}
    registry.connect(lambda _name, _source: None, held.copy)
    held["A"] = registry.register("A")
    another = AdapterRegistry(2)
    another.register("B")
    for one in (AdapterRegistry(2), another):
        with pytest.raises(ConfigError, match=r"has never known what the host holds: A\. Load the saved registry"):
            registry.adopt(one.snapshot())

    assert registry.desired() == held
