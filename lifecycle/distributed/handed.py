"""What is told of a trainer when a new process takes a lost rank's place: typed, and checked when it is read.

JSON, with the SHA-256 of the rest before it, and a digest of each tensor that follows. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from lifecycle.distributed.errors import JoinRefused
from states import TrainerState

SCHEMA: Final = "adapter-lifecycle/handed/1"

COPY: Final = "copy "
"""Tensors of the n-th copy are told as ``copy n/NAME``."""

_Count = Annotated[int, Meta(ge=0)]
_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class HandedTensor(Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor whose bytes follow.

    Attributes:
        dtype: such as ``torch.float32``.
        shape: its sizes.
        sha256: of its bytes in row-major order.
    """

    dtype: str
    shape: tuple[_Count, ...]
    sha256: _Digest


class HandedAdapter(Struct, frozen=True, forbid_unknown_fields=True):
    """An adapter that is loaded.

    Attributes:
        name: of the adapter.
        registration_id: of its registration.
        slot: that it is in.
        rank: its own LoRA rank.
        alpha: its own LoRA alpha.
        target_modules: the modules it has.
    """

    name: str
    registration_id: int
    slot: _Count
    rank: Annotated[int, Meta(ge=1)]
    alpha: float
    target_modules: tuple[str, ...]


class HandedRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What an optimizer and a scheduler keep of a slot, or of the base, and is no tensor of its own.

    Attributes:
        values: as :mod:`lifecycle.adapters.checkpoint_values` packs them.
        inside: the tensors that stand in the values, as safetensors.
    """

    values: dict[str, Any]
    inside: bytes


class HandedCopy(Struct, frozen=True, forbid_unknown_fields=True):
    """A content group that tags of snapshots hold.

    Attributes:
        group: which.
        version: of its bytes.
        is_own: the trainer's own memory holds the same bytes, so that they are copied from there.
    """

    group: str
    version: int | None
    is_own: bool


class HandedTag(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tag has of a group.

    Attributes:
        version: of its bytes.
        copy: the place of its bytes in :attr:`Book.copies`, None where they are borrowed.
    """

    version: int | None
    copy: _Count | None


class HandedFence(Struct, frozen=True, forbid_unknown_fields=True):
    """Why an engine may not serve; see :class:`lifecycle.transition.fences.Fence`."""

    because: str
    suspect: tuple[str, ...] | None


class HandedVersions(Struct, frozen=True, forbid_unknown_fields=True):
    """The version book; see :class:`lifecycle.weights.versions.VersionBook`."""

    wanted: dict[str, int]
    history: dict[str, tuple[int, ...]]
    digests: dict[int, _Digest]


class HandedLog(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log stands, so that the newcomer's goes on with the same numbers and versions."""

    transition: _Count
    told: dict[str, int]
    since_checkpoint: _Count


class Book(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is handed over, but for the tensors' bytes and the registry.

    Attributes:
        alike: what the newcomer must have alike, by name, in words.
        state: where the trainer is.
        contents: the shared facts of every content group, which the newcomer must come to.
        copies: bytes that tags hold, each once.
        records: of each loaded slot (``slot N``), and of the trainable base (``base``).
        tensors: what follows, in this order.
    """

    alike: dict[str, str]
    state: TrainerState
    contents: dict[str, dict[str, Any]]
    versions: HandedVersions
    adapters: tuple[HandedAdapter, ...]
    records: dict[str, HandedRecord]
    tags: dict[str, dict[str, HandedTag]]
    copies: tuple[HandedCopy, ...]
    fences: dict[str, HandedFence]
    tensors: dict[str, HandedTensor]
    log: HandedLog

    def __post_init__(self) -> None:
        """Refuse a tag that names bytes which are not there."""
        named = {one.copy for groups in self.tags.values() for one in groups.values() if one.copy is not None}
        if named != set(range(len(self.copies))):
            raise ValueError("tags and copies do not go together")

    def compared(self) -> dict[str, object]:
        """What all ranks that admit hold alike, by name: everything but the numbers of their logs."""
        plain = msgspec.to_builtins(self)
        del plain["log"], plain["versions"]["digests"]  # who has compared more knows more of them
        return flat(plain)


class _Wrapped(Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    sha256: str
    book: Raw


def encode(book: Book) -> bytes:
    """The book as it is told."""
    body = msgspec.json.encode(book)
    return msgspec.json.encode(_Wrapped(SCHEMA, hashlib.sha256(body).hexdigest(), Raw(body)))


def decode(content: bytes) -> Book:
    """The book that was told.

    Raises:
        JoinRefused: it is none, or was damaged on its way.
    """
    try:
        wrapped = msgspec.json.decode(content, type=_Wrapped)
        body = bytes(wrapped.book)
        if wrapped.schema != SCHEMA:
            raise JoinRefused(f"it speaks {wrapped.schema}, and this rank {SCHEMA}; run one version of this library")
        if hashlib.sha256(body).hexdigest() != wrapped.sha256:
            raise JoinRefused("what was handed over is damaged: it has another SHA-256 than was told; admit again")
        return msgspec.json.decode(body, type=Book)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JoinRefused(f"what was handed over is malformed: {error}; run one version of this library") from error


def flat(held: Mapping[str, Any], path: str = "") -> dict[str, object]:
    """The values of mappings inside of mappings, by the way to them."""
    found: dict[str, object] = {}
    for key, value in held.items():
        where = f"{path}.{key}" if path else str(key)
        found |= flat(value, where) if isinstance(value, Mapping) and value else {where: value}
    return found
