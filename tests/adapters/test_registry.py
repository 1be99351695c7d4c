"""The registry: names, slots, versions, and no trace of what was refused."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from lifecycle.adapters import AdapterRegistry, AdapterSettings, DesiredAdapter, SaveDirectoryTaken
from lifecycle.adapters import roster as registry_module
from lifecycle.errors import AdapterError, ConfigError
from states import AdapterState
from tests.adapters.world import host, load, registry_of

BAD_NAMES = [
    "", ".", "..", "a/b", "../a", "/a", "a\\b", "a b", "a\n", "a\x00", "a\x1b[0m", "\u202ea", "ä", "a" * 129, "a:b",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_and_leaves_no_trace(name: str) -> None:
    """A slash, two dots, control characters, other letters, nothing, or too much."""
    registry = registry_of("a")
    before = registry.snapshot()

    with pytest.raises(AdapterError) as caught:
        registry.register(name)

    assert caught.value.adapter == name[:128]
    assert registry.snapshot() == before


@pytest.mark.parametrize("name", [None, 3, b"a", Path("a")])
def test_a_name_that_is_no_string_is_refused(name: Any) -> None:
    """Only a string is a name."""
    with pytest.raises(AdapterError, match="a name is a string"):
        registry_of().register(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "-", "a" * 128, "..a"])
def test_a_good_name_is_taken(name: str) -> None:
    """Letters, digits, dot, underscore, dash; up to 128."""
    assert registry_of().register(name).name == name


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"rank": True}, "rank is True"),
        ({"rank": 2.0}, "rank is 2.0"),
        ({"alpha": 0}, "alpha is 0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": float("inf")}, "alpha is inf"),
        ({"alpha": 10**400}, "alpha is 1000"),
        ({"alpha": "8"}, "alpha is '8'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": 2**63}, "seed is"),
        ({"path": 3}, "path is 3; give the directory"),
        ({"path": "d", "rank": 4}, "give path alone"),
        ({"path": "d", "tensors": {"x": torch.zeros(1)}, "rank": 1}, "give path alone"),
        ({"tensors": {}, "rank": 4}, "is empty"),
        ({"tensors": [torch.zeros(1)], "rank": 4}, "not a mapping"),
        ({"tensors": {"x": [1.0]}, "rank": 4}, "x"),
        ({"tensors": {"x": torch.zeros(1)}}, "without their rank"),
        ({"tensors": {"x": torch.zeros(1)}, "rank": 1, "target_modules": ["q"]}, "leave target_modules out"),
        ({"target_modules": "q_proj"}, "a sequence"),
        ({"target_modules": []}, "a sequence"),
        ({"target_modules": [3]}, "a sequence"),
    ],
)
def test_bad_arguments_are_refused_and_leave_no_trace(arguments: dict[str, Any], why: str) -> None:
    """What an adapter is registered with is checked before anything is written."""
    registry = registry_of("a")
    before = registry.snapshot()

    with pytest.raises(AdapterError, match=why) as caught:
        registry.register("b", **arguments)

    assert caught.value.adapter == "b"
    assert registry.snapshot() == before


@pytest.mark.parametrize("slots", [0, -1, True, 1.0])
def test_a_registry_without_slots_is_refused(slots: Any) -> None:
    """There is at least one slot."""
    with pytest.raises(ConfigError, match="at least 1 slot"):
        AdapterRegistry(slots=slots)


def test_a_refusal_of_the_host_leaves_no_trace() -> None:
    """An adapter that does not fit the slots is never registered."""
    registry = registry_of("a")
    before = registry.snapshot()

    def refuse(name: str, source: object) -> None:
        raise AdapterError(name, "does not fit")

    registry.connect(refuse, dict)
    with pytest.raises(AdapterError, match="does not fit"):
        registry.register("b")

    assert registry.snapshot() == before


def test_a_name_that_is_taken_is_refused() -> None:
    """Pending or active: the name is in use."""
    registry = registry_of("a", "b")
    registry.record_weight_update(["b"])
    before = registry.snapshot()

    for name in ("a", "b"):
        with pytest.raises(AdapterError, match="already registered"):
            registry.register(name)

    assert registry.snapshot() == before


def test_a_name_in_clean_up_cannot_be_registered_again() -> None:
    """Not while it retires, not while its slot is cleared; then it can, as another registration."""
    registry = registry_of("a")
    first = registry.desired()["a"].registration_id

    registry.deregister("a")
    with pytest.raises(AdapterError, match="retiring"):
        registry.register("a")
    registry.retire_adapters()
    with pytest.raises(AdapterError, match="still cleaning up"):
        registry.register("a")
    registry.free_slot("a")

    assert registry.register("a").registration_id > first


def test_no_free_slot_is_an_error_that_counts_them() -> None:
    """A full registry refuses, and is unchanged."""
    registry = registry_of("a", "b", slots=2)
    before = registry.snapshot()

    with pytest.raises(AdapterError, match=r"no slot is free \(2 in use\)"):
        registry.register("c")

    assert registry.snapshot() == before


def test_the_lowest_free_slot_is_given_out() -> None:
    """Slots are filled from below, also when one in the middle is freed."""
    registry = registry_of("a", "b", "c", slots=4)
    registry.deregister("b")
    registry.retire_adapters()
    registry.free_slot("b")

    assert [registry.register(name).slot for name in ("d", "e")] == [1, 3]


def test_the_lowest_free_slot_is_given_out_also_after_an_undo() -> None:
    """One of many free slots is taken back; the others are still given out from below."""
    registry = AdapterRegistry(slots=8)
    made = [registry.register(f"a{slot}") for slot in range(8)]
    for slot in (0, 5, 1, 6, 7, 2, 3):
        registry.deregister(f"a{slot}")
        registry.release(made[slot])
    registry.reinstate(made[1])

    assert [registry.register(f"b{number}").slot for number in range(6)] == [0, 2, 3, 5, 6, 7]


def test_slot_versions_never_go_back_and_survive_reuse() -> None:
    """A slot's next tenant does not look like an earlier one (FB-35)."""
    registry = registry_of("a", slots=1)
    registry.record_weight_update(["a"])
    registry.record_weight_update(["a"])
    registry.deregister("a")
    registry.retire_adapters()
    registry.free_slot("a")
    registry.register("b")
    kept = registry.snapshot().slot_versions
    registry.record_weight_update(["b"])

    assert kept == (2,)
    assert registry.snapshot().slot_versions == (3,)


