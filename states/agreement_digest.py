"""Digests of what ranks must have alike: the same bytes for equal values, in every process, on every machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any, Final

DIGEST_BYTES: Final = 32
ENTRY_BYTES: Final = 16
"""Of one fact in the table that is exchanged when ranks differ."""
_BLOCK: Final = 64
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def plain(value: object) -> Any:
    """The value in the words of JSON: what is exchanged when ranks differ, and what is hashed.

    Raises:
        TypeError: it is of a kind that facts do not have.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)  # also an enumeration's member
    if isinstance(value, float):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value))
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    raise TypeError(f"ranks cannot agree on a {type(value).__name__}; facts are text, numbers, tuples and records")


def text_of(value: object) -> str:
    """The one line of text that stands for a value."""
    return _ENCODER.encode(plain(value))


def digest_of(value: object) -> bytes:
    """SHA-256 of a value."""
    return sha256(text_of(value).encode()).digest()


class Digester:
    """Digests of facts by name. What is as it was the last time is not hashed again, record by record.

    Its answers are those of a new one; it only answers sooner.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, bytes]] = {}
        self._blocks: dict[str, list[tuple[tuple[object, ...], list[bytes], bytes]]] = {}

    def entry(self, name: str, value: object) -> bytes:
        """The digest of one fact, :data:`ENTRY_BYTES` long."""
        known = self._known.get(name)
        if known is not None and _is_same(known[0], value):
            return known[1]
        found = self._of_records(name, value) if isinstance(value, tuple) else digest_of(value)
        self._known[name] = value, found[:ENTRY_BYTES]
        return found[:ENTRY_BYTES]

    def table(self, names: Sequence[str], values: Sequence[object]) -> bytes:
        """The digests of these facts, in the order given."""
        return b"".join(map(self.entry, names, values))

    def _of_records(self, name: str, value: tuple[object, ...]) -> bytes:
        """In blocks: to see that a block is as it was takes far less time than to look at each of its records."""
        before = self._blocks.get(name, [])
        blocks = []
        for index, at in enumerate(range(0, len(value), _BLOCK)):
            held = value[at : at + _BLOCK]
            known = before[index] if index < len(before) else None
            blocks.append(known if known is not None and known[0] == held else _block(held, known))
        self._blocks[name] = blocks
        return sha256(b"".join([one[2] for one in blocks])).digest()


def _block(
    held: tuple[object, ...], known: tuple[tuple[object, ...], list[bytes], bytes] | None
) -> tuple[tuple[object, ...], list[bytes], bytes]:
    before, digests = known[:2] if known is not None else ((), [])
    found = [
        digests[index] if index < len(before) and _is_same(before[index], one) else digest_of(one)
        for index, one in enumerate(held)
    ]
    return held, found, sha256(b"".join(found)).digest()


def _is_same(before: object, now: object) -> bool:
    """Whether it is the value of the last time. A fact never changes its type, but for 1 and True at the top."""
    return before is now or (type(before) is type(now) and before == now)
