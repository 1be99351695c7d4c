"""A registry as one rank tells it to others: JSON, and safetensors of the tensors that registrations were given.

Unlike a file it has everything, and what the others hold already is told by its id alone. Nothing in it is believed
before it is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct
from torch import Tensor

from lifecycle.adapters.checkpoint import Skipped
from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.saved import Count, Positive, SavedBatch, SavedRecord, batch_of, plain_record, record_of
from lifecycle.adapters.saved_checks import why_wrong
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterState

TOLD_BYTES_MAX: Final = 2**28
"""The most that a registry takes, without tensors."""

_Passed = tuple[tuple[str, str], ...]


class _Told(SavedRecord, frozen=True, forbid_unknown_fields=True):
    released_from: AdapterState | None
    changed: bool
    passed_over: _Passed
    tensors: Literal["none", "follow", "as before"]


class _Registry(Struct, frozen=True, forbid_unknown_fields=True):
    slot_versions: Annotated[tuple[Count, ...], Meta(min_length=1)]
    next_registration_id: Positive
    adapters: tuple[_Told | Positive, ...]
    completed: tuple[_Told | Positive, ...]
    batches: tuple[SavedBatch, ...]
    uncounted: tuple[Positive, ...]
    unaccounted: tuple[Positive, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """A registry as it was told.

    Attributes:
        snapshot: what it holds; sources whose tensors are awaited lack them yet.
        awaits: the registrations whose tensors are told next, by id, in this order.
    """

    snapshot: RegistrySnapshot
    awaits: tuple[int, ...]

    def with_tensors(self, given: Mapping[int, Mapping[str, Tensor]]) -> RegistrySnapshot:
        """The same with these tensors, by registration id; they become the registry's."""
        adapters = dict(self.snapshot.adapters)
        for name, one in adapters.items():
            if one.adapter.registration_id in given and one.source is not None:
                adapters[name] = replace(one, source=replace(one.source, tensors=given[one.adapter.registration_id]))
        return replace(self.snapshot, adapters=adapters)


def records_of(snapshot: RegistrySnapshot) -> dict[int, AdapterRecord]:
    """Every registration of a registry, by id."""
    return {one.adapter.registration_id: one for one in (*snapshot.adapters.values(), *snapshot.completed)}


def render_registry(snapshot: RegistrySnapshot, known: Mapping[int, AdapterRecord]) -> tuple[bytes, tuple[int, ...]]:
    """What is told of a registry.

    Args:
        snapshot: the registry.
        known: registrations that all hearers hold, by id; one that is this very object is told by its id.

    Returns:
        The bytes, and the ids of the registrations whose tensors have to follow, sorted.

    Raises:
        ConfigError: it takes more than 256 MiB.
    """
    follows: list[int] = []

    def plain(records: Iterable[AdapterRecord]) -> list[dict[str, Any] | int]:
        return [_plain(one, known, follows) for one in records]

    told = {
        "slot_versions": snapshot.slot_versions,
        "next_registration_id": snapshot.next_registration_id,
        "adapters": plain(snapshot.adapters.values()),
        "completed": plain(snapshot.completed),
        "batches": snapshot.batches,
        "uncounted": snapshot.uncounted,
        "unaccounted": snapshot.unaccounted,
    }
    content = msgspec.json.encode(told)
    if len(content) > TOLD_BYTES_MAX:
        raise ConfigError(f"the registry takes {len(content)} bytes to tell, at most {TOLD_BYTES_MAX} can be right")
    return content, tuple(sorted(follows))


def read_registry_told(content: bytes, known: Mapping[int, AdapterRecord]) -> Heard:
    """What :func:`render_registry` told.

    Args:
        content: the bytes.
        known: the registrations that were told before, by id.

    Raises:
        ConfigError: it is malformed or contradicts itself.
    """
    if len(content) > TOLD_BYTES_MAX:
        raise _malformed(f"it has {len(content)} bytes, at most {TOLD_BYTES_MAX} can be right")
    try:
        told = msgspec.json.decode(content, type=_Registry)
        live = [_record(one, known) for one in told.adapters]
        completed = tuple(_record(one, known) for one in told.completed)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _malformed(str(error)) from error
    taken = {one.adapter.slot for one in live}
    snapshot = RegistrySnapshot(
        adapters={one.adapter.name: one for one in live},
        completed=completed,
        slot_versions=told.slot_versions,
        free_slots=tuple(slot for slot in range(len(told.slot_versions)) if slot not in taken),
        next_registration_id=told.next_registration_id,
        batches=tuple(map(batch_of, told.batches)),
        uncounted=told.uncounted,
        unaccounted=told.unaccounted,
    )
    if wrong := why_wrong(snapshot, live):
        raise _malformed(f"it contradicts itself: {wrong}")
    awaits = [
        one.adapter.registration_id for one in told.adapters if isinstance(one, _Told) and one.tensors == "follow"
    ]
    return Heard(snapshot, tuple(sorted(awaits)))


def render_tensors_told(tensors: Mapping[str, Tensor]) -> bytes:
    """What is told of the tensors that a registration was given; they are only read."""
    from lifecycle.adapters.files import render_tensors  # noqa: PLC0415 - needs safetensors

    return render_tensors(tensors)


def read_tensors_told(registration_id: int, content: bytes) -> dict[str, Tensor]:
    """What :func:`render_tensors_told` told, on the CPU.

    Raises:
        ConfigError: it is malformed.
    """
    from lifecycle.adapters.files import parse_weights  # noqa: PLC0415 - needs safetensors

    try:
        return parse_weights(f"registration {registration_id}", "what was told of its tensors", content)
    except AdapterError as error:
        raise _malformed(str(error)) from error


def _malformed(why: str) -> ConfigError:
    return ConfigError(f"what was told of the registry is malformed: {why}. Run the same library on every rank")


def _plain(record: AdapterRecord, known: Mapping[int, AdapterRecord], follows: list[int]) -> dict[str, Any] | int:
    registration_id, source = record.adapter.registration_id, record.source
    if known.get(registration_id) is record:
        return registration_id
    tensors = _tensors_of(record)
    how = "none" if tensors is None else "as before"
    if tensors is not None and tensors is not _tensors_of(known.get(registration_id)):
        how = "follow"
        follows.append(registration_id)
    skipped = source.checkpoint.skipped if source is not None and source.checkpoint is not None else ()
    return plain_record(record, source, record.lost) | {
        "released_from": record.released_from,
        "changed": record.changed,
        "passed_over": tuple((one.name, one.why) for one in skipped),
        "tensors": how,
    }


def _record(told: _Told | int, known: Mapping[int, AdapterRecord]) -> AdapterRecord:
    if isinstance(told, int):
        if told not in known:
            raise _malformed(f"registration {told} is said to be known, and was never told")
        return known[told]
    record = replace(record_of(told), released_from=told.released_from, changed=told.changed)
    source = record.source
    if source is None:
        return record
    if source.checkpoint is not None:
        skipped = tuple(Skipped(name, why) for name, why in told.passed_over)
        source = replace(source, checkpoint=replace(source.checkpoint, skipped=skipped))
    if told.tensors == "as before":
        tensors = _tensors_of(known.get(told.adapter.registration_id))
        if tensors is None:
            raise _malformed(f"the tensors of {told.adapter.name!r} are said to be as before, and were never told")
        source = replace(source, tensors=tensors)
    return replace(record, source=source)


def _tensors_of(record: AdapterRecord | None) -> Mapping[str, Tensor] | None:
    return None if record is None or record.source is None else record.source.tensors
