"""The lines of a log as records of their schema, one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Union

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, fields

from lifecycle.audit.chain import SCHEMA
from lifecycle.audit.notes import NOTED
from lifecycle.audit.read import ended_lines
from lifecycle.audit.schema import KINDS, NotedRecord, OpenedRecord, ToldVerdict

_DECODE: Final = msgspec.json.Decoder(dict[str, Any]).decode
_CHECK: Final = msgspec.json.Decoder(type=Union[KINDS]).decode  # noqa: UP007 - of as many as there are
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
        has_end: it was written to its end.
    """

    file: Path
    number: int
    text: bytes
    record: dict[str, Any] | None
    problem: str
    has_end: bool


def lines_of(path: str | os.PathLike[str]) -> Iterator[Line]:
    """Every line of a log in turn, what was put aside first.

    Raises:
        AuditError: a file cannot be read, or is of another format.
    """
    for file, number, line in ended_lines(path):
        text = line.removesuffix(b"\n")
        record, problem = _read(text)
        yield Line(file, number, text, record, problem, has_end=len(text) < len(line))


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
            msgspec.convert(record, _Version1)
            read = msgspec.convert(record, _KINDS_1.get(record["event"], _Version1))
            if isinstance(read, _Decided1):
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
    """A decision, or its end."""

    transition: int
    trigger: str
    edge: str
    source: str
    target: str


class _Decided1(_Transition1, kw_only=True):
    verdicts: list[ToldVerdict]
    facts: dict[str, Any] | None = None
    """None where they are as they were."""


class _Ended1(_Transition1, kw_only=True):
    bytes: dict[str, int]
    held: dict[str, dict[str, int]]
    moved: dict[str, int]


class _Moved1(_Ended1, kw_only=True):
    versions: dict[str, int | None]
    details: dict[str, Any]


class _Noted1(_Version1, kw_only=True):
    transition: int
    note: str


_KINDS_1: Final[dict[object, type[_Version1]]] = {
    "lifecycle.began": _Decided1,
    "lifecycle.refused": _Decided1,
    "lifecycle.unchanged": _Decided1,
    "lifecycle.moved": _Moved1,
    "lifecycle.failed": _Ended1,
    NOTED: _Noted1,
}
"""What is looked at of records of version 1. They may hold more."""
