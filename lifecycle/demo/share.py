"""One batch, many ranks: which rows are whose, and what the ranks tell each other about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lifecycle.demo.errors import PeersLost, WeightsUnlike
from lifecycle.process_groups import ProcessGroupError, ProcessGroups
from lifecycle.wording import first_line

GROUP: Final = "data-parallel"
"""Under this name the group is listed for ``sleep`` to tear down."""
_DIGEST_BYTES: Final = 32
_dist: Any = dist  # type stubs leave out most of what is used here


class Share(Protocol):
    """What a rank has of each batch. All ranks call the same methods in the same order, awake."""

    def own(self, batch: Tensor) -> Tensor:
        """This rank's rows of a batch, ``[rows, ...]``; a view."""

    def within(self, rows: int) -> dict[str, tuple[int, int]]:
        """What to tell an engine so that it samples these rows as it would within the whole batch."""

    def gathered(self, own: Tensor, rows: int) -> Tensor:
        """All ranks' rows in order, ``[rows, ...]``, bit for bit, from this rank's own."""

    def of_all(self, value: float) -> list[float]:
        """Every rank's value, by rank; 64 bits of it."""

    def average(self, parameters: Iterable[nn.Parameter], rows: int) -> None:
        """From gradients of a mean over the own rows to those of the mean over all *rows*, in place.

        They are bit-identical on all ranks afterwards.
        """

    def compare(self, names: Sequence[str], digest: Callable[[str], str]) -> None:
        """See that all ranks have the same weights.

        Args:
            names: the adapters, the same on every rank.
            digest: name to the SHA-256 of its weights, in hexadecimal digits.

        Raises:
            WeightsUnlike: a rank has others.
        """


class Whole:
    """One process alone: the batch is its own, and nobody is told anything."""

    def own(self, batch: Tensor) -> Tensor:
        """All of it."""
        return batch

    def within(self, _rows: int) -> dict[str, tuple[int, int]]:
        """The engine gets the whole batch."""
        return {}

    def gathered(self, own: Tensor, _rows: int) -> Tensor:
        """They are all there."""
        return own

    def of_all(self, value: float) -> list[float]:
        """The one there is."""
        return [value]

    def average(self, parameters: Iterable[nn.Parameter], rows: int) -> None:
        """The gradients are those of the whole batch."""

    def compare(self, names: Sequence[str], digest: Callable[[str], str]) -> None:
        """There is nobody to compare with."""


class RankShare:
    """One rank's rows, about the same number on each rank. Every method that tells is a collective.

    Each of them is one sum over the ranks. Rows of others are zero in it: what one rank puts in comes out as it is.

    Args:
        rank: of this process.
        world: how many ranks there are, at most as many as rows.
        groups: where the group is listed, as :data:`GROUP`.
    """

    def __init__(self, rank: int, world: int, groups: ProcessGroups) -> None:
        self._rank, self._world, self._groups = rank, world, groups

    def own(self, batch: Tensor) -> Tensor:
        """See :class:`Share`."""
        first, after = self._bounds(len(batch))
        return batch[first:after]

    def within(self, rows: int) -> dict[str, tuple[int, int]]:
        """See :class:`Share`."""
        return {"within": (self._bounds(rows)[0], rows)}

    def gathered(self, own: Tensor, rows: int) -> Tensor:
        """See :class:`Share`."""
        first, after = self._bounds(rows)
        return self._placed(own, first, after, rows)

    def of_all(self, value: float) -> list[float]:
        """See :class:`Share`."""
        one = torch.tensor([value], dtype=torch.float64)
        return self._placed(one, self._rank, self._rank + 1, self._world).tolist()

    def average(self, parameters: Iterable[nn.Parameter], rows: int) -> None:
        """See :class:`Share`."""
        first, after = self._bounds(rows)
        gradients = [one.grad for one in parameters if one.grad is not None]
        flat = torch.cat([one.reshape(-1) for one in gradients]) * ((after - first) / rows)
        self._sum(flat, "averaging gradients")
        for one, part in zip(gradients, torch.split(flat, [one.numel() for one in gradients]), strict=True):
            one.copy_(part.view_as(one))

    def compare(self, names: Sequence[str], digest: Callable[[str], str]) -> None:
        """See :class:`Share`."""
        held = b"".join(bytes.fromhex(digest(name)) for name in names)
        row = torch.tensor(list(held)).reshape(1, len(names), _DIGEST_BYTES)
        found = self._placed(row, self._rank, self._rank + 1, self._world)
        for index, name in enumerate(names):
            told = [tuple(one[index].tolist()) for one in found]
            usual = max(told, key=told.count)
            if unlike := [rank for rank, one in enumerate(told) if one != usual]:
                raise WeightsUnlike(name, unlike)

    def _bounds(self, rows: int) -> tuple[int, int]:
        return self._rank * rows // self._world, (self._rank + 1) * rows // self._world

    def _placed(self, own: Tensor, first: int, after: int, rows: int) -> Tensor:
        found = own.new_zeros(rows, *own.shape[1:])
        found[first:after] = own
        self._sum(found, "comparing notes")
        return found

    def _sum(self, tensor: Tensor, during: str) -> None:
        try:
            _dist.all_reduce(tensor, group=self._groups.get(GROUP))
        except ProcessGroupError:
            raise
        except RuntimeError as error:  # torch's own errors of broken and late groups are of this kind
            raise PeersLost(during, first_line(error)) from error
