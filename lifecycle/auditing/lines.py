"""The lines of a log as records of their schema, one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Union

import msgspec

from lifecycle.audit.chain import SCHEMA
from lifecycle.audit.expand import Expander
from lifecycle.audit.read import raw_lines
from lifecycle.audit.schema import KINDS

_DECODE: Final = msgspec.json.Decoder(dict[str, Any]).decode
_CHECK: Final = msgspec.json.Decoder(type=Union[KINDS]).decode  # noqa: UP007 - of as many as there are


@dataclass(slots=True)
class Line:
    """One line.

    Attributes:
        file: where it stands.
        number: its number there, from 1.
        text: as it was written, without its end.
        record: its keys, None where it is torn; with whole facts where what they are a change of was read.
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
    expander = Expander()
    for file, number, text in raw_lines(path):
        try:
            record = _DECODE(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            yield Line(file, number, text, None, "")
            continue
        problem = _problem(text, record)
        if not problem:
            expander.expand(record)
        yield Line(file, number, text, record, problem)


def _problem(text: bytes, record: dict[str, Any]) -> str:
    """Why a line is no record of its schema. Of version 1 only what all of its records have is looked at."""
    try:
        if record.get("schema") == SCHEMA:
            _CHECK(text)
        else:
            msgspec.convert(record, _Version1)
    except msgspec.MsgspecError as error:
        return str(error)
    return ""


class _Version1(msgspec.Struct, kw_only=True):
    """What a record of the first version has at least."""

    event: str
    schema: Literal[1]
    sequence: int
    run: str
    rank: int
    model: str
    hash: str
