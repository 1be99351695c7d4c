"""The keys of a record as JSON, encoded once: the text is what the line holds and what the hash is taken over.

Records of ``states`` are encoded by ``msgspec``, where it is installed: half of the time that an event takes
would else go into this. What it would encode otherwise than :func:`~lifecycle.audit.plain.compact_json` does,
and whatever may hold a secret, goes the long way through :func:`~lifecycle.audit.plain.plain`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final

from lifecycle.audit.plain import compact_json, plain
from lifecycle.redaction import may_hold_a_secret, names_a_secret
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

Encode = Callable[[object], bytes]


def told(keys: Mapping[str, object]) -> str:
    """The JSON object of these keys and their plain values, in the order of the mapping.

    Args:
        keys: anything; see :func:`~lifecycle.audit.plain.plain`.
    """
    encoder = _encoder()
    text = _quickly(keys, *encoder) if encoder is not None else None
    return compact_json(plain(keys)) if text is None else text


@cache
def _encoder() -> tuple[Encode, Callable[[bytes], Any]] | None:
    """What encodes, and what marks a text as encoded already."""
    try:
        import msgspec  # noqa: PLC0415 - importing lifecycle needs torch, transitions and structlog only
    except ImportError:
        return None
    return msgspec.json.Encoder().encode, msgspec.Raw


def _quickly(keys: Mapping[str, object], encode: Encode, encoded: Callable[[bytes], Any]) -> str | None:
    """The same at once, None when a text may hold a secret or must be escaped otherwise, or cannot be encoded so."""
    if not _are_names(keys):
        return None
    simple = {name: one if _is_simple(one) else encoded(_text(one)) for name, one in keys.items()}
    try:
        text = encode(simple).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # what it cannot take, such as half a surrogate
        return None
    if not text.isascii() or _DELETE in text or may_hold_a_secret(text):
        return None
    return text


def _text(value: object) -> bytes:
    if type(value) is float and math.isfinite(value):
        return repr(value).encode()
    return compact_json(plain(value, depth=1)).encode()


def _is_simple(value: object) -> bool:
    """Whether the value holds nothing but text, whole numbers, None and records of ``states``."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        assert isinstance(value, dict)
        return not value or (_are_names(value) and _are_simple(value.values()))
    if kind is tuple or kind is list:
        assert isinstance(value, tuple | list)
        return not value or _are_simple(value)
    return isinstance(value, StrEnum)


def _are_simple(values: Iterable[object]) -> bool:
    return all([type(one) in _ATOMS or _is_simple(one) for one in values])  # noqa: C419 - half the time of a generator


def _are_names(names: Iterable[object]) -> bool:
    """Whether these keys are texts, and none is the name of a secret."""
    return all([type(name) in _TEXTS and not names_a_secret(str(name)) for name in names])  # noqa: C419 - as above