def test_a_push_promotes_pending_and_skips_what_is_not_served() -> None:
    """Unknown names and names in clean-up are skipped: they may have been retired meanwhile."""
    registry = registry_of("a", "b", "c")
    registry.deregister("b")
    registry.deregister("c")
    registry.free_slot(registry.retire_adapters()[0])
    registry.record_weight_update(["a", "a", "b", "c", "nobody"])

    assert registry.adapter_state("a") is AdapterState.ACTIVE
    assert registry.adapter_state("b") is AdapterState.COMPLETED
    assert registry.adapter_state("c") is AdapterState.CLEANUP
    assert registry.snapshot().slot_versions == (1, 0, 0)


def test_a_push_of_an_older_registration_does_not_reach_the_newer_one() -> None:
    """A late message is of another adapter, though the name is the same (FB-35)."""
    registry = registry_of("a")
    old = registry.desired()["a"]
    registry.deregister("a")
    registry.retire_adapters()
    registry.free_slot("a")
    new = registry.register("a")
    late = registry.record_weight_update([old])
    state = registry.adapter_state("a")

    assert (late, state) == ((), AdapterState.PENDING)
    assert registry.record_weight_update([new, "a", "nobody"]) == ("a",)
    assert registry.slot_version(new.slot) == 1


def test_a_host_reports_registrations_so_that_a_name_that_changes_hands_meanwhile_is_not_promoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an engine has committed is of the adapter that is loaded, not of whoever has its name by then."""
    made = host()
    registry, record = made.registry, made.registry.record_weight_update
    registry.register("a")
    load(made, "a")

    def late(given: Iterable[Any]) -> tuple[str, ...]:
        registry.deregister("a")
        registry.retire_adapters()
        registry.free_slot("a")
        registry.register("a")
        return record(given)

    monkeypatch.setattr(registry, "record_weight_update", late)
    made.pushed(("a",))

    assert registry.adapter_state("a") is AdapterState.PENDING
    assert registry.slot_version(0) == 0


@pytest.mark.parametrize("given", ["ab", [1], [None]])
def test_a_push_of_what_is_no_adapter_is_refused(given: Any) -> None:
    """One name is no list of names: its letters would be others."""
    registry = registry_of("a", "b")
    before = registry.snapshot()
    with pytest.raises(ConfigError, match="are no adapters; give several"):
        registry.record_weight_update(given)

    assert registry.snapshot() == before


@pytest.mark.parametrize("slot", [-1, 3, True, "0", None])
def test_a_slot_that_there_is_not_has_no_version(slot: Any) -> None:
    """Slots are counted from 0, and none from the end."""
    with pytest.raises(ConfigError, match="there are 3 slots"):
        registry_of("a").slot_version(slot)


def test_a_retiring_adapter_is_served_until_it_is_demoted() -> None:
    """Active are those that are active or retiring."""
    registry = registry_of("a", "b", "c")
    registry.record_weight_update(["c", "a"])
    registry.deregister("a")
    served = registry.active_adapters(), registry.is_active("a"), registry.is_active("b")
    demoted = registry.retire_adapters()

    assert served == (("a", "c"), True, False)
    assert demoted == ("a",)
    assert registry.active_adapters() == ("c",)
    assert registry.retire_adapters() == ()


def test_desired_are_pending_and_active_registrations() -> None:
    """What is on its way out is desired no more."""
    registry = registry_of("b", "a", "c")
    registry.record_weight_update(["a"])
    registry.deregister("c")

    assert list(registry.desired()) == ["a", "b"]


@pytest.mark.parametrize("move", ["deregister", "free_slot"])
def test_an_illegal_move_is_an_error_with_reason_and_changes_nothing(move: str) -> None:
    """A registration that is retiring can neither be deregistered again nor freed yet."""
    registry = registry_of("a")
    registry.deregister("a")
    before = registry.snapshot()

    with pytest.raises(AdapterError, match="it is retiring"):
        getattr(registry, move)("a")
    with pytest.raises(AdapterError, match="it is not registered"):
        getattr(registry, move)("nobody")

    assert registry.snapshot() == before


def test_an_adapter_that_the_host_does_not_hold_frees_its_slot_at_once() -> None:
    """There is nothing to clear; what the host holds waits for the host."""
    registry, held = registry_of("a", "b", "c"), {}
    registry.deregister("c")
    registry.connect(lambda name, source: None, lambda: held)
    left_before_it_came = registry.adapter_state("c")
    held |= {"b": registry.desired()["b"], "a": DesiredAdapter("a", 99, 2)}
    registry.deregister("a")
    registry.deregister("b")

    assert left_before_it_came is AdapterState.COMPLETED
    assert [registry.adapter_state(name) for name in "ab"] == [AdapterState.COMPLETED, AdapterState.RETIRING]
    assert registry.retire_adapters() == ("b",)
    assert registry.adapter_state("b") is AdapterState.CLEANUP


def test_one_that_the_host_lost_while_it_was_retiring_frees_its_slot_when_it_is_retired() -> None:
    """Nobody is left to say that the slot was cleared."""
    registry, held = registry_of("a"), {}
    registry.connect(lambda name, source: None, lambda: held)
    held |= registry.desired()
    registry.deregister("a")
    held.clear()

    assert registry.retire_adapters() == ("a",)
    assert registry.adapter_state("a") is AdapterState.COMPLETED


def test_a_release_is_undone_to_the_very_state_before() -> None:
    """A reconcile that fails half-way leaves the registry as it was."""
    registry = registry_of("a", "b")
    registry.deregister("a")
    adapter = DesiredAdapter("a", 1, 0)
    before = registry.snapshot()

    registry.release(adapter)
    released = registry.adapter_state("a")
    registry.reinstate(adapter)
    after = registry.snapshot()

    assert released is AdapterState.COMPLETED
    assert {name: one.state for name, one in after.adapters.items()} == {
        name: one.state for name, one in before.adapters.items()
    }
    assert (after.completed, after.free_slots) == (before.completed, before.free_slots)


def test_a_save_directory_that_was_given_out_meanwhile_is_not_shared_by_an_undo(tmp_path: Path) -> None:
    """Undoing a release is refused as a registration would be."""
    registry = AdapterRegistry(slots=2)
    saving = AdapterSettings(save=tmp_path)
    first = registry.register("a", settings=saving)
    registry.deregister("a")
    registry.release(first)
    registry.register("y")
    registry.register("b", settings=saving)
    registry.deregister("y")
    registry.retire_adapters()
    registry.free_slot("y")
    before = registry.snapshot()

    with pytest.raises(SaveDirectoryTaken, match="'b'"):
        registry.reinstate(first)

    assert registry.snapshot() == before


def test_a_slot_that_was_given_out_meanwhile_is_not_taken_back() -> None:
    """Undoing a release never puts two adapters into one slot."""
    registry = registry_of("a")
    registry.deregister("a")
    registry.release(DesiredAdapter("a", 1, 0))
    registry.register("b")

    with pytest.raises(AdapterError, match="given out meanwhile"):
        registry.reinstate(DesiredAdapter("a", 1, 0))


def test_release_and_reinstate_leave_other_registrations_alone() -> None:
    """What is wanted is not released, an older registration's message does not reach a newer one (FB-35)."""
    registry = registry_of("a", "b")
    registry.deregister("b")
    before = registry.snapshot()

    registry.release(DesiredAdapter("a", 1, 0))
    registry.release(DesiredAdapter("b", 99, 1))
    registry.release(DesiredAdapter("nobody", 5, 2))
    registry.reinstate(DesiredAdapter("a", 1, 0))
    registry.reinstate(DesiredAdapter("nobody", 5, 2))

    assert registry.snapshot() == before


