"""What came of a call of one rank, as the other ranks are told it: JSON, checked on arrival, never a pickle.

An error is the same on every rank: kind, words, attributes and notes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from lifecycle.errors import (
    ConfigError,
    EngineError,
    EngineRefused,
    EngineUnanswered,
    EngineUnconfirmed,
    IncompletePush,
    LifecycleError,
)
from lifecycle.transport import TransportBroken

_OF_ENGINE: Final[Mapping[str, Any]] = {"engine": str, "why": str}
_ATTRIBUTES: Final[Mapping[type[LifecycleError], Mapping[str, Any]]] = {
    EngineError: _OF_ENGINE,
    EngineRefused: {**_OF_ENGINE, "status": int, "answer": str},
    EngineUnanswered: {**_OF_ENGINE, "status": int | None, "reached": bool},
    EngineUnconfirmed: {
        **_OF_ENGINE,
        "suspect": frozenset[str] | None,
        "tensors": tuple[str, ...],
        "prompt": int | None,
        "token": int | None,
    },
    TransportBroken: {**_OF_ENGINE, "transport": str, "another": bool},
    IncompletePush: {"group": str, "version": int, "missing": tuple[str, ...], "strange": tuple[str, ...]},
    ConfigError: {},
}
"""The errors that cross, and what they carry. Another one crosses as the nearest of these that it is a kind of."""
_KINDS: Final = {one.__name__: one for one in _ATTRIBUTES}
_SCHEMAS: Final = {
    one: msgspec.defstruct(one.__name__, list(told.items()), forbid_unknown_fields=True)
    for one, told in _ATTRIBUTES.items()
}


class _ToldError(Struct, forbid_unknown_fields=True):
    kind: str
    words: str
    attributes: Raw
    notes: tuple[str, ...] = ()


class _Outcome(Struct, forbid_unknown_fields=True):
    call: str
    value: Raw = Raw(b"null")
    error: _ToldError | None = None


class Malformed(ValueError):
    """What was told is no outcome."""


def told_value(call: str, value: object) -> bytes:
    """A call that came to its end.

    Args:
        call: what was called, for the ranks to see that they are at the same one.
        value: what it gave: plain values and dataclasses of them.
    """
    return msgspec.json.encode(_Outcome(call, Raw(msgspec.json.encode(value))))


def told_error(call: str, error: LifecycleError) -> bytes:
    """A call that failed. The error is one that :func:`crosses`.

    What is no text in its words, such as half of a surrogate pair in an engine's answer, becomes a question mark.
    """
    kind = next(one for one in type(error).__mro__ if one in _SCHEMAS)
    attributes = {name: getattr(error, name) for name in _ATTRIBUTES[kind]}
    notes = tuple(getattr(error, "__notes__", ()))
    told = {"kind": kind.__name__, "words": str(error), "attributes": attributes, "notes": notes}
    plain = msgspec.to_builtins({"call": call, "error": told})
    return json.dumps(plain, ensure_ascii=False).encode(errors="replace")


def crosses(error: Exception) -> bool:
    """Whether the error is of a kind that every rank can raise."""
    return isinstance(error, tuple(_SCHEMAS))


def read_outcome(held: bytes, kind: Any) -> tuple[str, Any, LifecycleError | None]:
    """What was called, and its value or its error.

    Args:
        held: what another rank told.
        kind: the type of the value.

    Raises:
        Malformed: it is something else.
    """
    try:
        outcome = msgspec.json.decode(held, type=_Outcome)
        if outcome.error is not None:
            return outcome.call, None, _error(outcome.error)
        return outcome.call, msgspec.json.decode(outcome.value, type=kind), None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error


def _error(told: _ToldError) -> LifecycleError:
    kind = _KINDS.get(told.kind)
    if kind is None:
        raise Malformed(f"there is no error {told.kind[:40]!r}")
    attributes = msgspec.json.decode(told.attributes, type=_SCHEMAS[kind])
    error = kind.__new__(kind, told.words)
    error.args = (told.words,)
    for name in _ATTRIBUTES[kind]:
        setattr(error, name, getattr(attributes, name))
    for note in told.notes:
        error.add_note(note)
    return error
