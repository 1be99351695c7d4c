"""The lenient facade: what existing loops rely on, method for method, and the same registry underneath."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lifecycle.adapters import AdapterRegistry, AdapterSettings, LenientRegistry
from lifecycle.errors import AdapterError
from states import AdapterState

METHODS = (
    "register", "deregister", "retire_adapters", "free_slot", "adapter_state", "record_weight_update",
    "record_batch_adapters", "mark_batch_trained", "resolve_num_step", "set_step", "step_count", "active_adapters",
    "snapshot", "find", "is_active", "in_state",
)  # fmt: skip


def lenient(slots: int = 3, *active: str, **config: Any) -> LenientRegistry:
    """A facade with these adapters active."""
    made = LenientRegistry(AdapterRegistry(slots))
    for name in active:
        made.register(name, SimpleNamespace(**config))
    made.record_weight_update(active)
    return made


def test_both_registries_have_every_method() -> None:
    """Under the names that loops call."""
    assert [name for name in METHODS if not callable(getattr(AdapterRegistry, name, None))] == []
    assert [name for name in METHODS if not callable(getattr(LenientRegistry, name, None))] == []


def test_a_registration_says_its_slot() -> None:
    """Name and slot, as a mapping."""
    assert lenient(3, "a").register("b", None) == {"name": "b", "slot": 1}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b"])
def test_a_bad_name_is_a_value_error(name: str) -> None:
    """With the word that callers look for."""
    with pytest.raises(ValueError, match="is invalid"):
        lenient().register(name, None)


def test_a_name_that_is_taken_is_a_value_error() -> None:
    """Already registered while it is pending or active, still cleaning up afterwards."""
    made = lenient(3, "a")
    made.register("p", None)
    for name in ("a", "p"):
        with pytest.raises(ValueError, match=f"Adapter '{name}' already registered"):
            made.register(name, None)
    made.deregister("a")
    for _ in range(2):
        with pytest.raises(ValueError, match="Adapter 'a' is still cleaning up; retry shortly"):
            made.register("a", None)
        made.retire_adapters()


def test_no_free_slot_is_a_runtime_error_and_no_value_error() -> None:
    """Which callers answer in another way."""
    with pytest.raises(RuntimeError, match=r"No free adapter slots \(max 1\)") as caught:
        lenient(1, "a").register("b", None)

    assert not isinstance(caught.value, ValueError)


def test_a_save_directory_that_is_taken_is_a_value_error(tmp_path: Path) -> None:
    """It names the adapter that has it."""
    with pytest.raises(ValueError, match="is already used by 'a'"):
        lenient(2, "a", save=tmp_path).register("b", SimpleNamespace(save=str(tmp_path)))


@pytest.mark.parametrize("taken", [True, False])
def test_a_refused_registration_leaves_no_trace(tmp_path: Path, *, taken: bool) -> None:
    """In the registry underneath as little as in the facade."""
    made = lenient(1 if taken else 2, "a", save=tmp_path)
    before = made.strict.snapshot()

    for config in (SimpleNamespace(save=tmp_path), SimpleNamespace(num_step=0), SimpleNamespace(rank=-1)):
        with pytest.raises((ValueError, RuntimeError)):
            made.register("b", config)

    assert made.strict.snapshot() == before


def test_a_configuration_is_any_object_and_its_settings_are_read(tmp_path: Path) -> None:
    """With both num_step and num_epoch the steps count; rank and alpha describe a fresh adapter."""
    made = lenient(1)
    config = SimpleNamespace(rank=4, alpha=8, save=str(tmp_path), num_step=3, num_epoch=2, rollout_batch_size=5, lr=1)
    made.register("a", config, seed=7)
    record = made.find("a")

    assert record is not None
    assert record.settings == AdapterSettings(tmp_path, 3, None, 5)
    assert record.source is not None
    assert (record.source.rank, record.source.alpha, record.source.seed) == (4, 8, 7)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda made, name: made.deregister(name), None),
        (lambda made, name: made.free_slot(name), -1),
        (lambda made, name: made.set_step(name, 3), None),
        (lambda made, name: made.resolve_num_step(name, 3), None),
        (lambda made, name: made.step_count(name), 0),
        (lambda made, name: made.find(name), None),
        (lambda made, name: made.is_active(name), False),
        (lambda made, name: made.record_weight_update([name]), None),
        (lambda made, name: made.record_batch_adapters(1, {name: 2}, [name]), None),
        (lambda made, name: made.mark_batch_trained(99), []),
    ],
)
@pytest.mark.parametrize("name", ["nobody", "gone"])
def test_a_name_that_holds_no_slot_gets_a_silent_answer(
    name: str, call: Callable[[LenientRegistry, str], object], answer: object
) -> None:
    """Nothing, -1, 0 or nobody, and every registration is as it was."""
    made = lenient(3, "a", "gone", num_step=5)
    made.deregister("gone")
    made.retire_adapters()
    made.free_slot("gone")
    before = made.snapshot(), made.strict.snapshot().completed, made.strict.snapshot().slot_versions

    assert call(made, name) == answer
    assert (made.snapshot(), made.strict.snapshot().completed, made.strict.snapshot().slot_versions) == before


@pytest.mark.parametrize("state", ["pending", "active", "retiring"])
def test_a_slot_that_is_not_in_clean_up_is_not_freed(state: str) -> None:
    """-1, and it stays where it is."""
    made = lenient(1)
    made.register("a", None)
    if state != "pending":
        made.record_weight_update(["a"])
    if state == "retiring":
        made.deregister("a")

    assert made.free_slot("a") == -1
    assert made.adapter_state("a") == state


def test_deregistering_twice_is_nothing_the_second_time() -> None:
    """Also in clean-up."""
    made = lenient(1, "a")
    for expected in ("retiring", "retiring", "cleanup"):
        made.deregister("a")
        assert made.adapter_state("a") == (expected if expected != "cleanup" else "retiring")
    made.retire_adapters()
    made.deregister("a")

    assert made.adapter_state("a") is AdapterState.CLEANUP
    assert made.free_slot("a") == 0


def test_views_and_the_snapshot_have_the_shape_that_loops_read() -> None:
    """Views by name of what holds bytes, names of the rest; the resolved number of steps is in the configuration."""
    made = lenient(5, "a", "r", "c", "gone", rollout_batch_size=4, num_epoch=2)
    made.register("p", None)
    made.resolve_num_step("a", 8)
    made.record_batch_adapters(1, {"a": 4, "r": 1}, ["a"])
    stepped = made.mark_batch_trained(1)
    for name in ("c", "gone"):
        made.deregister(name)
    made.retire_adapters()
    made.free_slot("gone")
    made.deregister("r")
    found = made.snapshot()
    view = made.active_adapters()["a"]

    assert {key: list(value) for key, value in found.items()} == {
        "pending": ["p"], "active": ["a"], "retiring": ["r"], "cleanup": ["c"], "completed": ["gone"],
    }  # fmt: skip
    assert stepped == ["a"]
    assert list(made.active_adapters()) == ["a", "r"]
    assert (view.name, view.slot, view.version, view.step, view.registration_id) == ("a", 0, 1, 1, 1)
    assert view.config.num_step == 4
    assert found["retiring"]["r"].accumulated_groups == 1


def test_drifted_accounting_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The step counts, and the log says what did not match."""
    made = lenient(1, "a", rollout_batch_size=4)
    made.record_batch_adapters(1, {"a": 3}, ["a"])

    assert made.mark_batch_trained(1) == ["a"]
    assert "stepped over 3 groups, its rollout_batch_size is 4" in caplog.text


