"""A new process that takes a lost rank's place: what it is told becomes its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor

from lifecycle.adapters.checkpoint import SlotRecord
from lifecycle.adapters.checkpoint_values import unpack
from lifecycle.adapters.files import parse_weights
from lifecycle.adapters.protocol import DesiredAdapter, PreparedAdapter
from lifecycle.distributed.errors import JoinRefused
from lifecycle.distributed.handed import COPY, Book, decode, flat
from lifecycle.distributed.handing import Place, alike_of, chunked, fill, own_of, registry_of
from lifecycle.distributed.sharing import hear_registry
from lifecycle.memory.slot_record import put_record, tensors_in, why_unfit
from lifecycle.transition.fences import Fence
from lifecycle.transition.gather import content_facts
from lifecycle.transition.parts import Parts, Request
from lifecycle.transition.ranks import ALONE, Ranks
from lifecycle.transition.records import LogStanding
from lifecycle.transition.runner import Runner
from lifecycle.weights.digests import tensor_sha256
from lifecycle.weights.stored import Stored, host_copy
from lifecycle.weights.versions import HISTORY_MAX
from states import FROZEN_BASE, OFFLOADED, TrainerEvent, TrainerState
from states.admission import in_words, unlike
from states.agreement_digest import plain
from states.joining import Assembled


class Taking:
    """What one newcomer takes over. If any of it fails, the trainer is not built.

    Args:
        parts: the trainer; awake, its memory laid out, nothing loaded.
        ranks: the others.
        met: what came of the meeting.
    """

    def __init__(self, parts: Parts, ranks: Ranks, met: Assembled) -> None:
        self._parts = parts
        self._ranks = ranks
        self._met = met
        self.book = decode(self._hear())

    def receive(self) -> None:
        """Compare what must be alike, then take over bytes, versions, adapters and copies.

        Raises:
            JoinRefused: this rank is not like the others, or bytes have not arrived as they were told.
            RanksFailed: another rank failed meanwhile.
        """
        parts, book = self._parts, self.book
        _refuse_unlike(parts, book)
        own = own_of(parts, sorted(one.slot for one in book.adapters))
        records = {title: _record(book, title, place) for title, place in own.records.items()}
        copies = _room_for_copies(book)
        into = own.bytes_of(parts) | copies
        _refuse_other_tensors(book, into)
        if (registry := registry_of(parts)) is not None:
            registry.adopt(hear_registry(self._ranks, self._met.giver, {}))
        for chunk in chunked(into[name] for name in book.tensors):
            fill(chunk, self._hear())
        _compare(book, into)
        _install(parts, book)
        for title, place in own.records.items():
            put_record(place.slots, place.slot, records[title], _is_written)
        _take_versions(parts, book, self._met.newest)
        _take_snapshots(parts, book, copies)
        for engine, one in book.fences.items():
            suspect = None if one.suspect is None else frozenset(one.suspect)
            parts.runtime.engines.fences[engine] = Fence(one.because, suspect)

    def settle(self, runner: Runner) -> None:
        """Go to the state that the others are in, without asking them, and let the log go on where theirs stands.

        Raises:
            JoinRefused: it does not stand there as the others do.
        """
        parts, book = self._parts, self.book
        here = Runner(parts, runner.machine, runner.recorder, ALONE)
        if book.state is not TrainerState.AWAKE:
            here.send(TrainerEvent.SLEEP, Request())
        if book.state in OFFLOADED:
            here.send(TrainerEvent.OFFLOAD, Request())
        runner.moved.update(here.moved)
        stands = {one.group: plain(one) for one in content_facts(parts)}
        if differences := unlike(flat(stands), flat(book.contents)):
            raise JoinRefused(f"it took everything over and does not stand as the others do: {in_words(differences)}")
        runner.recorder.go_on(LogStanding(book.log.transition, book.log.told, book.log.since_checkpoint))

    def _hear(self) -> bytes:
        return self._ranks.told(None, by=self._met.giver)


def _refuse_unlike(parts: Parts, book: Book) -> None:
    held = sorted(parts.adapters.loaded()) if parts.adapters is not None else []
    if held or parts.snapshots.backup_tags:
        told = ", ".join((*held, *parts.snapshots.backup_tags))
        raise JoinRefused(f"it holds {told} already; join with empty slots and an empty SnapshotStore")
    if differences := unlike(alike_of(parts), book.alike):
        remedy = "give it the model, base and configuration of the others"
        raise JoinRefused(f"{in_words(differences)}; {remedy}")


def _record(book: Book, title: str, place: Place) -> SlotRecord:
    """The optimizer's part, with this rank's own tensors, which are filled before it is put."""
    handed = book.records.get(title)
    if handed is None:
        raise JoinRefused(f"nothing was handed over for {title}; give it the model of the others")
    try:
        inside = parse_weights(title, "its values", handed.inside, empty_ok=True)
        values = {key: unpack(one, inside) for key, one in handed.values.items()}
    except ValueError as error:
        raise JoinRefused(f"what was handed over for {title} is malformed: {error}; admit again") from error
    tensors = {key: one for key, (_, one) in tensors_in(place.slots, place.slot).items()}
    found = SlotRecord(values, tensors)
    if why := why_unfit(place.slots, place.slot, found):
        raise JoinRefused(f"the optimizer of {title} is another one: {why}")
    return found


def _is_written(_name: str, _tensor: Tensor, _value: Tensor) -> None:
    """The bytes came before."""


def _room_for_copies(book: Book) -> dict[str, Tensor]:
    """New host memory for what tags of snapshots hold, pinned where CUDA is available."""
    found = {}
    for name, one in book.tensors.items():
        if name.startswith(COPY):
            dtype = getattr(torch, one.dtype.removeprefix("torch."), None)
            if not isinstance(dtype, torch.dtype):
                raise JoinRefused(f"{name} is {one.dtype}, which this torch does not have; run the torch of the others")
            found[name] = torch.empty(one.shape, dtype=dtype, pin_memory=torch.cuda.is_available())
    return found


def _refuse_other_tensors(book: Book, into: Mapping[str, Tensor]) -> None:
    here = {name: f"{one.dtype} {tuple(one.shape)}" for name, one in into.items()}
    there = {name: f"{one.dtype} {tuple(one.shape)}" for name, one in book.tensors.items()}
    if differences := unlike(here, there):
        raise JoinRefused(f"{in_words(differences)}; give it the model, slots and optimizers of the others")


def _compare(book: Book, into: Mapping[str, Tensor]) -> None:
    damaged = [name for name, one in book.tensors.items() if tensor_sha256(into[name]) != one.sha256]
    if damaged:
        raise JoinRefused(f"{damaged[0]} has not arrived as it was told ({len(damaged)} in all); admit again")


def _install(parts: Parts, book: Book) -> None:
    for one in book.adapters:
        assert parts.adapters is not None  # there are as many slots as there
        desired = DesiredAdapter(one.name, one.registration_id, one.slot)
        parts.adapters.install(PreparedAdapter(desired, one.rank, one.alpha, one.target_modules, {}))


def _take_versions(parts: Parts, book: Book, newest: int) -> None:
    """All ids are those of the others. What this rank gave its empty trainer since they met, nobody has heard of."""
    own, told = parts.versions, book.versions
    own.newest = newest
    own.wanted, own.region, own.retained = dict(told.wanted), dict(told.wanted), {}
    own.digests = dict(told.digests)
    own.history = {group: deque(ids, maxlen=HISTORY_MAX) for group, ids in told.history.items()}
    file, _ = parts.file.held()
    if file is not None:
        parts.file.hold((file, own.wanted[FROZEN_BASE]))


def _take_snapshots(parts: Parts, book: Book, copies: Mapping[str, Tensor]) -> None:
    stored = []
    for number, one in enumerate(book.copies):
        if one.is_own:
            held = {name: host_copy(held) for name, held in parts.own_bytes(one.group).items()}
        else:
            prefix = f"{COPY}{number}/"
            held = {name.removeprefix(prefix): held for name, held in copies.items() if name.startswith(prefix)}
        stored.append(Stored(one.version, held))
    parts.snapshots.load({
        tag: {group: Stored(one.version, None) if one.copy is None else stored[one.copy] for group, one in held.items()}
        for tag, held in book.tags.items()
    })  # fmt: skip
