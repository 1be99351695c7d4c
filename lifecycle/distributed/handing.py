"""What a new process needs to take a lost rank's place: found in a trainer, and told in chunks.

Names, shapes and digests are the same on every rank that admits: one of them tells the bytes, the others compare.
The frozen base is not told. Its digest is, and the newcomer has loaded it itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import torch
from torch import Tensor

from lifecycle.adapters.custody import Custody
from lifecycle.adapters.files import render_tensors
from lifecycle.adapters.protocol import AdapterHost
from lifecycle.distributed.errors import JoinRefused
from lifecycle.memory.slot_record import tensors_in
from lifecycle.memory.slot_state import SlotState
from lifecycle.transition.parts import Parts
from lifecycle.weights.chunks import as_bytes, pieces
from lifecycle.weights.digests import digest
from states import BUFFERS, FROZEN_BASE, TRAINABLE_BASE
from states.agreement_digest import digest_of

CHUNK_BYTES: Final = 64 * 2**20
"""What is told at once; a larger tensor is told in parts."""

BASE: Final = "base"
_FIRST: Final = 0
_CONFIG: Final = ("model", "ref", "verify", "frozen_buffers")
"""What ranks must have alike of the configuration besides what guards look at. Folders and budgets are their own."""


@dataclass(frozen=True)
class Place:
    """Where the optimizer's part of a slot, or of the trainable base, is found.

    Attributes:
        slots: knows it.
        slot: under which number.
    """

    slots: SlotState
    slot: int


@dataclass(frozen=True)
class Own:
    """What lies in a trainer's own memory and is handed over. The same names on every rank.

    Attributes:
        tensors: name to the tensor's name in the trainer, and the tensor: weights, buffers, moments, main copies.
        records: the optimizer's parts, by ``slot N`` and ``base``.
    """

    tensors: Mapping[str, tuple[str, Tensor]]
    records: Mapping[str, Place]

    def bytes_of(self, parts: Parts) -> dict[str, Tensor]:
        """The same tensors where their bytes are: live, or in the saver's backup. Valid as long as no event runs.

        Raises:
            UnreadableTensor: one is paused where it cannot be read.
        """
        return {key: parts.door.own_bytes(name, one) for key, (name, one) in self.tensors.items()}


def own_of(parts: Parts, slots: Iterable[int]) -> Own:
    """What a trainer with these slots loaded hands over from its own memory. Reads no bytes."""
    tensors: dict[str, tuple[str, Tensor]] = {}
    for group in (TRAINABLE_BASE, BUFFERS):
        tensors |= {f"{group}/{name}": (name, one) for name, one in parts.inventory.base.get(group, {}).items()}
    records = {}
    if names := tuple(parts.inventory.base.get(TRAINABLE_BASE, ())):
        records[BASE] = Place(SlotState(parts.moments, {_FIRST: names}, {}), _FIRST)
    for slot in slots:
        assert parts.adapters is not None  # it is loaded
        held = parts.adapters.slot_tensors(slot)
        tensors |= {f"slot {slot}/{name}": (name, one) for name, one in held.items()}
        records[f"slot {slot}"] = Place(parts.slots, slot)
    for title, place in records.items():
        tensors |= {f"{title}#{key}": found for key, found in tensors_in(place.slots, place.slot).items()}
    return Own(tensors, records)


def loaded_own(parts: Parts) -> Own:
    """What this trainer hands over from its own memory, as it is loaded now. Reads no bytes."""
    return own_of(parts, sorted(one.slot for one in parts.adapters.loaded().values()) if parts.adapters else ())


def registry_of(parts: Parts) -> Custody | None:
    """The registry that the host serves; None where it keeps books of its own, which nobody can hand over."""
    registry = getattr(parts.adapters, "registry", None)
    return registry if isinstance(registry, Custody) else None


def is_split(host: AdapterHost | None) -> bool:
    """Whether slots hold parts of factors, of which other ranks have the rest."""
    return isinstance(host, SplitsFactors) and host.is_split


@runtime_checkable
class SplitsFactors(Protocol):
    """A host whose slots may hold parts of factors."""

    @property
    def is_split(self) -> bool:
        """Whether they do."""


def alike_of(parts: Parts) -> dict[str, str]:
    """What the newcomer must have alike, by name, in words: configuration, slots, and the frozen base's bytes."""
    config = parts.config
    settings = config.facts_settings() | {name: getattr(config, name) for name in _CONFIG}
    found = {name: repr(value) for name, value in settings.items()}
    found["adapter registry"] = "the host's own books" if registry_of(parts) is None else "an AdapterRegistry"
    found["number of slots"] = str(0 if parts.adapters is None else parts.adapters.slots)
    for group, held in parts.inventory.base.items():
        shapes = {name: f"{one.dtype} {tuple(one.shape)}" for name, one in held.items()}
        found[f"layout of {group}"] = f"{len(shapes)} tensors, digest {digest_of(shapes).hex()[:16]}"
    if FROZEN_BASE in parts.inventory.base:
        found[FROZEN_BASE] = f"SHA-256 {_base_digest(parts)}"
    return found


