"""A registry in a file: what stands in it, and how it is written and read.

The file is JSON: a schema, the SHA-256 of the rest as it stands there, and the rest. Tensors are not in it.
Nothing in a file is believed before it is checked: types here, all else in :mod:`.saved_checks`.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct

from lifecycle.adapters.checkpoint import CheckpointSource, Origin
from lifecycle.adapters.custody import why_lost
from lifecycle.adapters.folder import FileIdentity
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import AdapterRecord, BatchRecord, RegistrySnapshot
from lifecycle.adapters.refusals import RegistryFileError
from lifecycle.adapters.saved_checks import why_wrong
from lifecycle.adapters.saved_file import read_file, write_file
from lifecycle.adapters.settings import COUNT_MAX, AdapterSettings
from lifecycle.adapters.sources import AdapterSource
from states.adapters import AdapterState

SCHEMA: Final = "adapter-lifecycle/registry/1"
FILE_BYTES_MAX: Final = 2**28

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Positive = Annotated[int, Meta(ge=1, le=COUNT_MAX)]


class _Adapter(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    registration_id: Positive
    slot: Count


class _Identity(Struct, frozen=True, forbid_unknown_fields=True):
    place: str
    config_sha256: str
    weights_sha256: str


class _Origin(Struct, frozen=True, forbid_unknown_fields=True):
    adapter: str
    registration_id: Count
    step: Count


class _Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    origin: _Origin
    manifest_sha256: str


class _Source(Struct, frozen=True, forbid_unknown_fields=True):
    path: str | None
    rank: Positive | None
    alpha: float | None
    target_modules: tuple[str, ...] | None
    seed: Count
    identity: _Identity | None
    checkpoint: _Checkpoint | None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and (self.path is None or self.identity is None):
            raise ValueError("a checkpoint has a directory")


class _Settings(Struct, frozen=True, forbid_unknown_fields=True):
    save: str | None
    num_step: Positive | None
    num_epoch: Positive | None
    rollout_batch_size: Positive | None
    n_samples_per_prompt: Positive | None
    trainable: bool


class SavedRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A registration, in plain values."""

    adapter: _Adapter
    state: AdapterState
    source: _Source | None
    lost: str
    settings: _Settings
    step: Count
    start_step: Count
    source_step: Count
    accumulated_groups: Count
    num_step: Positive | None
    resumed_from: _Origin | None


class SavedBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch, in plain values."""

    rollout_id: Count
    groups: tuple[tuple[_Adapter, Positive], ...]
    steps: tuple[str, ...]


class _Registry(Struct, frozen=True, forbid_unknown_fields=True):
    slot_versions: Annotated[tuple[Count, ...], Meta(min_length=1)]
    next_registration_id: Positive
    adapters: tuple[SavedRecord, ...]
    completed: tuple[SavedRecord, ...]
    batches: tuple[SavedBatch, ...]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    sha256: str
    registry: Raw


def write_registry(path: Path, snapshot: RegistrySnapshot) -> None:
    """Write a registry, whole or not at all.

    Raises:
        RegistryFileError: it cannot be written.
    """
    registry = {
        "slot_versions": snapshot.slot_versions,
        "next_registration_id": snapshot.next_registration_id,
        "adapters": [_for_file(one) for one in snapshot.adapters.values()],
        "completed": [_for_file(one) for one in snapshot.completed],
        "batches": snapshot.batches,
    }
    body = msgspec.json.encode(registry)
    file = _File(SCHEMA, hashlib.sha256(body).hexdigest(), Raw(body))
    write_file(path, msgspec.json.encode(file) + b"\n")


def read_registry(path: Path) -> RegistrySnapshot:
    """Read what :func:`write_registry` wrote.

    Raises:
        RegistryFileError: the file is missing, damaged, of another schema, or contradicts itself.
    """
    content = read_file(path, FILE_BYTES_MAX)
    try:
        file = msgspec.json.decode(content, type=_File)
        if file.schema != SCHEMA:
            raise RegistryFileError(path, f"its schema is {file.schema[:80]!r}, this release reads {SCHEMA!r}")
        if hashlib.sha256(bytes(file.registry)).hexdigest() != file.sha256:
            raise RegistryFileError(path, "its content is not what was written; restore it from a copy")
        registry = msgspec.json.decode(file.registry, type=_Registry)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RegistryFileError(path, f"it is truncated or malformed: {error}") from error
    live = [record_of(one) for one in registry.adapters]
    snapshot = _snapshot(registry, live)
    wrong = why_wrong(snapshot, live)
    if wrong:
        raise RegistryFileError(path, f"it contradicts itself: {wrong}")
    return snapshot


def _for_file(record: AdapterRecord) -> dict[str, Any]:
    source, lost = record.source, why_lost(record)
    if source is not None and source.tensors is not None:
        lost = "it was registered with tensors in memory, which a saved registry does not hold"
    return plain_record(record, None if lost else source, lost)


def plain_record(record: AdapterRecord, source: AdapterSource | None, lost: str) -> dict[str, Any]:
    """A registration as a :class:`SavedRecord` has it.

    Args:
        record: the registration.
        source: where its tensors can be had from then, without those that are in memory.
        lost: why they cannot; empty when they can.
    """
    settings = record.settings
    plain = {name: getattr(record, name) for name in SavedRecord.__struct_fields__}
    plain["lost"], plain["source"] = lost, None if source is None else _plain_source(source)
    plain["settings"] = {name: getattr(settings, name) for name in _Settings.__struct_fields__}
    plain["settings"]["save"] = None if settings.save is None else str(settings.save)
    return plain


def _plain_source(source: AdapterSource) -> dict[str, Any]:
    plain = {name: getattr(source, name) for name in _Source.__struct_fields__}
    if source.checkpoint is not None:
        plain["checkpoint"] = _Checkpoint(_origin(source.checkpoint.origin), source.checkpoint.manifest_sha256)
    return plain | {"path": None if source.path is None else str(source.path.absolute())}


def _origin(given: Origin) -> _Origin:
    return _Origin(given.adapter, given.registration_id, given.step)


def _snapshot(saved: _Registry, live: list[AdapterRecord]) -> RegistrySnapshot:
    taken = {one.adapter.slot for one in live}
    return RegistrySnapshot(
        adapters={one.adapter.name: one for one in live},
        completed=tuple(record_of(one) for one in saved.completed),
        slot_versions=saved.slot_versions,
        free_slots=tuple(slot for slot in range(len(saved.slot_versions)) if slot not in taken),
        next_registration_id=saved.next_registration_id,
        batches=tuple(map(batch_of, saved.batches)),
    )


def batch_of(saved: SavedBatch) -> BatchRecord:
    """The batch that these values are of."""
    return BatchRecord(saved.rollout_id, tuple((_adapter(who), count) for who, count in saved.groups), saved.steps)


def _adapter(saved: _Adapter) -> DesiredAdapter:
    return DesiredAdapter(saved.name, saved.registration_id, saved.slot)


def record_of(saved: SavedRecord) -> AdapterRecord:
    """The registration that these values are of."""
    settings = AdapterSettings(**msgspec.structs.asdict(saved.settings))
    return AdapterRecord(
        adapter=_adapter(saved.adapter),
        state=saved.state,
        source=None if saved.source is None else _source(saved.source),
        settings=settings if settings.save is None else replace(settings, save=Path(settings.save)),
        step=saved.step,
        start_step=saved.start_step,
        source_step=saved.source_step,
        accumulated_groups=saved.accumulated_groups,
        num_step=saved.num_step,
        lost=saved.lost,
        resumed_from=None if saved.resumed_from is None else Origin(**msgspec.structs.asdict(saved.resumed_from)),
    )


def _source(saved: _Source) -> AdapterSource:
    identity = None if saved.identity is None else FileIdentity(**msgspec.structs.asdict(saved.identity))
    path, checkpoint = None if saved.path is None else Path(saved.path), None
    if saved.checkpoint is not None:
        assert path is not None  # see above
        assert identity is not None
        origin = Origin(**msgspec.structs.asdict(saved.checkpoint.origin))
        checkpoint = CheckpointSource(path, origin, saved.checkpoint.manifest_sha256, identity)
    given = msgspec.structs.asdict(saved)
    return AdapterSource(**given | {"path": path, "identity": identity, "checkpoint": checkpoint})
