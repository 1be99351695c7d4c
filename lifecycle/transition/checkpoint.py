"""Taking a checkpoint of an adapter from wherever its bytes are, and what of one a registration resumes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lifecycle.adapters.checkpoint import (
    STATE_NAME,
    STEP_MAX,
    VALUES_NAME,
    Origin,
    SlotRecord,
)
from lifecycle.adapters.folder import CONFIG_NAME, WEIGHTS_NAME, sha256_of
from lifecycle.adapters.given import as_name, as_path
from lifecycle.adapters.peft_config import render_config
from lifecycle.adapters.protocol import AdapterHost, DesiredAdapter
from lifecycle.adapters.reading import RegistryReader
from lifecycle.adapters.records import AdapterRecord
from lifecycle.adapters.refusals import SaveDirectoryTaken
from lifecycle.adapters.settings import resolved
from lifecycle.errors import AdapterError
from lifecycle.transition.parts import Parts
from lifecycle.weights.leases import WeightLease

if TYPE_CHECKING:
    from lifecycle.adapters.checkpoint_manifest import Manifest


def registered(host: AdapterHost | None, name: str) -> tuple[DesiredAdapter, AdapterRecord | None]:
    """A loaded adapter, and what its registry knows of it; None where the host keeps books of its own.

    Raises:
        AdapterError: it is not loaded, or no name.
    """
    if host is None or as_name(name) not in host.loaded():
        raise AdapterError(name, "it is not loaded; register it and reconcile first")
    loaded = host.loaded()[name]
    record = _record_of(host, loaded)
    return loaded, record


def _record_of(host: AdapterHost, adapter: DesiredAdapter) -> AdapterRecord | None:
    registry = getattr(host, "registry", None)
    record = registry.find(adapter.name) if isinstance(registry, RegistryReader) else None
    is_other = record is None or record.adapter.registration_id != adapter.registration_id
    return None if is_other else record


def saves_to(host: AdapterHost | None, name: str, directory: object, record: AdapterRecord | None) -> Path:
    """Where a checkpoint goes: as given, or as the adapter was registered with.

    Raises:
        AdapterError: neither says so, or it is no path.
        SaveDirectoryTaken: another adapter is registered to save there, above or below.
    """
    if directory is None and record is not None:
        directory = record.settings.save
    if directory in (None, ""):
        remedy = "give one, or register the adapter with settings that have save"
        raise AdapterError(name, f"no directory is given; {remedy}")
    registry, place = getattr(host, "registry", None), as_path("directory", directory, name)
    if isinstance(registry, RegistryReader):
        near = registry.saver_near(name, at := resolved(name, "directory", place))
        if near is not None:
            raise SaveDirectoryTaken(name, at, *near)
    return place


def checked_step(host: AdapterHost | None, name: str, step: int | None, record: AdapterRecord | None) -> int:
    """The step that a checkpoint is of: as given, or as the registry has counted.

    Raises:
        AdapterError: it is no integer of at least 0, nobody knows it, or the registry has not counted a step that the
            adapter has done.
    """
    registry = getattr(host, "registry", None)
    if step is None and record is not None and isinstance(registry, RegistryReader):
        batch = registry.uncounted_batch(record.adapter)
        if batch is not None:
            why = f"it has changed since its last count, and batch {batch}, which steps it, is not counted"
            remedy = f"call mark_batch_trained({batch}) first, or give step="
            raise AdapterError(name, f"{why}: step_{record.step} would hold the bytes of a later step; {remedy}")
    found = record.step if step is None and record is not None else step
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= STEP_MAX:
        raise AdapterError(name, f"step is {found!r}; give an integer of at least 0, or let the registry count")
    return found


def take_checkpoint(
    parts: Parts, adapter: DesiredAdapter, origin: Origin, resumed_from: Origin | None, lease: WeightLease
) -> tuple[Manifest, dict[str, bytes]]:
    """Copy everything that a checkpoint holds into host memory.

    Args:
        parts: the trainer; nobody changes the slot meanwhile.
        adapter: a loaded adapter.
        origin: whose checkpoint it is.
        resumed_from: what that registration was resumed from.
        lease: over its weights.

    Returns:
        The manifest, and the content of the four files.

    Raises:
        AdapterError: a weight is NaN or infinite, the factors are spread over ranks, or the optimizer or scheduler
            has a value that could be written with pickle only.
        UnreadableTensor: the bytes of a moment cannot be read now.
    """
    from lifecycle.adapters.files import render_tensors  # noqa: PLC0415 - needs safetensors
    from lifecycle.memory.slot_record import take_record  # noqa: PLC0415 - needs msgspec

    assert parts.adapters is not None  # the adapter is loaded in it
    rank, alpha, targets, weights = _whole_weights(parts.adapters, adapter.name, lease)
    values, tensors = _packed(adapter.name, take_record(parts.slots, adapter.slot, parts.door.own_bytes))
    contents = {
        CONFIG_NAME: render_config(rank, alpha, targets),
        WEIGHTS_NAME: render_tensors(weights),
        VALUES_NAME: values,
        STATE_NAME: render_tensors(tensors),
    }
    return _manifest(origin, resumed_from, (rank, alpha, targets), dict(parts.versions.wanted), contents), contents


def _manifest(
    origin: Origin,
    resumed_from: Origin | None,
    shape: tuple[int, float, tuple[str, ...]],
    versions: dict[str, int],
    contents: dict[str, bytes],
) -> Manifest:
    from lifecycle.adapters.checkpoint_manifest import SCHEMA, FileEntry, Manifest, origin_entry  # noqa: PLC0415 - msgspec

    rank, alpha, targets = shape
    return Manifest(
        schema=SCHEMA,
        adapter=origin.adapter,
        registration_id=origin.registration_id,
        step=origin.step,
        resumed_from=origin_entry(resumed_from),
        rank=rank,
        alpha=alpha,
        target_modules=targets,
        versions=versions,
        files={name: FileEntry(sha256_of(content), len(content)) for name, content in contents.items()},
    )


def _whole_weights(
    host: AdapterHost, name: str, lease: WeightLease
) -> tuple[int, float, tuple[str, ...], dict[str, Tensor]]:
    """The adapter under PEFT names, at its own rank, checked."""
    read: set[int] = set()

    def reading(tensor: str) -> Tensor:
        found = lease[tensor]
        read.add(found.untyped_storage().data_ptr())
        return found

    rank, alpha, targets, weights = host.export(name, reading)
    if any(one.untyped_storage().data_ptr() not in read for one in weights.values()):
        why = "its factors are spread over ranks, and so is its optimizer state, which one rank cannot write"
        raise AdapterError(name, f"{why}; save_adapter() writes its weights")
    broken = [key for key, one in weights.items() if not bool(torch.isfinite(one).all())]
    if broken:
        why = f"{broken[0]} holds NaN or infinity; such a checkpoint could not be resumed"
        raise AdapterError(name, f"{why}, and would hide the last good one")
    return rank, alpha, targets, dict(weights)


def _packed(name: str, record: SlotRecord) -> tuple[bytes, dict[str, Tensor]]:
    from lifecycle.adapters.checkpoint_values import pack  # noqa: PLC0415 - needed only where a checkpoint is written

    tensors = dict(record.tensors)
    try:
        values = {key: pack(key, value, tensors) for key, value in record.values.items()}
    except ValueError as error:
        raise AdapterError(name, f"it cannot be saved: {error}") from error
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode(), tensors


def resumed_record(parts: Parts, adapter: DesiredAdapter) -> SlotRecord | None:
    """What a registration that resumes puts into its slot besides the weights; None for one that does not.

    Raises:
        AdapterError: the checkpoint is another one by now, or does not fit the slot.
    """
    assert parts.adapters is not None  # somebody desires the adapter
    record = _record_of(parts.adapters, adapter)
    if record is None or record.source is None or record.source.checkpoint is None:
        return None
    from lifecycle.adapters.checkpoint_read import read_record  # noqa: PLC0415 - needs safetensors and msgspec
    from lifecycle.memory.slot_record import why_unfit  # noqa: PLC0415

    source = record.source.checkpoint
    found = read_record(adapter.name, source)
    why = why_unfit(parts.slots, adapter.slot, found)
    if why:
        remedy = f"or register it with path={str(source.path)!r}, which takes the weights alone"
        raise AdapterError(adapter.name, f"{source.path.name} does not fit slot {adapter.slot}: {why}; {remedy}")
    return found
