"""The chain of an audit log: which records there are, how they are numbered, stamped and hashed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from lifecycle.audit.changes import Changes, RecordedFacts
from lifecycle.audit.expand import ExpandedFacts
from lifecycle.audit.plain import compact_json
from lifecycle.audit.told import told
from lifecycle.errors import AuditError

SCHEMA: Final = 2
"""1 told all facts in each record, every verdict at length, and each read of a decision."""
OPENED: Final = "lifecycle.opened"
BEGAN: Final = "lifecycle.began"
ENDS: Final = frozenset({"lifecycle.moved", "lifecycle.failed"})
"""Exactly one of them ends what has begun."""
NAMES: Final = frozenset(
    {
        BEGAN,
        *ENDS,
        "lifecycle.noted",
        "lifecycle.refused",
        "lifecycle.unchanged",
    }
)
"""What a caller may write. ``lifecycle.opened`` is the log's own first record of each session."""
OWN_KEYS: Final = ("event", "schema", "sequence", "run", "rank", "model", "time", "hash")
"""Keys that the log writes itself, in this order; the hash comes last."""


class Keys(NamedTuple):
    """The keys of a record that is to be written.

    Attributes:
        text: the JSON object of all but the facts.
        facts: those, None where the record has none that can be told as changes.
    """

    text: str
    facts: RecordedFacts | None


def chain_hash(previous: str, record: Mapping[str, object]) -> str:
    """The hash that belongs to *record*: SHA-256 of the hash before it and of the line without its own.

    Args:
        previous: hexadecimal hash of the record before, empty for the first.
        record: a plain record in the order of its line; a ``hash`` in it does not count. Of facts that were
            expanded counts what was written.
    """
    told_keys = {key: _written(value) for key, value in record.items() if key != "hash"}
    return _hashed(previous, compact_json(told_keys))


def _written(value: object) -> object:
    return value.written if isinstance(value, ExpandedFacts) else value


def _hashed(previous: str, text: str) -> str:
    return sha256((previous + text).encode()).hexdigest()


class Chain:
    """Numbers, stamps and chains the records of one log. A record counts once it was kept."""

    def __init__(self, run: str | None, rank: int, model: str) -> None:
        self.identity = {"run": run or secrets.token_hex(8), "rank": rank, "model": model}
        self._identity = compact_json(self.identity)[1:-1]
        self.sequence = 0
        self.hash = ""
        self._stamped = ""
        self._changes = Changes()
        self._has_facts = False

    def stamp(self, _: object, __: str, event: Mapping[str, Any]) -> str:
        """A structlog processor: the finished line of a name and its keys.

        Args:
            event: ``event``, the name, and ``keys``, the :class:`Keys` that :func:`checked` gave.
        """
        return self.line(event["event"], event["keys"])

    def line(self, name: str, keys: Keys) -> str:
        """The finished line of a record. It counts once it was kept."""
        self._has_facts = keys.facts is not None
        told_keys = [f'"event":"{name}","schema":{SCHEMA},"sequence":{self.sequence + 1},{self._identity}']
        told_keys.append(f'"time":"{datetime.now(UTC).isoformat()}"')
        told_keys.extend([keys.text[1:-1]] if keys.text != "{}" else [])
        told_keys.extend([f'"facts":{self._changes.told(keys.facts)}'] if keys.facts is not None else [])
        text = f"{{{','.join(told_keys)}}}"
        self._stamped = _hashed(self.hash, text)
        return f'{text[:-1]},"hash":"{self._stamped}"}}'

    def kept(self) -> None:
        """The record that was stamped last is on the file: the next one follows it."""
        self.sequence, self.hash = self.sequence + 1, self._stamped
        if self._has_facts:
            self._changes.kept(self.sequence)

    def follow(self, sequence: int, last_hash: str) -> None:
        """The next record follows this one, which another writer may have written. Facts begin anew."""
        self.sequence, self.hash = sequence, last_hash
        self.forget_facts()

    def forget_facts(self) -> None:
        """The next facts are told whole: so that a file is read without those before it."""
        self._changes.forget()


def checked(path: str, name: str, keys: Mapping[str, object], names: frozenset[str] = NAMES) -> Keys:
    """The keys of a record, encoded but for the facts.

    Raises:
        AuditError: no record has this name, or a key is one that the log writes itself.
    """
    if name not in names:
        raise AuditError(path, f"no record is called {name!r}; use one of {', '.join(sorted(names))}")
    taken = [key for key in OWN_KEYS if key in keys]
    if taken:
        raise AuditError(path, f"the log writes {', '.join(taken)} itself; use other keys (trigger for the event)")
    facts = keys.get("facts")
    if not isinstance(facts, RecordedFacts):
        return Keys(told(keys), None)
    return Keys(told({key: value for key, value in keys.items() if key != "facts"}), facts)
