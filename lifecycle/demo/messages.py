"""What the demo's command and its ranks tell each other: one JSON object a line, there and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from lifecycle.demo.options import DemoOptions
from lifecycle.demo.report import DemoReport
from lifecycle.demo.seat import Seat

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Start:
    """What a rank is told, once."""

    options: DemoOptions
    seat: Seat


@dataclass(frozen=True, slots=True)
class Progress:
    """What rank 0 is doing, and how many turns are complete."""

    what: str
    turns: int


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank ended that did not end well.

    Attributes:
        rank: which one.
        why: its error's words, or how it ended without any.
        kind: the name of the error's class; empty when the rank ended without a word.
        is_joint: every rank that is there has the same words for it, which name the ranks.
        is_consequence: another rank's end may be the cause.
    """

    rank: int
    why: str
    kind: str = ""
    is_joint: bool = False
    is_consequence: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What a rank says: exactly one of these. After a report or a failure it says nothing more."""

    progress: Progress | None = None
    report: DemoReport | None = None
    failure: Failure | None = None


def encoded(told: Start | Message) -> bytes:
    """One line. JSON as Python writes it: a difference of log-probabilities may be no number."""
    return json.dumps(msgspec.to_builtins(told, enc_hook=str)).encode() + b"\n"


def decoded(line: bytes, kind: type[T]) -> T:
    """What :func:`encoded` was given.

    Raises:
        ValueError: the line is something else.
    """
    return msgspec.convert(json.loads(line), kind, dec_hook=_made)


def _made(kind: Any, text: str) -> Any:
    """A path: it is the one kind in here that is no plain value."""
    return kind(text)


def first_cause(failures: Iterable[Failure], silent: Iterable[int] = ()) -> Failure:
    """The failure that the others follow from.

    A rank that ended without a word comes first; then an error of its own; then one that all ranks have in common. What
    may follow from another rank's end is the cause only where nothing else is known, and where it names nobody, a rank
    that says nothing at all is the one to look at.

    Args:
        failures: in the order in which they became known, at least one.
        silent: ranks that have neither ended nor said anything when the others had.
    """
    first, quiet = min(failures, key=_distance), tuple(silent)
    if quiet and first.is_consequence and not first.is_joint:
        return Failure(quiet[0], f"it does not answer; rank {first.rank}: {first.why}")
    return first


def _distance(failure: Failure) -> int:
    """From the cause."""
    if failure.is_consequence:
        return 3 if failure.is_joint else 4
    if failure.is_joint:
        return 2
    return 1 if failure.kind else 0
