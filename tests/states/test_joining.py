"""Who builds, who joins and who admits."""

from __future__ import annotations

import pytest

from states.agreement import Ballot, Difference, Phase, Said
from states.joining import assembled, differing_roles

BUILDS, JOINS, ADMITS = Said.NOTHING, Said.JOINS, Said.ADMITS


def ballots(*roles: Said) -> list[Ballot]:
    """Of ranks that came for this, with version ids that grow by rank."""
    return [Ballot(Phase.COMPARED, one, 0, 1, 100 + rank) for rank, one in enumerate(roles)]


@pytest.mark.parametrize("roles", [(BUILDS, BUILDS), (ADMITS, ADMITS), (ADMITS, JOINS, ADMITS), (JOINS, ADMITS)])
def test_all_build_or_some_admit_whoever_joins(roles: tuple[Said, ...]) -> None:
    """That goes together."""
    assert differing_roles(ballots(*roles)) is None


@pytest.mark.parametrize("roles", [(JOINS, JOINS), (BUILDS, JOINS), (BUILDS, ADMITS), (BUILDS, JOINS, ADMITS)])
def test_anything_else_is_a_difference(roles: tuple[Said, ...]) -> None:
    """Also where all join: nobody holds anything."""
    found = differing_roles(ballots(*roles))

    assert isinstance(found, Difference)
    assert sum(len(ranks) for ranks, _ in found.values) == len(roles)


def test_the_lowest_rank_that_is_left_hands_over() -> None:
    """To all that join; version ids go on above the largest of all."""
    met = assembled(1, ballots(JOINS, ADMITS, JOINS, ADMITS))

    assert (met.newest, met.newcomers, met.survivors, met.giver, met.is_newcomer) == (103, (0, 2), (1, 3), 1, False)
    assert assembled(2, ballots(JOINS, ADMITS, JOINS)).is_newcomer