def test_an_adapter_that_ends_while_a_batch_is_noted_is_left_out_or_in_and_never_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever retires it meanwhile waits until the batch is noted."""
    made = lenient(3, "a", "b")
    may_train, retiring = made._may_train, Thread(target=lambda: _complete(made, "a"))

    def overtaken(name: str) -> bool:
        found = may_train(name)
        if not retiring.ident:
            retiring.start()
            retiring.join(0.2)  # it ends now, or waits for the lock
        return found

    monkeypatch.setattr(made, "_may_train", overtaken)
    made.record_batch_adapters(4, {"a": 1, "b": 1}, ["b"])
    retiring.join()

    assert made.mark_batch_trained(4) == ["b"]
    assert made.adapter_state("a") is AdapterState.COMPLETED


def _complete(made: LenientRegistry, name: str) -> None:
    made.deregister(name)
    made.retire_adapters()
    made.free_slot(name)


def test_a_step_without_groups_is_an_error_here_too() -> None:
    """It is a mistake of the loop, not a late message."""
    with pytest.raises(ValueError, match="not present in batch groups"):
        lenient(1, "a").record_batch_adapters(1, {}, ["a"])


CALLS = st.one_of(
    st.tuples(st.sampled_from(["register", "deregister", "free_slot"]), st.sampled_from("abc")),
    st.tuples(st.just("retire_adapters")),
    st.tuples(st.just("record_weight_update"), st.lists(st.sampled_from("abc"), max_size=2)),
    st.tuples(st.just("set_step"), st.sampled_from("abc"), st.integers(0, 3)),
)


@given(calls=st.lists(CALLS, max_size=30))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_what_the_strict_registry_allows_the_facade_does_alike_and_nothing_else(calls: list[tuple[Any, ...]]) -> None:
    """Side by side: where the strict one refuses the facade changes nothing, otherwise both become the same."""
    strict, made = AdapterRegistry(2), LenientRegistry(AdapterRegistry(2))
    for name, *arguments in calls:
        before = made.strict.snapshot()
        try:
            getattr(strict, name)(*arguments)
            refused = False
        except AdapterError:
            refused = True
        try:
            getattr(made, name)(*arguments)
        except (ValueError, RuntimeError):
            assert refused
        assert not refused or made.strict.snapshot() == before
        assert made.strict.snapshot() == strict.snapshot()
