"""Who builds, who joins and who admits, where ranks meet before any of them has a trainer in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from states.agreement import Ballot, Difference, Said
from states.agreement_differences import groups_of
from states.verdict import NotABool

_ROLES: Final = Said.JOINS | Said.ADMITS
_WORDS: Final = {
    Said.JOINS: "to join ranks that hold something",
    Said.ADMITS: "to admit ranks that join",
    Said.NOTHING: "to build a trainer anew",
}


@dataclass(frozen=True, slots=True)
class Assembled(NotABool):
    """All ranks are there.

    Attributes:
        rank: this one.
        newest: the largest version id that any of them has used.
        newcomers: the ranks that hold nothing yet and join.
        survivors: those that admit them; empty where all build anew.
    """

    rank: int
    newest: int
    newcomers: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()

    @property
    def giver(self) -> int:
        """The rank that hands over what it holds: the lowest that is left."""
        return self.survivors[0]

    @property
    def is_newcomer(self) -> bool:
        """Whether this rank joins."""
        return self.rank in self.newcomers


def assembled(rank: int, ballots: Sequence[Ballot]) -> Assembled:
    """What this rank learns of ballots whose roles go together."""
    newcomers, survivors = _that_say(ballots, Said.JOINS), _that_say(ballots, Said.ADMITS)
    return Assembled(rank, max(one.version for one in ballots), newcomers, survivors)


def differing_roles(ballots: Sequence[Ballot]) -> Difference | None:
    """Who came for what, where that does not go together: some build anew, or all join and nobody holds anything."""
    roles = [Said(one.said & _ROLES) for one in ballots]
    if set(roles) in ({Said.NOTHING}, {Said.ADMITS}, {Said.ADMITS, Said.JOINS}):
        return None
    return Difference("what it came for", tuple((ranks, _WORDS[roles[ranks[0]]]) for ranks in groups_of(roles)))


def _that_say(ballots: Sequence[Ballot], said: Said) -> tuple[int, ...]:
    return tuple(rank for rank, one in enumerate(ballots) if one.said & said)
