"""The chain of an audit log: which records there are, how they are numbered, stamped and hashed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from lifecycle.audit.plain import canonical_json
from lifecycle.audit.told import quoted, told
from lifecycle.errors import AuditError

SCHEMA: Final = 1
OPENED: Final = "lifecycle.opened"
NAMES: Final = frozenset(
    {
        "lifecycle.began",
        "lifecycle.failed",
        "lifecycle.moved",
        "lifecycle.noted",
        "lifecycle.refused",
        "lifecycle.unchanged",
    }
)
"""What a caller may write. ``lifecycle.opened`` is the log's own first record of each session."""
OWN_KEYS: Final = ("event", "schema", "sequence", "run", "rank", "model", "time", "hash")
"""Keys that the log writes itself, in this order; the hash comes last."""


def chain_hash(previous: str, record: Mapping[str, object]) -> str:
    """The hash that belongs to *record*: SHA-256 of the hash before it and the record's canonical JSON.

    Args:
        previous: hexadecimal hash of the record before, empty for the first.
        record: a plain record; a ``hash`` in it does not count.
    """
    told_keys = {key: value for key, value in record.items() if key != "hash"}
    return _hashed(previous, canonical_json(told_keys))


def _hashed(previous: str, text: str) -> str:
    return sha256((previous + text).encode()).hexdigest()


class Chain:
    """Numbers, stamps and chains the records of one log. A record counts once it was kept."""

    def __init__(self, run: str | None, rank: int, model: str) -> None:
        identity = {"run": run or secrets.token_hex(8), "rank": rank, "model": model}
        self._identity = {key: canonical_json(value) for key, value in identity.items()}
        self.sequence = 0
        self.hash = ""
        self._stamped = ""

    def stamp(self, _: object, __: str, event: Mapping[str, Any]) -> dict[str, str]:
        """A structlog processor: the finished record of a name and its keys, each value as its canonical JSON.

        Args:
            event: ``event``, the name, and ``keys``, which :func:`checked` gave.
        """
        record: dict[str, str] = {
            "event": quoted(event["event"]),
            "schema": str(SCHEMA),
            "sequence": str(self.sequence + 1),
            **self._identity,
            "time": f'"{datetime.now(UTC).isoformat()}"',
            **event["keys"],
        }
        canonical = ",".join([f"{quoted(key)}:{record[key]}" for key in sorted(record)])
        self._stamped = _hashed(self.hash, f"{{{canonical}}}")
        record["hash"] = f'"{self._stamped}"'
        return record

    def kept(self) -> None:
        """The record that was stamped last is on the file: the next one follows it."""
        self.sequence, self.hash = self.sequence + 1, self._stamped


def line(_: object, __: str, record: Mapping[str, str]) -> str:
    """A structlog processor: the line of a stamped record, in the order of its keys."""
    return "{" + ", ".join([f"{quoted(key)}: {text}" for key, text in record.items()]) + "}"


def checked(path: str, name: str, keys: Mapping[str, object], names: frozenset[str] = NAMES) -> dict[str, str]:
    """The keys of a record, each value as its canonical JSON.

    Raises:
        AuditError: no record has this name, or a key is one that the log writes itself.
    """
    if name not in names:
        raise AuditError(path, f"no record is called {name!r}; use one of {', '.join(sorted(names))}")
    taken = [key for key in OWN_KEYS if key in keys]
    if taken:
        raise AuditError(path, f"the log writes {', '.join(taken)} itself; use other keys (trigger for the event)")
    return told(keys)
