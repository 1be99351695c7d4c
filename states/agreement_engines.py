"""Engines of which every rank has its own: what all ranks together have to do about each. Pure.

What one engine lacks, all ranks send to theirs: what is read for it may be gathered from all ranks, and ranks that
are to come to the same end do the same. An engine that has it already gets it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from states.agreement import Agreed, Ballot, Disagreed, Failed, Fenced, Missing, Phase, Said, unpack_all
from states.agreement_differences import groups_of
from states.agreement_digest import digest_of, plain
from states.agreement_places import apart, aside
from states.agreement_requests import Asking, Gather, Share
from states.facts import EngineFacts
from states.push_plan import in_order
from states.seat import Seat

Engines = tuple[EngineFacts, ...]
_NAMED: Final = 3


def agree_on_engines(seat: Seat, engines: Engines) -> Asking[Engines | Agreed | Disagreed | Failed | Missing | Fenced]:
    """Meet while facts are gathered, and take what every rank's engines are and lack together.

    Where all are alike, as engines are that ranks share, that is one collective of a few bytes.

    Args:
        seat: this rank's place.
        engines: this rank's.

    Returns:
        The same facts on every rank; this rank's own where ranks name other engines, for the agreement to find that.
    """

    def talk(left_s: float) -> Asking[Engines | Disagreed | Failed]:
        ballot = seat.aside(Ballot(Phase.COMPARED, Said.NOTHING, 0, 0, facts=digest_of(engines)))
        ballots = unpack_all((yield Gather(ballot.pack(), left_s)))
        if (found := (yield from apart(seat, ballots, "", left_s))) is not None:
            return found
        groups = groups_of([one.facts for one in ballots])
        if len(groups) == 1:
            return engines
        chosen = tuple(sorted(ranks[0] for ranks in groups))
        answers = yield Share(chosen, json.dumps(plain(engines)).encode(), left_s)
        told = {rank: _engines_of(json.loads(one)) for rank, one in zip(chosen, answers, strict=True)}
        return joined_engines({ranks: told[ranks[0]] for ranks in groups}) or engines

    return (yield from aside(seat, Phase.COMPARED, talk))


def joined_engines(told: Mapping[tuple[int, ...], Engines]) -> Engines | None:
    """What all ranks together have to do about each engine; None where they do not name the same engines.

    Args:
        told: ranks to the engines that each of them has.
    """
    if len({tuple(one.name for one in engines) for engines in told.values()}) > 1:
        return None
    ranks = sorted(told)
    by_engine = zip(*(told[one] for one in ranks), strict=True)
    return tuple(_joined(dict(zip(ranks, held, strict=True))) for held in by_engine)


def _joined(held: Mapping[tuple[int, ...], EngineFacts]) -> EngineFacts:
    every = tuple(held.values())
    resident = {one.weights_resident for one in every}
    slots = [one.adapter_slots for one in every if one.adapter_slots is not None]
    return EngineFacts(
        name=every[0].name,
        weights_resident=next(one for one in (False, None, True) if one in resident),
        stale=in_order({group for one in every for group in one.stale}),
        extra=_all_of(one.extra for one in every),
        fenced=_words({ranks: one.fenced for ranks, one in held.items()}),
        adapter_slots=min(slots, default=None),
        discarded=_all_of(one.discarded for one in every),
        unknown=_words({ranks: one.unknown for ranks, one in held.items()}),
        ahead=_all_of(one.ahead for one in every),
    )


def _all_of(named: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for names in named for name in names}))


def _words(told: Mapping[tuple[int, ...], str]) -> str:
    """What all say; else what those say that say something, of many the first few."""
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    said = [f"rank {ranks[0]}: {words}" for ranks, words in told.items() if words]
    more = f"; and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return "; ".join(said[:_NAMED]) + more


def _engines_of(told: Sequence[Mapping[str, Any]]) -> Engines:
    return tuple(map(_engine_of, told))


def _engine_of(told: Mapping[str, Any]) -> EngineFacts:
    settings: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in told.items()}
    return EngineFacts(**settings)
