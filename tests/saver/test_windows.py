"""What the books say of a stretch of memory is looked up once, and again as soon as it may be otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lifecycle.saver.arena import HostArena
from lifecycle.saver.protocol import Backup, Window
from lifecycle.saver.windows import Windows

TAG, OTHER = "actor/base", "actor/adapters"


class Counting:
    """A saver that counts how often a window is looked up."""

    def __init__(self, arena: HostArena) -> None:
        self.arena = arena
        self.looks = 0

    @property
    def revision(self) -> int:
        """The arena's."""
        return self.arena.revision

    def window(self, tensor: Tensor) -> Window:
        """The arena's, counted."""
        self.looks += 1
        return self.arena.window(tensor)


def tensors(count: int) -> dict[str, Tensor]:
    """So many small ones."""
    return {f"w{number}": torch.full((4,), float(number)) for number in range(count)}


@pytest.mark.parametrize("count", [2, 200])
def test_looks_do_not_grow_with_the_number_of_tensors(count: int) -> None:
    """One look for each region and one for the gap, in whatever order tensors are asked for."""
    arena = HostArena()
    base, adapters, loose = tensors(count), tensors(count), torch.ones(4)
    arena.place(base, TAG, Backup.CPU)
    arena.place(adapters, OTHER, Backup.CPU)
    saver = Counting(arena)
    windows = Windows(saver)
    for one, other in zip(base.values(), adapters.values(), strict=True):
        assert [windows.of(each).tag for each in (one, other, loose)] == [TAG, OTHER, None]

    assert saver.looks == 3


def test_a_window_says_where_the_backup_of_each_tensor_is() -> None:
    """The backup of the whole region, at the offsets that the tensors have in it."""
    arena = HostArena()
    held = tensors(3)
    arena.place(held, TAG, Backup.CPU)
    assert arena.window(held["w1"]).host is None
    arena.pause(TAG)
    window = arena.window(held["w1"])

    assert (window.tag, window.live) == (TAG, False)
    assert window.host is not None
    for one in held.values():
        backup = arena.host_backup(one)
        assert backup is not None
        assert window.host.data_ptr() + one.data_ptr() - window.start == backup.data_ptr()


CHANGES: dict[str, Callable[[HostArena], object]] = {
    "pause": lambda arena: arena.pause(TAG),
    "resume": lambda arena: (arena.pause(TAG), arena.resume(TAG)),
    "release": lambda arena: arena.release(TAG),
    "place": lambda arena: arena.place(tensors(1), OTHER, Backup.NONE),
    "close": lambda arena: arena.close(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_the_books_ends_every_window(change: Callable[[HostArena], object]) -> None:
    """A window that was kept would give memory out that is paused, freed or another region's."""
    arena = HostArena()
    held = tensors(1)["w0"]
    arena.place({"w": held}, TAG, Backup.CPU)
    before = arena.revision
    change(arena)

    assert arena.revision > before


def test_a_window_is_looked_up_anew_after_a_pause_and_after_a_release() -> None:
    """Live, then only in the backup, then in no region at all."""
    arena = HostArena()
    held = tensors(1)["w0"]
    arena.place({"w": held}, TAG, Backup.CPU)
    windows = Windows(arena)
    seen = [windows.of(held)]
    arena.pause(TAG)
    seen.append(windows.of(held))
    arena.release(TAG)
    seen.append(windows.of(held))

    assert [(one.tag, one.live, one.host is not None) for one in seen] == [
        (TAG, True, False),
        (TAG, False, True),
        (None, True, False),
    ]


def test_a_failed_pause_ends_windows_too() -> None:
    """Nobody knows better than the books, and these say that something was tried."""

    def fail(operation: str, _: str) -> None:
        if operation == "pause":
            raise OSError(5, "told to fail")

    arena = HostArena(faults=fail)
    held = tensors(1)["w0"]
    arena.place({"w": held}, TAG, Backup.CPU)
    before = arena.revision
    with pytest.raises(Exception, match="told to fail"):
        arena.pause(TAG)

    assert arena.revision > before
    assert arena.window(held).live


def test_the_generation_grows_only_when_regions_come_and_go() -> None:
    """Which tag a tensor lies in does not change when the tag is paused: what is known of that stays known."""
    arena = HostArena()
    arena.place(tensors(1), TAG, Backup.CPU)
    placed = arena.generation
    arena.pause(TAG)
    arena.resume(TAG)
    assert arena.generation == placed
    arena.release(TAG)

    assert arena.generation > placed


def test_a_closed_saver_does_not_count_from_the_start_again() -> None:
    """What was remembered from before would be taken for true."""
    arena = HostArena()
    arena.place(tensors(1), TAG, Backup.CPU)
    before = (arena.revision, arena.generation)
    arena.close()

    assert arena.revision > before[0]
    assert arena.generation > before[1]


@pytest.mark.parametrize(
    "tensor", [torch.empty(2, device="meta"), torch.eye(2).to_sparse(), torch.empty(0)], ids=["meta", "sparse", "empty"]
)
def test_a_tensor_without_memory_lies_in_no_region(tensor: Tensor) -> None:
    """It is nobody's to pause."""
    arena = HostArena()
    arena.place(tensors(1), TAG, Backup.CPU)
    windows = Windows(arena)

    assert [windows.of(tensor).tag for _ in range(2)] == [None, None]


def test_the_entries_of_all_tags_are_made_once_between_changes() -> None:
    """They are asked for several times in each event."""
    arena = HostArena()
    arena.place(tensors(1), TAG, Backup.CPU)
    first = arena.tags()[TAG]
    assert arena.tags()[TAG] is first
    arena.pause(TAG)

    assert arena.tags()[TAG].paused
