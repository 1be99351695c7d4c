"""slime's ``single_tag``: no copies; what is asked for is what is live, or an error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lifecycle.compat import TensorBackuper
from lifecycle.errors import ConfigError, DigestMismatch, UnknownTag
from lifecycle.saver import Backup, HostArena


def live_only(tensors: dict[str, Tensor], saver: HostArena | None = None) -> TensorBackuper:
    """Over one tag, ``actor``."""
    return TensorBackuper.create(source_getter=tensors.items, single_tag="actor", saver=saver)


def test_get_gives_the_live_tensors() -> None:
    """No byte is copied."""
    tensors = {"x": torch.ones(3)}
    backuper = live_only(tensors)

    assert backuper.backup("actor") == 0
    assert backuper.get("actor")["x"].data_ptr() == tensors["x"].data_ptr()
    assert backuper.restore("actor") == 0
    assert backuper.backup_tags == ["actor"]


def test_tensors_that_changed_are_refused_and_named() -> None:
    """Also where a sum of the bytes would not show it: two elements have changed places."""
    tensors = {"x": torch.ones(3), "y": torch.arange(3.0)}
    backuper = live_only(tensors)
    backuper.backup("actor")
    tensors["y"].copy_(tensors["y"].flip(0))
    backuper.mark_dirty([])
    for call in (backuper.get, backuper.restore):
        with pytest.raises(DigestMismatch) as caught:
            call("actor")
        assert caught.value.tensors == ("y",)


def test_paused_tensors_are_given_as_their_backup() -> None:
    """FB-01: with a saver what is given is always what was backed up."""
    arena = HostArena()
    tensors = {"x": torch.ones(3)}
    backuper = live_only(tensors, arena)
    backuper.backup("actor")
    arena.place(tensors, "default", Backup.CPU)
    arena.pause("default")

    assert backuper.get("actor")["x"].tolist() == [1, 1, 1]
    arena.close()


def test_other_tags_and_copies_are_refused() -> None:
    """There is one tag, and nothing under it before the first backup."""
    backuper = live_only({"x": torch.ones(3)})
    for call in (backuper.backup, backuper.get, backuper.restore):
        with pytest.raises(UnknownTag):
            call("ref")
    with pytest.raises(UnknownTag):
        backuper.get("actor")
    with pytest.raises(ConfigError, match="single_tag"):
        backuper.copy(src_tag="actor", dst_tag="ref")
