"""What an adapter is registered with beside its tensors, and whose save directory is whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lifecycle.adapters import AdapterRegistry, AdapterSettings, SaveDirectoryTaken
from lifecycle.errors import AdapterError
from tests.adapters.world import registry_of


def saving(path: object) -> AdapterSettings:
    """Settings with a save directory alone."""
    return AdapterSettings(save=path)  # type: ignore[arg-type]


def test_a_registration_carries_its_settings() -> None:
    """As they were given; a fresh registration has done no step."""
    registry = AdapterRegistry(slots=1)
    given = AdapterSettings(num_step=3, rollout_batch_size=4, n_samples_per_prompt=8, trainable=False)
    registry.register("a", settings=given)
    record = registry.find("a")

    assert record is not None
    assert (record.settings, record.num_step, record.step, record.start_step) == (given, 3, 0, 0)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        *(({key: value}, f"{key} is") for key in ("num_step", "num_epoch", "rollout_batch_size", "n_samples_per_prompt")
          for value in (0, -1, True, 1.5, "3", 2**63)),
        ({"num_step": 1, "num_epoch": 1}, "both given"),
        ({"trainable": 1}, "trainable is 1"),
        ({"trainable": None}, "trainable is None"),
        ({"save": 3}, "save is 3"),
        ({"save": ""}, "save is ''"),
        ({"save": "a\x00b"}, "cannot be resolved"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_by_name_and_leave_no_trace(given: dict[str, Any], why: str) -> None:
    """Numbers from 1, one of steps and epochs, a bool, a path."""
    registry = registry_of("a")
    before = registry.snapshot()

    with pytest.raises(AdapterError, match=why):
        registry.register("b", settings=AdapterSettings(**given))

    assert registry.snapshot() == before


@pytest.mark.parametrize("given", [None, {"save": "x"}, 3])
def test_settings_of_another_kind_are_refused(given: Any) -> None:
    """A mapping is no settings: a key that is misspelt would be lost."""
    with pytest.raises(AdapterError, match=r"give AdapterSettings\(...\)"):
        registry_of().register("a", settings=given)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to be in, with a link to it and a directory below it."""
    (tmp_path / "runs" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    (tmp_path / "later").symlink_to(tmp_path / "not-there-yet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("runs", "runs"),
        ("runs", Path("runs")),
        ("runs", "./runs/"),
        ("runs", "link"),
        ("runs", "runs/below/.."),
        ("runs/x", "link/below/../x"),
        ("runs", "{here}/runs"),
        ("not-there-yet", "later"),
        ("link/new", "runs/new"),
    ],
)
def test_two_adapters_that_hold_a_slot_never_save_to_one_directory(place: Path, first: object, second: object) -> None:
    """Whatever the spelling: relative, through links, over ``..``, and before the directory exists."""
    registry = AdapterRegistry(slots=2)
    registry.register("a", settings=saving(first))
    before = registry.snapshot()
    again = second if isinstance(second, Path) else str(second).format(here=place)

    with pytest.raises(SaveDirectoryTaken, match="is that of 'a'") as caught:
        registry.register("b", settings=saving(again))

    assert caught.value.holder == "a"
    assert caught.value.save == registry.snapshot().adapters["a"].settings.save
    assert registry.snapshot() == before


def test_adapters_may_save_to_directories_beside_one_another(place: Path) -> None:
    """They are other directories, also where one name begins with the other."""
    registry = AdapterRegistry(slots=4)
    for name, where in (("a", "runs"), ("b", "runs-2"), ("c", "other"), ("d", None)):
        registry.register(name, settings=saving(where))
    found = [one.settings.save for one in registry.snapshot().adapters.values()]

    assert found == [place / "runs", place / "runs-2", place / "other", None]


@pytest.mark.parametrize(
    ("first", "second"), [("runs", "link/below/deep"), ("runs/below/deep", "link"), ("x", "x/step_1")]
)
def test_adapters_that_hold_a_slot_never_save_one_inside_the_other(place: Path, first: str, second: str) -> None:
    """In both directions: what one takes for a step of its own would be the other's directory."""
    registry = AdapterRegistry(slots=2)
    outside = registry.register("a", settings=saving(first))
    before = registry.snapshot()

    with pytest.raises(SaveDirectoryTaken, match="is not apart from") as caught:
        registry.register("b", settings=saving(second))
    assert (caught.value.holder, caught.value.holder_save) == ("a", Path(first).resolve())
    assert registry.snapshot() == before

    registry.deregister("a")
    registry.retire_adapters()
    registry.free_slot("a")
    registry.register("b", settings=saving(second))
    registry.deregister("b")
    registry.retire_adapters()
    registry.free_slot("b")
    assert registry.register("c", settings=saving(first)).slot == outside.slot == 0


def test_a_save_directory_is_free_again_when_its_adapter_is_completed(place: Path) -> None:
    """Not before: in clean-up its last checkpoint may be being written."""
    registry = AdapterRegistry(slots=3)
    registry.register("a", settings=saving(place))
    registry.deregister("a")
    for step in ("retiring", "cleanup"):
        with pytest.raises(SaveDirectoryTaken):
            registry.register("b", settings=saving(place))
        assert registry.adapter_state("a") == step
        registry.retire_adapters()
    registry.free_slot("a")

    assert registry.register("b", settings=saving(place)).slot == 0


def test_a_circle_of_links_is_refused(place: Path) -> None:
    """It leads nowhere."""
    (place / "x").symlink_to(place / "y")
    (place / "y").symlink_to(place / "x")

    with pytest.raises(AdapterError, match="cannot be resolved"):
        registry_of().register("a", settings=saving(place / "x"))
