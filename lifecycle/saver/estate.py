"""What a host arena owns, and the one place where it is all given back."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress

from lifecycle.saver import pages
from lifecycle.saver.blocks import Block


class Estate:
    """What the arena owns. Kept alive by the port and by every tensor that lies in the arena."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.freed: list[tuple[int, int]] = []
        self.poison = pages.make_poison()
        self._files = weakref.finalize(self, _remove_files, self.blocks, os.getpid())
        self._memory = weakref.finalize(self, _dissolve, self.blocks, self.freed, self.poison, os.getpid())
        # At exit the system takes the memory; a thread that still reads a tensor must not find it gone before.
        self._memory.atexit = False

    @property
    def closed(self) -> bool:
        """Whether everything was given back."""
        return not self._memory.alive

    def close(self) -> None:
        """Give everything back, once."""
        self._memory()
        self._files.detach()


def _remove_files(blocks: dict[int, Block], owner: int) -> None:
    if os.getpid() != owner:  # a forked child has copies of the pages, but the files are its parent's
        return
    for block in blocks.values():
        with suppress(OSError):
            block.drop_file()


def _dissolve(blocks: dict[int, Block], freed: list[tuple[int, int]], poison: int, owner: int) -> None:
    _remove_files(blocks, owner)
    for block in blocks.values():
        block.let_go_of_file()
        block.drop_slot()
        pages.unmap(block.address, block.mapped_bytes)
    for address, size_bytes in freed:
        pages.unmap(address, size_bytes)
    blocks.clear()
    freed.clear()
    os.close(poison)
