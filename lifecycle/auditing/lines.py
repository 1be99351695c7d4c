"""The lines of a log as records of their schema, one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Union

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, fields

from lifecycle.audit.chain import SCHEMA
from lifecycle.audit.read import raw_lines
from lifecycle.audit.schema import KINDS, NotedRecord, OpenedRecord, ToldVerdict

_DECODE: Final = msgspec.json.Decoder(dict[str, Any]).decode
_CHECK: Final = msgspec.json.Decoder(type=Union[KINDS]).decode  # noqa: UP007 - of as many as there are
_NOTED: Final = str(NotedRecord.__struct_config__.tag)
_READ_TWICE: Final = (OpenedRecord, NotedRecord)
"""Kinds that hold more than their types name, or of which more is asked than nearly ever stands there."""
_EVENTS: Final = {
    kind: (str(kind.__struct_config__.tag), [one.name for one in fields(kind) if one.default is UNSET])
    for kind in KINDS
    if kind not in _READ_TWICE
}
"""The event of the others, and the keys that may be missing."""


@dataclass(slots=True)
class Line:
    """One line.

    Attributes:
        file: where it stands.
        number: its number there, from 1.
        text: as it was written, without its end.
        record: its keys, None where it is torn; with facts as they are written, and verdicts as the schema has them.
        problem: why it is no record of the schema, empty when it is one.
    """

    file: Path
    number: int
    text: bytes
    record: dict[str, Any] | None
    problem: str


def lines_of(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Every line of a log in turn, what was put aside first.

    Raises:
        AuditError: a file cannot be read, or is of another format.
    """
    for file, number, text in raw_lines(path):
        record, problem = _read(text)
        yield Line(file, number, text, record, problem)


def _read(text: bytes) -> tuple[dict[str, Any] | None, str]:
    """The keys of a line, None where it is torn, and why it is no record of its schema.

    Nearly every line is read once, as what it has to be. What is not is read again for what it is.
    """
    try:
        read = _CHECK(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_as_it_is(text)
    if type(read) in _READ_TWICE:
        return _read_as_it_is(text)
    record = asdict(read)
    record["event"], optional = _EVENTS[type(read)]
    for name in optional:
        if record[name] is UNSET:
            del record[name]
    return record, ""


def _read_as_it_is(text: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        record = _DECODE(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, ""
    try:
        if record.get("schema") == SCHEMA:
            _CHECK(text)
        else:
            read = msgspec.convert(record, _Version1 if record.get("event") == _NOTED else _Transition1)
            if isinstance(read, _Transition1) and read.verdicts is not UNSET:
                record["verdicts"] = read.verdicts
    except msgspec.MsgspecError as error:
        return record, str(error)
    return record, ""


class _Version1(msgspec.Struct, kw_only=True):
    """What a record of the first version has at least."""

    event: str
    schema: Literal[1]
    sequence: int
    run: str
    rank: int
    model: str
    hash: str


class _Transition1(_Version1, kw_only=True):
    """What is read of those that are no notes, where they have it."""

    verdicts: list[ToldVerdict] | UnsetType = UNSET
    versions: dict[str, int | None] | UnsetType = UNSET
    bytes: dict[str, int] | UnsetType = UNSET
    held: dict[str, dict[str, int]] | UnsetType = UNSET
    moved: dict[str, int] | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET
    facts: dict[str, Any] | UnsetType = UNSET
