"""Whether a registry that was read from a file can be one: what the types of its parts do not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from lifecycle.adapters.batches import BATCHES_KEPT
from lifecycle.adapters.records import AdapterRecord, BatchRecord, RegistrySnapshot
from lifecycle.adapters.roster import COMPLETED_KEPT
from lifecycle.adapters.settings import check_settings
from lifecycle.adapters.sources import AdapterSource, check_name, is_alpha
from lifecycle.errors import AdapterError
from states.adapters import AdapterState


def why_wrong(snapshot: RegistrySnapshot, live: Iterable[AdapterRecord]) -> str:
    """The first contradiction in a registry, in words; empty when there is none.

    Args:
        snapshot: the registry.
        live: its registrations that hold a slot, as they stand in the file, where a name may stand twice.
    """
    return next(_wrong(snapshot, list(live)), "")


def _wrong(snapshot: RegistrySnapshot, live: list[AdapterRecord]) -> Iterator[str]:
    for record in live:
        if record.state is AdapterState.COMPLETED:
            yield f"{record.adapter.name!r} is completed and holds a slot"
        if (record.source is None) is not bool(record.lost):
            yield f"{record.adapter.name!r} has a source that is lost, or neither source nor loss"
    for record in snapshot.completed:
        if record.state is not AdapterState.COMPLETED or record.source is not None or record.lost:
            yield f"{record.adapter.name!r} stands among the completed and is not"
    records = [*live, *snapshot.completed]
    for record in records:
        yield from _wrong_record(record, snapshot)
    yield from _twice("name", (one.adapter.name for one in live))
    yield from _twice("slot", (one.adapter.slot for one in live))
    yield from _twice("save directory", (str(one.settings.save) for one in live if one.settings.save is not None))
    yield from _nested({one.settings.save for one in live if one.settings.save is not None})
    yield from _twice("registration id", (one.adapter.registration_id for one in records))
    if len(snapshot.completed) > COMPLETED_KEPT:
        yield f"{len(snapshot.completed)} are completed, at most {COMPLETED_KEPT} are remembered"
    yield from _wrong_batches(snapshot.batches)


def _wrong_record(record: AdapterRecord, snapshot: RegistrySnapshot) -> Iterator[str]:
    adapter = record.adapter
    if adapter.slot >= len(snapshot.slot_versions):
        yield f"{adapter.name!r} has slot {adapter.slot} of {len(snapshot.slot_versions)}"
    if adapter.registration_id >= snapshot.next_registration_id:
        yield f"{adapter.name!r} has the id {adapter.registration_id}, the next one is {snapshot.next_registration_id}"
    try:
        check_name(adapter.name)
        check_settings(adapter.name, replace(record.settings, save=None))  # where links lead now is another matter
    except AdapterError as error:
        yield str(error)
    if record.settings.save is not None and not record.settings.save.is_absolute():
        yield f"{adapter.name!r} saves to a path that is not absolute"
    if record.settings.num_step not in (None, record.num_step):
        yield f"{adapter.name!r} runs for {record.num_step} steps, and was registered for {record.settings.num_step}"
    if record.source is not None and not _is_source(record.source):
        yield f"{adapter.name!r} has a source that nobody can have given"


def _is_source(source: AdapterSource) -> bool:
    if (source.path is None) is not (source.identity is None):
        return False
    if source.path is not None:
        return source.path.is_absolute() and (source.rank, source.alpha, source.target_modules) == (None, None, None)
    return (source.alpha is None or is_alpha(source.alpha)) and source.target_modules != ()


def _wrong_batches(batches: tuple[BatchRecord, ...]) -> Iterator[str]:
    yield from _twice("rollout id", (one.rollout_id for one in batches))
    if len(batches) > BATCHES_KEPT:
        yield f"{len(batches)} batches are not trained yet, at most {BATCHES_KEPT} are remembered"
    for batch in batches:
        names = [adapter.name for adapter, _ in batch.groups]
        yield from _twice(f"name in batch {batch.rollout_id}", names)
        if not set(batch.steps) <= set(names) or list(batch.steps) != sorted(set(batch.steps)):
            yield f"batch {batch.rollout_id} steps adapters that are not in it, or not in order"


def _nested(saves: set[Path]) -> Iterator[str]:
    for inner in sorted(saves):
        for outer in saves.intersection(inner.parents):
            yield f"the save directory {str(inner)!r} lies in that of another adapter, {str(outer)!r}"


def _twice(what: str, values: Iterable[str | int]) -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            yield f"the {what} {value!r} stands {count} times"
