"""A run as it is followed: a log, or one a rank, and the picture that is made of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from lifecycle.audit.expand import Record
from lifecycle.audit.read import Torn
from lifecycle.report import fields
from lifecycle.report.model import Happening, lane_of
from lifecycle.watch.follow import Anew, Follower, Standing
from lifecycle.watch.picture import Picture, Unseen
from lifecycle.watch.rank import RankWatch

_EMPTY: Final = "waiting for it: there is no such file yet, or nothing in it"


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that a log says.

    Attributes:
        index: which log, from 0.
        happening: what it says.
    """

    index: int
    happening: Happening


class RunWatch:
    """Follows the logs of one run.

    Args:
        paths: one log, or one a rank; they need not exist yet.

    Attributes:
        logs: how many there are.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._followers = [Follower(Path(path)) for path in paths]
        self._ranks: dict[int, RankWatch] = {}
        self.logs = len(self._followers)

    def poll(self) -> Iterator[Happened]:
        """What was written since the last call. Use all of it: what is left out is not seen.

        Raises:
            AuditError: a log cannot be read, or is none.
        """
        for index, follower in enumerate(self._followers):
            for line in follower.poll():
                if isinstance(line, Anew):
                    self._ranks.pop(index, None)
                else:
                    yield from (Happened(index, one) for one in self._see(index, line))

    def _see(self, index: int, line: Record | Torn) -> list[Happening]:
        rank = self._ranks.get(index)
        if rank is None:
            if isinstance(line, Torn):
                return []
            try:
                whose = lane_of(index, str(self._followers[index].path), line)
            except fields.NotOfARecordError:
                return []
            rank = self._ranks[index] = RankWatch(whose)
        return rank.see(line)

    def picture(self, now_s: float | None = None) -> Picture:
        """What is known now.

        Args:
            now_s: the moment, seconds since 1970; the clock's when None.
        """
        ranks, unseen, gone = [], [], []
        for index, follower in enumerate(self._followers):
            if index in self._ranks:
                ranks.append(self._ranks[index].picture(follower.unfinished_bytes))
            else:
                unseen.append(Unseen(str(follower.path), _EMPTY))
            if follower.standing is Standing.GONE:
                gone.append(str(follower.path))
        return Picture(time.time() if now_s is None else now_s, tuple(ranks), tuple(unseen), tuple(gone))

    def close(self) -> None:
        """Close the files. Idempotent."""
        for one in self._followers:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
