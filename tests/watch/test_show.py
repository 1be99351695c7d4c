"""What is told again and what is not while a run is followed line by line."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from lifecycle.watch import Picture, RunWatch, show
from lifecycle.watch.run import Happened
from tests.watch.pictures import picture, rank


class Looked(RunWatch):
    """A run in which nothing happens; at each look another picture, and then somebody ends it."""

    def __init__(self, *pictures: Picture) -> None:
        super().__init__([])
        self.pictures = pictures
        self.looks = 0

    def poll(self) -> Iterator[Happened]:
        """Nothing; the first time it is what was there before."""
        self.looks += 1
        if self.looks > len(self.pictures):
            raise KeyboardInterrupt
        return iter(())

    def picture(self, now_s: float | None = None) -> Picture:
        """That of this look."""
        return self.pictures[self.looks - 1]


def test_what_stands_is_told_once_and_again_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is looked at four times a second."""
    monkeypatch.setattr(show, "REFRESH_S", 0.0)
    gone, well = picture(rank(), gone=("c.jsonl",)), picture(rank())
    console = Console(file=io.StringIO(), width=200)

    with pytest.raises(KeyboardInterrupt):
        show.show_lines(Looked(gone, gone, gone, well, gone, gone), console, 5)

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("GONE") == 2
