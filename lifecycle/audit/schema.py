"""What each record of an audit log holds: keys, types and units, and the JSON Schema that is made of them.

Records are written by :mod:`lifecycle.transition.records` and :mod:`lifecycle.audit.log`; these types write nothing.
They say what a line holds as it is written. Read with :func:`~lifecycle.audit.read.read_lines`, ``facts`` are whole.
"""

from __future__ import annotations

import json
import typing
from dataclasses import fields
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from lifecycle.audit.chain import SCHEMA
from states import Facts, TrainerEvent, TrainerState

Count = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(description="bytes")]
Seconds = Annotated[float, Meta(ge=0, description="seconds")]
Hash = Annotated[
    str, Meta(pattern="^([0-9a-f]{64})?$", description="hexadecimal SHA-256, empty before the first record")
]
Version = Annotated[int, Meta(description="id of a content group's bytes; equal ids mean equal bytes")]
ByTag = Annotated[dict[str, Bytes], Meta(description="bytes by tag")]
Row = Annotated[dict[str, Any], Meta(description="`at`: positions such as `2-9,12`, or where an entry is put; fields")]
Details = Annotated[dict[str, Any], Meta(description="what was done, in words of the event")]


class ToldVerdict(Struct, forbid_unknown_fields=True):
    """The answer of one guard. Why a guard holds is left out where it follows from the facts."""

    name: str
    holds: bool
    because: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET


class Unfinished(Struct, forbid_unknown_fields=True):
    """A transition that began and never ended."""

    sequence: Count
    trigger: str | None
    edge: str | None
    source: str | None


class FactChanges(Struct, forbid_unknown_fields=True):
    """The facts as what changed since the record of this number: fact to its value, or to how it changed."""

    since: Count
    shared: dict[str, Any]
    local: dict[str, Any]


class EntryChanges(Struct, forbid_unknown_fields=True):
    """How `contents` or `engines` changed.

    First `changed`, by positions in the list as it was; `{"was": FIELD}` is what that field of the entry was, and
    `copies.TAG` the version in that copy, null where there is none. Then the entries of the keys in `gone` leave.
    Then `new` entries come, at the end or `at` a position; fields that are missing are as they were when it left.
    """

    changed: list[Row] | UnsetType = UNSET
    gone: list[str] | UnsetType = UNSET
    new: list[Row] | UnsetType = UNSET


def _scope(name: str, scope: str, doc: str) -> type[Struct]:
    hints = typing.get_type_hints(Facts)
    told = [(one.name, hints[one.name]) for one in fields(Facts) if one.metadata["scope"] == scope]
    return msgspec.defstruct(name, told, forbid_unknown_fields=True, namespace={"__doc__": doc})


SharedFacts: Final = _scope("SharedFacts", "shared", "Facts that are equal on every rank.")
LocalFacts: Final = _scope("LocalFacts", "local", "Facts of this rank alone. Bytes are in bytes.")
WholeFacts: Final = msgspec.defstruct(
    "WholeFacts",
    [("shared", SharedFacts), ("local", LocalFacts)],
    forbid_unknown_fields=True,
    namespace={"__doc__": "Everything that a guard may look at."},
)

ToldFacts = Annotated[
    dict[str, Any],
    Meta(
        description="what the event was decided on: whole, or what changed since the record before that carried facts",
        extra_json_schema={"oneOf": [{"$ref": "#/$defs/WholeFacts"}, {"$ref": "#/$defs/FactChanges"}]},
    ),
]


class _Record(Struct, tag_field="event", forbid_unknown_fields=True, kw_only=True):
    schema: Annotated[int, Meta(ge=SCHEMA, le=SCHEMA)]
    sequence: Annotated[int, Meta(ge=1, description="number of the record in its log, without gaps")]
    run: str
    rank: Count
    model: str
    time: Annotated[str, Meta(description="when it was written, ISO 8601, UTC")]
    hash: Annotated[Hash, Meta(description="of the hash before it and of the line without its own")]


