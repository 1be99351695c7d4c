"""A registry that ranks share between events: all have it at the end, or all hear who could not take it over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lifecycle.adapters import AdapterRegistry
from lifecycle.distributed import RankAgreement, RanksFailed
from lifecycle.errors import ConfigError
from tests.distributed.registries import given_tensors
from tests.distributed.threads import Hub, alike

WORLD = 3


class Sharers:
    """Ranks in threads with a registry of its own each, that of rank 0 with an adapter."""

    def __init__(self) -> None:
        self.hub = Hub(WORLD)
        self.ranks: list[RankAgreement] = self.hub.agreements()
        self.hub.all(lambda rank: self.ranks[rank].acted())  # all have got there
        self.registries = [AdapterRegistry(2) for _ in range(WORLD)]
        self.registries[0].register("A", tensors=given_tensors(1), rank=2)

    def share(self, *, by: int = 0) -> list[Any]:
        """What came of it, by rank."""
        hosts = [SimpleNamespace(registry=one) for one in self.registries]

        def share(rank: int) -> None:
            self.ranks[rank].share_registry(hosts[rank], by=by)  # type: ignore[arg-type]

        return self.hub.all(share)


@pytest.mark.parametrize("by", [0, 2])
def test_every_rank_has_it_at_the_end(by: int) -> None:
    """As that of the rank that is named, also without ``registry_from``; again it takes two collectives."""
    one = Sharers()
    one.registries[by].register("B")
    assert one.share(by=by) == [None] * WORLD
    assert alike([set(each.snapshot().adapters) for each in one.registries]) == ({"A", "B"} if by == 0 else {"B"})
    one.hub.forget()
    assert one.share(by=by) == [None] * WORLD

    assert dict(one.hub.collectives) == {"Gather": 2}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("registry", [None, AdapterRegistry(5)])
def test_a_rank_that_cannot_take_it_over_keeps_nobody_waiting(rank: int, registry: AdapterRegistry | None) -> None:
    """It says what is wrong with it, the others hear that; and what comes next is a meeting of all again."""
    one = Sharers()
    right, one.registries[rank] = one.registries[rank], registry  # type: ignore[call-overload]
    found = one.share()

    failed = [number for number in range(WORLD) if isinstance(found[number], ConfigError)]
    assert failed == ([1, 2] if rank == 0 and registry is not None else [rank])
    assert all(isinstance(found[number], RanksFailed) for number in range(WORLD) if number not in failed)
    assert alike([each.ranks for each in found if isinstance(each, RanksFailed)]) == tuple(failed)
    one.registries[rank] = right
    assert one.share() == [None] * WORLD
    assert all(each.find("A") is not None for each in one.registries)


def test_a_rank_that_is_none_shares_nothing() -> None:
    """Refused before anybody is met."""
    one = Sharers()
    assert [str(each) for each in one.share(by=WORLD)] == ["by is 3; use the number of a rank, 0 to 2"] * WORLD
    assert one.share() == [None] * WORLD
