"""Values as JSON can carry them. A record never fails because of what it is told, and never tells a secret."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum
from numbers import Integral, Real
from pathlib import PurePath
from typing import Final

from lifecycle.redaction import REDACTED, names_a_secret, redact

_DEPTH_MAX: Final = 16
_TEXT_MAX: Final = 200


def compact_json(value: object) -> str:
    """The one spelling of a plain value: its own order, no spaces, ASCII. What a hash is taken over."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def plain(value: object, *, depth: int = 0) -> object:
    """The value as None, bool, int, float, str, list or dict.

    Enums give their value, tuples and lists a list, sets a sorted list, paths and other objects their
    text, dataclasses a dict, NaN and infinity their name. A tensor is described and never dumped.
    Credentials in URLs and values under the name of a secret are redacted.

    Args:
        value: anything.
        depth: how deep in the record it stands; what lies too deep (a cycle) is cut.
    """
    if depth > _DEPTH_MAX:
        return "..."
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is str:
        return redact(value)
    if isinstance(value, Enum):
        return plain(value.value, depth=depth + 1)
    if isinstance(value, str | PurePath):
        return redact(str(value))
    if isinstance(value, Integral | Real):
        return _number(value)
    return _container(value, depth) if _is_container(value) else _text(value)


def _number(value: Integral | Real) -> int | float | str:
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _is_container(value: object) -> bool:
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_record or isinstance(value, Mapping | list | tuple | AbstractSet)


def _container(value: object, depth: int) -> object:
    if isinstance(value, Mapping):
        return _mapping(value, depth)
    if isinstance(value, list | tuple):
        return [plain(one, depth=depth + 1) for one in value]
    if isinstance(value, AbstractSet):
        return sorted((plain(one, depth=depth + 1) for one in value), key=compact_json)
    fields = dataclasses.fields(value)  # type: ignore[arg-type]  # what is left is an instance of a dataclass
    return _mapping({one.name: getattr(value, one.name) for one in fields}, depth)


def _mapping(value: Mapping[object, object], depth: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, one in value.items():
        name = redact(str(key.value if isinstance(key, Enum) else key))
        found[name] = REDACTED if names_a_secret(name) and not _is_nothing(one) else plain(one, depth=depth + 1)
    return found


def _is_nothing(value: object) -> bool:
    """Whether there is no secret: None, an empty text, a zero."""
    try:
        return not value
    except Exception:  # noqa: BLE001 - an array is not false, it refuses to say
        return False


def _text(value: object) -> str:
    torch = sys.modules.get("torch")  # who reads a log need not import it, and without it nothing is a tensor
    if torch is not None and isinstance(value, torch.Tensor):
        return f"tensor {str(value.dtype).removeprefix('torch.')}{list(value.shape)} on {value.device}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, BaseException):
        return redact(f"{type(value).__name__}: {value}")
    try:
        return redact(repr(value))[:_TEXT_MAX]
    except Exception as error:  # noqa: BLE001 - the record matters more than this value
        return f"{type(value).__name__} without a text ({type(error).__name__})"
