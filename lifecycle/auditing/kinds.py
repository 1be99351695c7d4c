"""What an audit can find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from states import Facts


class Kind(StrEnum):
    """The kinds of violations. Their names are stable: other programs may look for them."""

    MALFORMED = "malformed"
    TORN = "torn"
    CHAIN = "chain"
    SEQUENCE = "sequence"
    SESSION = "session"
    NUMBERING = "numbering"
    UNFINISHED = "unfinished"
    UNPAIRED = "unpaired"
    TRANSITION = "transition"
    VERDICT = "verdict"
    FACTS = "facts"
    EFFECTS = "effects"
    VERSION = "version"
    READ = "read"
    ENGINE = "engine"
    BYTES = "bytes"
    COPY = "copy"
    LEASE = "lease"
    RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it should be.

    Attributes:
        kind: which rule is broken.
        file: where the line stands.
        line: its number there, from 1.
        message: what is wrong, in words.
    """

    kind: Kind
    file: str
    line: int
    message: str

    def told(self) -> dict[str, object]:
        """The same for JSON."""
        return {"kind": self.kind.value, "file": self.file, "line": self.line, "message": self.message}


DECIDED: Final = frozenset({"began", "refused", "unchanged"})
"""Events of records that tell facts."""
ENDED: Final = frozenset({"moved", "failed"})
EVERY: Final = DECIDED | ENDED | {"opened", "noted"}

Found = Iterable[tuple[Kind, str]]
"""What a check finds at a record."""


@dataclass(slots=True)
class Seen:
    """A whole record, as checks look at it. Its values are not changed.

    Attributes:
        record: all its keys, with whole facts.
        event: its name without ``lifecycle.``.
        facts: those of ``began``, ``refused`` and ``unchanged``, None elsewhere.
    """

    record: dict[str, Any]
    event: str
    facts: Facts | None


class Check(Protocol):
    """Looks for violations of a kind, record by record.

    Attributes:
        events: the records that it looks at, by their event; others are not shown to it.
    """

    events: frozenset[str]

    def see(self, seen: Seen) -> Found:
        """What is wrong with the next record."""

    def end(self) -> Found:
        """What is wrong when nothing follows in this session."""

    def forget(self) -> None:
        """Something is missing before the next record: nothing is known of what went before."""
