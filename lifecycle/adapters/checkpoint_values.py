"""Values of optimizers and schedulers as JSON, and back with the same types. Nothing is ever pickled.

Floats keep every bit (JSON is written with their shortest exact spelling, infinity and NaN by name). What JSON
has no form for is tagged: a tuple, a dict whose keys are no strings, a Counter, a tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from torch import Tensor

_TAG: Final = "!"
_DEPTH_MAX: Final = 32


def pack(where: str, value: object, tensors: dict[str, Tensor], *, depth: int = 0) -> object:
    """The value as JSON can carry it.

    Args:
        where: its name, for messages and for the names of tensors.
        value: None, bool, int, float, str, tensor, or list, tuple, dict or Counter of such.
        tensors: gets the tensors in it, by a name that begins with *where*; they are not copied.
        depth: how deep it stands.

    Raises:
        ValueError: naming what is of another type, or nested too deeply.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth > _DEPTH_MAX:
        raise ValueError(f"{where} is nested more than {_DEPTH_MAX} deep")
    if isinstance(value, Tensor):
        tensors[where] = value
        return {_TAG: "tensor", "name": where}
    if type(value) in (list, tuple):
        assert isinstance(value, list | tuple)  # as the line above says
        packed = [pack(f"{where}[{place}]", one, tensors, depth=depth + 1) for place, one in enumerate(value)]
        return packed if type(value) is list else {_TAG: "tuple", "items": packed}
    if isinstance(value, dict) and type(value) in (dict, Counter):
        return _pack_dict(where, value, tensors, depth)
    raise ValueError(f"{where} is {type(value).__name__}, which can be written with pickle only")


def _pack_dict(where: str, value: dict[object, object], tensors: dict[str, Tensor], depth: int) -> object:
    items = [
        (pack(f"{where} key", key, tensors, depth=depth + 1), pack(f"{where}.{key}", one, tensors, depth=depth + 1))
        for key, one in value.items()
    ]
    if type(value) is dict and all(type(key) is str for key in value) and _TAG not in value:
        return {str(key): one for key, one in items}
    return {_TAG: "counter" if type(value) is Counter else "dict", "items": [list(one) for one in items]}


def unpack(value: object, tensors: Mapping[str, Tensor]) -> object:
    """The value that :meth:`pack` was given.

    Args:
        value: what JSON gave.
        tensors: those that were packed, by name.

    Raises:
        ValueError: it is nothing that :func:`pack` writes.
    """
    if isinstance(value, list):
        return [unpack(one, tensors) for one in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: unpack(one, tensors) for key, one in value.items()}
    try:
        return _unpack_tagged(value, tensors)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(value)[:80]} is no packed value") from error


def _unpack_tagged(value: dict[str, object], tensors: Mapping[str, Tensor]) -> object:
    tag = value[_TAG]
    if tag == "tensor":
        return tensors[str(value["name"])]
    items = value["items"]
    if tag == "tuple" and isinstance(items, list):
        return tuple(unpack(one, tensors) for one in items)
    if tag in {"dict", "counter"} and isinstance(items, list):
        found = {unpack(key, tensors): unpack(one, tensors) for key, one in items}
        return found if tag == "dict" else Counter(found)
    raise TypeError(tag)