def test_completed_registrations_are_bounded_and_the_oldest_are_forgotten() -> None:
    """1024 are remembered."""
    registry = AdapterRegistry(slots=1)
    for number in range(1030):
        registry.register(f"a{number}")
        registry.deregister(f"a{number}")
        registry.retire_adapters()
        registry.free_slot(f"a{number}")
    completed = registry.snapshot().completed

    assert registry_module.COMPLETED_KEPT == 1024
    assert [one.adapter.name for one in completed] == [f"a{number}" for number in range(6, 1030)]
    assert registry.find("a0") is None
    assert registry.adapter_state("a0") is None


def test_a_completed_registration_forgets_its_tensors() -> None:
    """Tensors are kept no longer than they can be needed."""
    registry = AdapterRegistry(slots=1)
    registry.register("a", tensors={"x": torch.zeros(1)}, rank=1)
    registry.deregister("a")
    registry.retire_adapters()
    registry.free_slot("a")
    record = registry.find("a")

    assert record is not None
    assert record.source is None


def test_a_snapshot_lists_names_by_state() -> None:
    """Sorted, also of those that are completed."""
    registry = registry_of("c", "a", "b")
    registry.record_weight_update(["c"])
    registry.deregister("b")
    registry.retire_adapters()
    registry.free_slot("b")
    snapshot = registry.snapshot()

    assert [snapshot.names(state) for state in AdapterState] == [("a",), ("c",), (), (), ("b",)]


