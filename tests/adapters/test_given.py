"""What no caller can mean is refused in the library's own words: what was given, and what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lifecycle.adapters import AdapterRegistry, AdapterSettings, LenientRegistry, SaveDirectoryTaken
from lifecycle.adapters.settings_file import read_config
from lifecycle.errors import AdapterError, ConfigError
from tests.adapters.world import registry_of
from tests.lifecycle.slot_world import make

BY_NAME = (
    "find", "adapter_state", "is_active", "step_count", "deregister", "free_slot", "register", "resupply",
)  # fmt: skip


@pytest.mark.parametrize("given", [[], None, 3, {"a": 1}, b"a"], ids=repr)
@pytest.mark.parametrize("method", BY_NAME)
def test_a_name_that_is_no_string_is_refused_by_every_method(method: str, given: Any) -> None:
    """Also by questions: that nobody has such a name would be an answer."""
    registry = registry_of("a")
    before = registry.snapshot()

    with pytest.raises(AdapterError, match=r"a name is a string, this is .*; give the name"):
        getattr(registry, method)(given)

    assert registry.snapshot() == before


@pytest.mark.parametrize("given", [[], None, 3])
def test_counts_of_a_name_that_is_no_string_are_refused(given: Any) -> None:
    """As every other call with it."""
    for call in (registry_of("a").set_step, registry_of("a").resolve_num_step):
        with pytest.raises(AdapterError, match="a name is a string"):
            call(given, 3)


@pytest.mark.parametrize("given", ["a", None, 3, []], ids=repr)
@pytest.mark.parametrize("method", ["release", "reinstate", "source_of"])
def test_what_is_no_registration_is_refused(method: str, given: Any) -> None:
    """A name may be of several registrations."""
    with pytest.raises(AdapterError, match=r"give what register\(\) has returned"):
        getattr(registry_of("a"), method)(given)


BATCHES: dict[str, Callable[[Any], object]] = {
    "no names": lambda registry: registry.record_batch_adapters(1, {"a": 1}, None),
    "a number for names": lambda registry: registry.record_batch_adapters(1, {"a": 1}, 3),
    "one name for several": lambda registry: registry.record_batch_adapters(1, {"a": 1}, "a"),
    "names that are none": lambda registry: registry.record_batch_adapters(1, {"a": 1}, [["a"]]),
    "no groups": lambda registry: registry.record_batch_adapters(1, None, []),
    "no batch": lambda registry: registry.mark_batch_trained([]),
    "a batch of another kind": lambda registry: registry.mark_batch_trained("1"),
    "updates of nothing": lambda registry: registry.record_weight_update(3),
}


@pytest.mark.parametrize("facade", [lambda strict: strict, LenientRegistry], ids=["strict", "lenient"])
@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_of_what_is_none_is_refused(case: str, facade: Callable[[AdapterRegistry], object]) -> None:
    """By both registries: silence is for adapters that are gone, not for arguments that are wrong."""
    registry = registry_of("a")
    registry.record_weight_update(["a"])
    before = registry.snapshot()

    with pytest.raises(ConfigError, match=r"give|each is a name"):
        BATCHES[case](facade(registry))

    assert registry.snapshot() == before


@pytest.mark.parametrize("given", [3, None, b"x", "", []], ids=repr)
def test_a_path_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    """It is said what was given and what to give; nothing is written."""
    with pytest.raises(ConfigError, match=r"path is .*; give the file as a string or a Path"):
        registry_of("a").save(given)
    with pytest.raises(ConfigError, match=r"path is .*; give the file as a string or a Path"):
        AdapterRegistry.load(given)
    with pytest.raises(AdapterError, match=r"file is .*; give the file as a string or a Path"):
        read_config("a", given)
    assert list(tmp_path.iterdir()) == []


def test_a_saved_registry_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A path belongs to load()."""
    with pytest.raises(ConfigError, match=r"saved is .*; give the snapshot\(\) of a registry"):
        AdapterRegistry(3, saved=tmp_path)  # type: ignore[arg-type]


def test_a_trainer_refuses_names_and_directories_that_are_none(tmp_path: Path) -> None:
    """Before it opens a lease; nothing is written."""
    made = make()
    made.host.registry.register("a")
    made.trainer.reconcile_adapters()
    names: tuple[Any, ...] = (None, ["a"], 3)
    paths: tuple[Any, ...] = (5, b"x", [])

    for name in names:
        for call in (made.trainer.save_adapter, made.trainer.save_checkpoint):
            with pytest.raises(AdapterError, match="a name is a string"):
                call(name, tmp_path / "x")
    for path in paths:
        for call in (made.trainer.save_adapter, made.trainer.save_checkpoint):
            with pytest.raises(AdapterError, match=r"directory is .*; give the directory as a string or a Path"):
                call("a", path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("directory", ["runs/a", "runs/a/below", "runs"])
def test_a_checkpoint_is_never_saved_where_another_adapter_is_registered_to_save(
    tmp_path: Path, directory: str
) -> None:
    """Given explicitly: the saves of the other one would be refused from then on."""
    made = make()
    made.host.registry.register("a", settings=AdapterSettings(save=tmp_path / "runs" / "a"))
    made.host.registry.register("b")
    made.trainer.reconcile_adapters()

    with pytest.raises(SaveDirectoryTaken, match="that of 'a'; give it one of its own"):
        made.trainer.save_checkpoint("b", tmp_path / directory)

    assert made.trainer.save_checkpoint("b", tmp_path / "runs" / "b").parent.name == "b"
    assert made.trainer.save_checkpoint("a").name == "step_0"
    assert made.trainer.save_checkpoint("a", tmp_path / "runs" / "a" / "own").name == "step_0"


@pytest.mark.parametrize("given", [5, False, ["b"], b"b"], ids=repr)
def test_a_successor_is_a_name_or_none_and_nothing_else(given: Any) -> None:
    """What is neither would read as nobody; the block is not opened."""
    made = make()
    made.host.registry.register("a")
    made.trainer.reconcile_adapters()

    with pytest.raises(AdapterError, match=r"successor is .*; give the name of an adapter"):
        made.host.use("a", successor=given).__enter__()

    with pytest.raises(AdapterError, match="a name is a string"):
        made.host.use([given]).__enter__()  # type: ignore[arg-type]
    made.host.registry.deregister("a")
    made.trainer.reconcile_adapters()
    assert made.host.loaded() == {}
