"""The manifest of a checkpoint, ``checkpoint.json``: typed, and checked when it is read."""

from __future__ import annotations

import json
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from lifecycle.adapters.checkpoint import FILES, STEP_MAX, Origin

MANIFEST_BYTES_MAX: Final = 2**20
SCHEMA: Final = "adapter-lifecycle/checkpoint/1"

_Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Meta(ge=0, le=STEP_MAX)]


class FileEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a checkpoint.

    Attributes:
        sha256: of its bytes.
        size_bytes: how many there are.
    """

    sha256: _Digest
    size_bytes: _Count


class _Origin(Struct, frozen=True, forbid_unknown_fields=True):
    adapter: str
    registration_id: _Count
    step: _Count


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint is.

    Attributes:
        schema: of this file.
        adapter: whose it is.
        registration_id: the id that the adapter had in the registry of its run.
        step: optimizer steps it had done.
        resumed_from: what that registration was itself resumed from, None when it was not.
        rank: LoRA rank.
        alpha: LoRA alpha; the scale is alpha / rank.
        target_modules: target names of the modules it has.
        versions: version id of each content group when it was written; ids are never used twice.
        files: by name.
    """

    schema: str
    adapter: str
    registration_id: _Count
    step: _Count
    resumed_from: _Origin | None
    rank: Annotated[int, Meta(ge=1)]
    alpha: Annotated[float, Meta(gt=0)]
    target_modules: tuple[str, ...]
    versions: dict[str, int]
    files: dict[str, FileEntry]

    @property
    def origin(self) -> Origin:
        """Whose it is, and at which step."""
        return Origin(self.adapter, self.registration_id, self.step)

    @property
    def content(self) -> tuple[object, ...]:
        """What makes two checkpoints the same one: adapter, step and bytes, not who wrote them when."""
        return self.adapter, self.step, self.files

    def encode(self) -> bytes:
        """The file."""
        return (json.dumps(msgspec.to_builtins(self), indent=2, sort_keys=True) + "\n").encode()


def origin_entry(origin: Origin | None) -> _Origin | None:
    """An origin as a manifest holds it."""
    return None if origin is None else _Origin(origin.adapter, origin.registration_id, origin.step)


def decode_manifest(content: bytes) -> Manifest:
    """The manifest in a file.

    Raises:
        ValueError: it is none, of another schema, or does not name the four files.
    """
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"it is no manifest: {error}") from error
    if found.schema != SCHEMA:
        raise ValueError(f"its schema is {found.schema[:80]!r}; this release reads {SCHEMA!r}")
    if sorted(found.files) != sorted(FILES):
        raise ValueError(f"it names {', '.join(sorted(found.files))[:80] or 'no file'}, not {', '.join(FILES)}")
    return found