def test_in_state_names_the_newest_registration_of_each_name_once() -> None:
    """A completed registration is hidden by the next one of its name."""
    registry = registry_of("c", "a", "b")
    for name in ("a", "b"):
        registry.deregister(name)
        registry.retire_adapters()
        registry.free_slot(name)
    registry.register("a")
    found = registry.in_state(AdapterState.COMPLETED, AdapterState.PENDING)

    assert {name: (one.state, one.adapter.registration_id) for name, one in found.items()} == {
        "a": (AdapterState.PENDING, 4),
        "b": (AdapterState.COMPLETED, 3),
        "c": (AdapterState.PENDING, 1),
    }
    assert list(found) == ["a", "b", "c"]
    assert registry.in_state() == {}


def test_the_newest_of_many_completed_registrations_is_found_also_when_one_is_taken_back() -> None:
    """An undo brings back the newest; the one before it is what is left to be found."""
    registry = AdapterRegistry(slots=1)
    for _ in range(3):
        adapter = registry.register("a")
        registry.deregister("a")
        registry.release(adapter)
    registry.reinstate(adapter)
    alive = registry.find("a")
    registry.release(adapter)
    left = registry.find("a")

    assert alive is not None
    assert left is not None
    assert (alive.adapter.registration_id, alive.state) == (3, AdapterState.RETIRING)
    assert (left.adapter.registration_id, left.state) == (3, AdapterState.COMPLETED)
    assert [one.adapter.registration_id for one in registry.snapshot().completed] == [1, 2, 3]


def test_threads_that_register_at_once_get_slots_and_ids_of_their_own() -> None:
    """Two registrations never share a slot or an id."""
    registry = AdapterRegistry(slots=64)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(registry.register, [f"a{number}" for number in range(64)]))

    assert sorted(one.slot for one in made) == list(range(64))
    assert sorted(one.registration_id for one in made) == list(range(1, 65))