class _Transition(_Record, kw_only=True):
    transition: Annotated[int, Meta(ge=1, description="number of the decision in its session")]
    edge: Annotated[str, Meta(description="the row of the table, empty where none fits")]
    source: TrainerState
    target: TrainerState


class _Ended(_Transition, kw_only=True):
    bytes: Annotated[dict[str, Bytes], Meta(description="bytes held by place, and in `moved` those that were moved")]
    held: Annotated[dict[str, ByTag], Meta(description="bytes held by place and tag")]
    moved: Annotated[dict[str, Bytes], Meta(description="bytes moved by kind")]


class OpenedRecord(_Record, tag="lifecycle.opened", kw_only=True):
    """A session, or a file of a log that was put aside, begins."""

    restart: Annotated[bool, Meta(description="records stand before it that another session wrote")]
    last_hash: Hash
    torn_bytes: Annotated[int, Meta(ge=0, description="size of a torn line before it, 0 where there is none; bytes")]
    unfinished: list[Unfinished]
    pid: Count
    continues: Annotated[str, Meta(description="the file before this one, empty where it is the same")]


class BeganRecord(_Transition, tag="lifecycle.began", kw_only=True):
    """A transition was decided; written before its first effect. Exactly one `moved` or `failed` ends it."""

    trigger: TrainerEvent
    verdicts: list[ToldVerdict]
    decision: Annotated[dict[str, Count], Meta(description="how many content groups would be read from each source")]
    facts: ToldFacts


class MovedRecord(_Ended, tag="lifecycle.moved", kw_only=True):
    """A transition took its edge and is committed."""

    trigger: TrainerEvent
    versions: Annotated[dict[str, Version | None], Meta(description="what changed; null: the group is gone")]
    checkpoint: Annotated[dict[str, Version], Meta(description="all versions, now and then")] | UnsetType = UNSET
    duration_s: Seconds
    details: Details


class FailedRecord(_Ended, tag="lifecycle.failed", kw_only=True):
    """An effect failed: everything was undone, or the target is `faulted`."""

    trigger: TrainerEvent
    effect: str
    error: str
    engines: Annotated[dict[str, Any], Meta(description="what became of each engine")] | UnsetType = UNSET


class RefusedRecord(_Transition, tag="lifecycle.refused", kw_only=True):
    """A guard does not hold, and nothing happened. Every verdict that fails is whole."""

    trigger: Annotated[str, Meta(description="the event, or another call that was refused")]
    verdicts: list[ToldVerdict]
    remedy: Annotated[str, Meta(description="what to do")]
    facts: ToldFacts


class UnchangedRecord(_Transition, tag="lifecycle.unchanged", kw_only=True):
    """What was asked for already held."""

    trigger: TrainerEvent
    verdicts: list[ToldVerdict]
    facts: ToldFacts


class NotedRecord(_Record, tag="lifecycle.noted", forbid_unknown_fields=False, kw_only=True):
    """Something worth reading that is no transition, with keys of its own."""

    transition: Count
    note: str


KINDS: Final = (OpenedRecord, BeganRecord, MovedRecord, FailedRecord, RefusedRecord, UnchangedRecord, NotedRecord)
"""Every kind of record."""


def record_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of one record as it is written."""
    beside = (WholeFacts, FactChanges, EntryChanges)
    found, parts = msgspec.json.schema_components((*KINDS, *beside), ref_template="#/$defs/{name}")
    parts["FactChanges"]["properties"]["shared"]["properties"] = {
        name: {"anyOf": [{"type": "array"}, {"$ref": "#/$defs/EntryChanges"}]} for name in ("contents", "engines")
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"adapter-lifecycle/audit-record/{SCHEMA}",
        "title": f"A record of the audit log of adapter-lifecycle, version {SCHEMA}",
        "oneOf": list(found[: len(KINDS)]),
        "$defs": parts,
    }


def schema_page() -> str:
    """The schema as the file in docs/ holds it."""
    return json.dumps(record_schema(), indent=2) + "\n"
