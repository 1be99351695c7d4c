"""A controller over the real library: its life cycle, what it frees, and a driver that gives nothing back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from lifecycle.saver.protocol import Backup
from lifecycle.saver.room import CarefulSaver
from tests.gpu.life import life_cycle
from tests.saver.real_port import RealLibrary, RealPort
from tests.saver.real_scenarios import in_a_fork


def live(library: RealLibrary, folder: str) -> None:
    """One life cycle of a controller."""
    life_cycle(CarefulSaver(RealPort(library, folder), disk_dir=folder), "cpu")


def drop_the_last_reference(library: RealLibrary, folder: str) -> None:
    """The tensors of a paused tag go, then the tag, then the saver; other tags live on."""
    port = RealPort(library, folder)
    saver = CarefulSaver(port, disk_dir=folder)
    kept = torch.arange(5)
    saver.place({"kept": kept}, "kept", Backup.CPU)
    for backup in Backup:
        tensor = torch.arange(5)
        saver.place({"tensor": tensor}, "dropped", backup)
        saver.pause("dropped")
        del tensor
        gc.collect()
        saver.release("dropped")
    assert kept.tolist() == list(range(5))
    saver.pause("kept")
    del kept
    saver.release("kept")
    assert library.used_bytes() == 0


def free_nothing(library: RealLibrary, folder: str) -> None:
    """The driver does not take the pages back: the books say all is freed, the driver's figure does not."""
    saver = CarefulSaver(RealPort(library, folder))
    saver.place({"tensor": torch.zeros(1 << 20)}, "tag", Backup.CPU)
    before = saver.device_used_bytes()
    library.driver.stub_set_returns_pages(0)
    saver.pause("tag")
    assert saver.usage().device_bytes == 0
    assert saver.device_used_bytes() == before


STORIES = {story.__name__: story for story in (live, drop_the_last_reference, free_nothing)}


def main(stub: str, folder: str) -> None:
    """Each in a fork; one line a story: its name, and ``held`` or how it ended."""
    library = RealLibrary(Path(stub))
    for name, story in STORIES.items():
        print(name, *in_a_fork(lambda told=story: tell(told, library, folder)), flush=True)  # type: ignore[misc]


def tell(story: Callable[[RealLibrary, str], None], library: RealLibrary, folder: str) -> Iterator[str]:
    """The story, and that it came to its end."""
    story(library, folder)
    yield "held"


if __name__ == "__main__":
    main(*sys.argv[1:])
