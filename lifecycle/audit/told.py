"""The keys of a record as canonical JSON, each value on its own, so that a record is encoded once.

What a hash is taken over and what stands on the line are the same texts in another order. Records of
``states`` are encoded by ``msgspec``, where it is installed: half of the time that an event takes would
else go into this. What it would encode otherwise than :func:`~lifecycle.audit.plain.canonical_json` does,
and whatever may hold a secret, goes the long way through :func:`~lifecycle.audit.plain.plain`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Final

from lifecycle.audit.plain import canonical_json, may_hold_a_secret, names_a_secret, plain
from states import ContentFacts, Effect, EngineFacts, LeaseFacts, Read, Source, TrainerEvent, TrainerState, Verdict

RECORDS: Final = (ContentFacts, EngineFacts, LeaseFacts, Read, Verdict)
"""Frozen records that hold text, whole numbers and tuples of them; a test looks at their annotations."""

_DELETE: Final = "\x7f"
"""The one ASCII character that JSON escapes when it is kept to ASCII and that ``msgspec`` does not."""


class Sure(dict[str, object]):
    """A mapping of which its maker knows that it holds what :data:`RECORDS` hold, and such records: nobody looks.

    Its keys are names of the project's own: none is the name of a secret.
    """


_TEXTS: Final = frozenset({str, TrainerState, TrainerEvent, Source, Effect})
_ATOMS: Final = frozenset({*_TEXTS, int, bool, type(None), Sure, *RECORDS})


def told(keys: Mapping[str, object]) -> dict[str, str]:
    """Each key with the canonical JSON of its plain value, in the order of the mapping.

    Args:
        keys: anything; see :func:`~lifecycle.audit.plain.plain`.
    """
    encode = _encoder()
    texts = _quickly(keys, encode) if encode is not None else None
    if texts is not None:
        return texts
    encoded = plain(keys)
    assert isinstance(encoded, dict)  # a mapping stays one
    return {name: canonical_json(value) for name, value in encoded.items()}


@cache
def quoted(name: str) -> str:
    """The name of a key as JSON."""
    return canonical_json(name)


@cache
def _encoder() -> Callable[[object], bytes] | None:
    try:
        import msgspec  # noqa: PLC0415 - importing lifecycle needs torch, transitions and structlog only
    except ImportError:
        return None
    return msgspec.json.Encoder(order="sorted").encode


def _quickly(keys: Mapping[str, object], encode: Callable[[object], bytes]) -> dict[str, str] | None:
    """The same without a detour, None when a text may hold a secret or must be escaped otherwise."""
    if not _are_names(keys):
        return None
    texts = {name: _text(value, encode) for name, value in keys.items()}
    everything = "".join((*texts, *texts.values()))
    if not everything.isascii() or _DELETE in everything:
        return None
    return None if may_hold_a_secret(everything) else texts


def _text(value: object, encode: Callable[[object], bytes]) -> str:
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if not _is_simple(value):
        return canonical_json(plain(value, depth=1))
    try:
        return encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # what it cannot take, such as half a surrogate
        return canonical_json(plain(value, depth=1))


def _is_simple(value: object) -> bool:
    """Whether the value holds nothing but text, whole numbers, None and records of ``states``."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        assert isinstance(value, dict)
        return _are_names(value) and _are_simple(value.values())
    if kind is tuple or kind is list:
        assert isinstance(value, tuple | list)
        return _are_simple(value)
    return isinstance(value, StrEnum)


def _are_simple(values: Iterable[object]) -> bool:
    return all(type(one) in _ATOMS or _is_simple(one) for one in values)


def _are_names(names: Iterable[object]) -> bool:
    """Whether these keys are texts, and none is the name of a secret."""
    return all(type(name) in _TEXTS and not names_a_secret(str(name)) for name in names)
