"""What the agreement asks of the world: one request at a time, each with its answer. Pure; a driver carries them out.

The protocol is a generator of these requests. One driver answers them with a group of torch.distributed and a store
outside the ranks, another with simulated time in one process: what decides is the same code.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class GroupLost(Exception):  # not an error of the user: the protocol catches it
    """A collective did not complete, or a group could not be built. It says nothing about who is missing."""


@dataclass(frozen=True, slots=True)
class Gather:
    """A collective: the payloads of all ranks, one after another; all are of one size. May raise GroupLost."""

    payload: bytes
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Share:
    """A collective: the payloads of these ranks, of any size, in the order named, on every rank. May raise GroupLost.

    All ranks name the same ranks; the payload of others is not looked at.
    """

    ranks: tuple[int, ...]
    payload: bytes
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Connect:
    """Build the group of a generation, with all its ranks. May raise GroupLost."""

    generation: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Give the group up, if there is one: whoever waits in it is woken by an error."""


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key in the store. Nothing is answered, and the writer does not wait."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a key if nobody has. The answer is the value that it has then."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Count:
    """Add one to a counter in the store. The answer is its value then."""

    key: str


@dataclass(frozen=True, slots=True)
class Look:
    """Read keys of the store. The answer is a list of values, None for a key that nobody wrote."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Now:
    """The answer is the time in seconds, from any start, that never goes back."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


Request = Gather | Share | Connect | Disconnect | Put | Claim | Count | Look | Now | Pause
Asking = Generator[Request, Any, T]
"""A part of the protocol: it asks, is answered, and returns a T."""
