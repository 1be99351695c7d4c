"""What only a demo of many ranks can end with."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle.distributed.errors import ranks_told
from lifecycle.errors import LifecycleError


class PeersLost(LifecycleError):
    """The group over which ranks average their gradients broke: another rank has ended or does not answer.

    Attributes:
        during: what this rank was doing.
        why: what the group said.
    """

    def __init__(self, during: str, why: str) -> None:
        self.during = during
        self.why = why
        super().__init__(
            f"{during}: the group of the ranks broke: {why}. What to do: look for the rank that ended first"
        )


class WeightsUnlike(LifecycleError):
    """Ranks that averaged their gradients have different weights.

    Attributes:
        adapter: whose weights they are.
        ranks: the ranks that are not among the most numerous.
    """

    def __init__(self, adapter: str, ranks: Sequence[int]) -> None:
        self.adapter = adapter
        self.ranks = tuple(ranks)
        super().__init__(
            f"the weights of adapter {adapter!r} are others on {ranks_told(self.ranks)}. What to do: compare the logs "
            "of the ranks; a gradient that was not averaged, or another optimizer, is the usual cause"
        )


class RankEnded(LifecycleError):
    """A rank of the demo failed, died or fell silent, so all of them were ended.

    Attributes:
        rank: who was first.
        why: what it said, or how it ended.
        said_by_all: the words are every rank's, and name those that they are about.
    """

    def __init__(self, rank: int, why: str, *, said_by_all: bool = False) -> None:
        self.rank = rank
        self.why = why
        self.said_by_all = said_by_all
        super().__init__(why if said_by_all else f"rank {rank}: {why}")
