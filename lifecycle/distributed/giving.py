"""The ranks that admit a new process: one tells what all of them hold, the others compare."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lifecycle.adapters.checkpoint_values import pack
from lifecycle.adapters.files import render_tensors
from lifecycle.adapters.protocol import AdapterHost
from lifecycle.distributed.errors import JoinRefused
from lifecycle.distributed.handed import (
    COPY,
    Book,
    HandedAdapter,
    HandedCopy,
    HandedFence,
    HandedLog,
    HandedRecord,
    HandedTag,
    HandedTensor,
    HandedVersions,
    decode,
    encode,
)
from lifecycle.distributed.handing import Place, alike_of, chunked, own_of, registry_of, render
from lifecycle.distributed.sharing import hear_registry, tell_registry
from lifecycle.memory.slot_record import values_in
from lifecycle.transition.gather import content_facts
from lifecycle.transition.parts import Parts
from lifecycle.transition.ranks import Ranks
from lifecycle.transition.records import LogStanding
from lifecycle.weights.digests import tensor_sha256
from lifecycle.weights.stored import Stored
from states import TrainerState
from states.admission import in_words, unlike
from states.agreement_digest import plain
from states.joining import Assembled


@dataclass(frozen=True)
class Told:
    """What a rank that admits holds.

    Attributes:
        book: all of it but the bytes.
        tensors: the bytes, in the book's order. Valid as long as no event runs.
    """

    book: Book
    tensors: dict[str, Tensor]


def give(parts: Parts, state: TrainerState, log: LogStanding, ranks: Ranks, met: Assembled) -> None:
    """Tell what this trainer holds, or compare it with what the rank that tells holds. Changes nothing.

    Raises:
        JoinRefused: this rank holds something else than the rank that tells: so nobody knows what is right.
        RanksFailed: another rank does, or a newcomer cannot take it.
        UnreadableTensor: something cannot be read.
    """
    own = told_of(parts, state, log)
    tells = met.rank == met.giver
    book = decode(ranks.told(encode(own.book) if tells else None, by=met.giver))
    if differences := unlike(own.book.compared(), book.compared()):
        remedy = "Ranks that admit must hold the same; build every rank anew, and resume from checkpoints"
        raise JoinRefused(f"it holds something else than rank {met.giver}: {in_words(differences)}. {remedy}")
    if (registry := registry_of(parts)) is not None and tells:
        tell_registry(ranks, met.giver, registry.snapshot(), {})
    elif registry is not None:
        hear_registry(ranks, met.giver, {})
    for chunk in chunked(own.tensors.values()):
        ranks.told(render(chunk) if tells else None, by=met.giver)


def told_of(parts: Parts, state: TrainerState, log: LogStanding) -> Told:
    """Everything that this trainer holds and a newcomer needs. Reads every byte of it once, to digest it.

    Raises:
        UnreadableTensor: something cannot be read.
    """
    adapters = _adapters(parts.adapters)
    own = own_of(parts, sorted(one.slot for one in adapters))
    tags, copies = _snapshots(parts)
    tensors = own.bytes_of(parts)
    for number, one in enumerate(copies):
        if not _is_own(parts, *one):
            tensors |= {f"{COPY}{number}/{name}": held for name, held in (one[1].tensors or {}).items()}
    book = Book(
        alike=alike_of(parts),
        state=state,
        contents={one.group: plain(one) for one in content_facts(parts)},
        versions=_versions(parts),
        adapters=adapters,
        records={title: _record(title, place) for title, place in own.records.items()},
        tags=tags,
        copies=tuple(HandedCopy(group, one.version, _is_own(parts, group, one)) for group, one in copies),
        fences={name: _fence(one.because, one.suspect) for name, one in parts.runtime.engines.fences.items()},
        tensors={name: _tensor(one) for name, one in tensors.items()},
        log=HandedLog(log.transition, dict(log.told), log.since_checkpoint),
    )
    return Told(book, tensors)


def _adapters(host: AdapterHost | None) -> tuple[HandedAdapter, ...]:
    """What is loaded, by name; each is asked for its own rank, of which no byte is read."""
    found = []
    for name, one in sorted(host.loaded().items()) if host is not None else ():
        assert host is not None
        held = host.slot_tensors(one.slot)
        rank, alpha, targets, _ = host.export(name, lambda key, held=held: held[key].detach())  # type: ignore[misc]
        found.append(HandedAdapter(name, one.registration_id, one.slot, rank, alpha, tuple(targets)))
    return tuple(found)


def _snapshots(parts: Parts) -> tuple[dict[str, dict[str, HandedTag]], list[tuple[str, Stored]]]:
    """The tags, and each group of bytes that they hold once, however many hold it."""
    places: dict[int, int] = {}
    copies: list[tuple[str, Stored]] = []
    tags: dict[str, dict[str, HandedTag]] = {}
    for tag, groups in sorted(parts.snapshots.save().items()):
        tags[tag] = {}
        for group, one in sorted(groups.items()):
            if one.tensors is not None and id(one) not in places:
                places[id(one)] = len(copies)
                copies.append((group, one))
            tags[tag][group] = HandedTag(one.version, places.get(id(one)))
    return tags, copies


def _is_own(parts: Parts, group: str, one: Stored) -> bool:
    """Whether the newcomer has these bytes in its own memory once it has taken that over."""
    return one.version is not None and one.version == parts.versions.wanted.get(group)


def _versions(parts: Parts) -> HandedVersions:
    book = parts.versions
    history = {group: tuple(ids) for group, ids in book.history.items()}
    return HandedVersions(dict(book.wanted), history, dict(book.digests))


def _record(title: str, place: Place) -> HandedRecord:
    inside: dict[str, Tensor] = {}
    try:
        values = {key: pack(key, one, inside) for key, one in values_in(place.slots, place.slot).items()}
    except ValueError as error:
        raise JoinRefused(f"the optimizer's part of {title} cannot be handed over: {error}") from error
    return HandedRecord(values, render_tensors(inside))


def _fence(because: str, suspect: frozenset[str] | None) -> HandedFence:
    return HandedFence(because, None if suspect is None else tuple(sorted(suspect)))


def _tensor(one: Tensor) -> HandedTensor:
    return HandedTensor(str(one.dtype), tuple(one.shape), tensor_sha256(one))