def _base_digest(parts: Parts) -> str:
    version = parts.versions.wanted[FROZEN_BASE]
    known = parts.versions.digests.get(version)
    if known is None:
        known = parts.versions.digests[version] = digest(parts.own_bytes(FROZEN_BASE))
    return known


def unreadable_of(parts: Parts, own: Own) -> tuple[str, ...]:
    """What would have to be handed over and cannot be read now. Reads no bytes."""
    door, versions = parts.door, parts.versions
    found = [f"{name} is paused without a host backup" for name, one in own.tensors.values()
             if not (door.is_live(one) or door.has_backup(one))]  # fmt: skip
    found += [f"the newest {group} is not in the trainer's own memory" for group, version in versions.wanted.items()
              if group != FROZEN_BASE and versions.region.get(group) != version]  # fmt: skip
    if parts.moments.unnamed():
        found.append("an optimizer steps a tensor that is neither a parameter nor declared as a main copy")
    base = parts.inventory.base.get(FROZEN_BASE, {})
    if base and versions.wanted[FROZEN_BASE] not in versions.digests:
        found += [f"{name} is paused without a host backup" for name, one in base.items()
                  if not (door.is_live(one) or door.has_backup(one))]  # fmt: skip
    return tuple(found)


def chunked(tensors: Iterable[Tensor], chunk_bytes: int = CHUNK_BYTES) -> Iterator[list[Tensor]]:
    """Views of the tensors that follow each other, in lists of at most *chunk_bytes* or one view.

    Where the cuts are depends on shapes and dtypes alone, so that every rank cuts alike.
    """
    held: list[Tensor] = []
    held_bytes = 0
    for tensor in tensors:
        for piece in pieces(tensor.detach(), chunk_bytes):
            size_bytes = piece.numel() * piece.element_size()
            if held and held_bytes + size_bytes > chunk_bytes:
                yield held
                held, held_bytes = [], 0
            held.append(piece)
            held_bytes += size_bytes
    if held:
        yield held


def render(chunk: list[Tensor]) -> bytes:
    """What is told of a chunk: safetensors of the bytes of each view, in row-major order."""
    return render_tensors({str(number): as_bytes(one.cpu().contiguous()) for number, one in enumerate(chunk)})


def fill(chunk: list[Tensor], content: bytes) -> None:
    """Write what was told into the same views of this rank's tensors.

    Raises:
        JoinRefused: it is not what was to come. Nothing was written.
    """
    from safetensors import SafetensorError  # noqa: PLC0415 - an extra, needed only where a rank joins
    from safetensors.torch import load  # noqa: PLC0415

    try:
        found = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise JoinRefused(f"a chunk of what was handed over is malformed: {error}; admit again") from error
    sizes = {str(number): one.numel() * one.element_size() for number, one in enumerate(chunk)}
    if sizes != {name: one.numel() for name, one in found.items() if one.dtype is torch.uint8}:
        raise JoinRefused("a chunk of what was handed over is another one than was to come; admit again")
    with torch.no_grad():
        for number, one in enumerate(chunk):
            # A copy of its own: the bytes may begin anywhere in the file, a wider type may not.
            one.copy_(found[str(number)].clone().view(one.dtype).view(one.shape))
