"""Memory that content groups share is found whole, by storage and by address."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lifecycle.errors import ConfigError
from lifecycle.memory.attach_checks import refuse_mixed_backups
from lifecycle.memory.sharing import groups_sharing_storage


def test_groups_with_storages_of_their_own_share_nothing() -> None:
    """Nor do two tensors of one group, nor tensors without bytes."""
    flat = torch.ones(8)
    groups = {"one": {"a": flat[:4], "b": flat[4:]}, "two": {"c": torch.ones(2), "d": flat.new_empty(0)}, "three": {}}

    assert groups_sharing_storage(groups) == ()


def test_a_shared_storage_is_told_with_its_groups_tensors_and_size() -> None:
    """In the order of the groups, with the bytes that no tensor covers."""
    flat = torch.ones(10)
    groups = {"one": {"a": flat[:4], "own": torch.ones(1)}, "two": {"b": flat[6:8], "c": flat[8:]}}

    (found,) = groups_sharing_storage(groups)

    assert found.groups == ("one", "two")
    assert found.size_bytes == 40
    assert list(found.flat()) == ["a", "b", "c"]
    assert found.tensors["two"]["b"] is groups["two"]["b"]


def test_storages_that_overlap_in_memory_are_one() -> None:
    """Slices of a storage, each a storage of its own, chained by a third one."""
    memory = torch.zeros(64, dtype=torch.uint8).untyped_storage()

    def part(start: int, end: int) -> Tensor:
        return torch.empty(0, dtype=torch.uint8).set_(memory[start:end])

    groups = {
        "one": {"a": part(0, 20)},
        "two": {"b": part(16, 40)},
        "three": {"c": part(36, 50)},
        "four": {"d": part(50, 64)},
    }
    groups["five"] = {"e": part(17, 19), "f": part(38, 39)}
    (found,) = groups_sharing_storage(groups)

    assert found.groups == ("one", "two", "three", "five")
    assert found.size_bytes == 50


def test_a_shared_storage_has_one_kind_of_backup() -> None:
    """Equal kinds may share a region; others are refused with tensors, groups and kinds."""
    flat = torch.ones(8)
    shared = groups_sharing_storage({"one": {"a": flat[:4]}, "two": {"b": flat[4:]}})

    refuse_mixed_backups(shared, {"one": "cpu", "two": "cpu"}.get)
    with pytest.raises(ConfigError, match=r"a, b: .*\(one: none, two: cpu\)"):
        refuse_mixed_backups(shared, {"one": "none", "two": "cpu"}.get)
