"""What another process answers: a value, or an error that is sure to arrive with its kind, words and attributes.

An error that cannot be pickled, or whose class the other side does not have, would arrive as Ray's own failure to read
it. So errors travel as values: those of this library and of Python as they are, all others by kind and words.
"""

from __future__ import annotations

import builtins
import copy
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from lifecycle.ray.errors import RemoteFailure
from states.errors import Portable

T = TypeVar("T")
_DEPTH_MAX = 8


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The value of a call, or the error that it raised.

    Attributes:
        value: None where there is an error.
        error: None where there is none.
    """

    value: T | None = None
    error: Exception | None = None


def answered(call: Callable[[], T]) -> Answer[T]:
    """Run it here, for another process. Never raises, but for what ends the process."""
    try:
        return Answer(value=call())
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told
        return Answer(error=portable(error))


def portable(error: BaseException, depth: int = 0) -> Exception:
    """The same error as it can cross to any process that has this library."""
    is_ours = isinstance(error, Portable) and type(error).__module__.startswith(("lifecycle.", "states."))
    if depth > _DEPTH_MAX or not (is_ours or _is_pythons(error)):
        return _failure(error)
    there = copy.copy(error)
    assert isinstance(there, Exception)  # both kinds are
    for name, value in vars(error).items():
        there.__dict__[name] = portable(value, depth + 1) if isinstance(value, BaseException) else _or_words(value)
    if not is_ours:
        there.add_note(f"in another process:\n{_trace(error)}")
    return there


def told_by_ray(error: RayError) -> RemoteFailure:
    """What a call that Ray could not carry out failed with: the words of what was raised there, or Ray's own."""
    cause: Any = error.cause if isinstance(error, RayTaskError) else error
    return _failure(cause if isinstance(cause, Exception) else error)


def _is_pythons(error: BaseException) -> bool:
    is_builtin = getattr(builtins, type(error).__name__, None) is type(error)
    return isinstance(error, Exception) and is_builtin and _or_words(error.args) is error.args


def _failure(error: BaseException) -> RemoteFailure:
    kind, module = type(error).__name__, type(error).__module__
    return RemoteFailure(kind if module == "builtins" else f"{module}.{kind}", str(error), _trace(error))


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _or_words(value: object) -> object:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever keeps it from being pickled
        return repr(value)
    return value
